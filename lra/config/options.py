"""Sections of typed settings; those of a mixer or task are the parameters of its constructor."""

from __future__ import annotations

import functools
import inspect
import json
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, create_model, field_validator
from torch import nn

from common.errors import describe
from common.options import Added
from models.promises import BrokenPromise


class Section(BaseModel):
    """A section of the configuration: typed, immutable, closed to unknown keys."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, validate_default=True
    )

    @field_validator("*")
    @classmethod
    def _refuse_unrecordable(cls, value: Any) -> Any:
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            raise ValueError(
                f"a record cannot hold a {type(value).__name__}; use a number, text, boolean or "
                f"list"
            ) from None
        return value

    def hashed(self) -> dict[str, Any]:
        """Dump the settings, without those marked `Added` that have the value from before them."""
        fields = type(self).model_fields
        return {
            name: value
            for name, value in self.model_dump().items()
            if not any(
                isinstance(mark, Added) and mark.default == value for mark in fields[name].metadata
            )
        }


@functools.cache
def options_model(owner: type) -> type[Section]:
    """Derive the options of a mixer or task from the parameters of its constructor.

    The first parameter of a mixer is its context. A parameter without a type has the type of its
    default, or takes any value if it has none.

    Raises: BrokenPromise for a constructor that would accept misspelt options, and for options that
        cannot be settings.
    """
    parameters = [*inspect.signature(owner.__init__).parameters.values()][1:]
    if owner.__init__ is object.__init__:
        parameters = []
    if issubclass(owner, nn.Module):
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        if not parameters or parameters.pop(0).kind not in kinds:
            raise BrokenPromise("expected a constructor __init__(self, context, ...)")
    try:
        hints = get_type_hints(owner.__init__, include_extras=True)
    except Exception as error:
        raise BrokenPromise(
            f"a type hint of its constructor cannot be evaluated ({describe(error)}); import its "
            f"names at run time"
        ) from None
    fields: dict[str, Any] = {}
    for parameter in parameters:
        name, default = parameter.name, parameter.default
        if parameter.kind is parameter.VAR_KEYWORD:
            raise BrokenPromise(
                f"its constructor takes **{name}, which would accept misspelt options; name each "
                f"option"
            )
        if parameter.kind is parameter.VAR_POSITIONAL:
            continue
        if name.startswith("_") or name in dir(Section):
            raise BrokenPromise(f"an option cannot be called {name}; rename it")
        guess = type(default) if isinstance(default, (bool, int, float, str)) else Any
        fields[name] = hints.get(name, guess), ... if default is parameter.empty else default
        try:
            create_model("Option", __base__=Section, **{name: fields[name]})
        except Exception:
            raise BrokenPromise(
                f"{name} cannot be a setting; use the type of a number, text, boolean or list"
            ) from None
    return create_model(f"{owner.__name__}Options", __base__=Section, **fields)
