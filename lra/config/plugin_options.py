"""The options of a plug-in, from the parameters of its constructor."""

from __future__ import annotations

import functools
import inspect
import json
from typing import get_type_hints

from lra.config.registry import Section, options_section
from lra.runtime.errors import UserError


@functools.cache
def plug_in_options(cls: type, first: tuple[str, ...], origin: str) -> type[Section]:
    """Derive the options of a plug-in from its constructor's parameters.

    Args:
        first: positional arguments of the constructor, before its options.
        origin: start of error messages.
    Raises: UserError for a constructor that would accept misspelt options, and for options that
        cannot be settings.
    """
    _, *parameters = inspect.signature(cls.__init__).parameters.values()
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if cls.__init__ is object.__init__:
        parameters = []
    leading, rest = parameters[: len(first)], parameters[len(first) :]
    if len(leading) < len(first) or any(p.kind not in by_position for p in leading):
        form = ", ".join(["self", *first, "..."])
        raise UserError(f"{origin}: expected a constructor __init__({form})")
    options: list[inspect.Parameter] = []
    for parameter in rest:
        if parameter.kind is parameter.VAR_KEYWORD:
            raise UserError(
                f"{origin}: its constructor takes **{parameter.name}, which would accept misspelt "
                f"options; name each option"
            )
        if parameter.kind is not parameter.VAR_POSITIONAL:
            options.append(parameter)
    _refuse_unsettable(cls, options, origin)
    return options_section(cls, options)


def _refuse_unsettable(cls: type, options: list[inspect.Parameter], origin: str) -> None:
    """Refuse types and defaults that cannot be written as text or saved in a record."""
    try:
        get_type_hints(cls.__init__)
    except Exception as error:
        raise UserError(
            f"{origin}: a type hint of its constructor cannot be evaluated "
            f"({type(error).__name__}: {error}); import its names at run time"
        ) from None
    for option in options:
        if option.name.startswith("_") or option.name in dir(Section):
            raise UserError(f"{origin}: an option cannot be called {option.name}; rename it")
        try:
            json.dumps(None if option.default is option.empty else option.default)
            settings = options_section(cls, [option])
            if option.default is not option.empty:
                settings.model_validate({})
        except Exception as error:
            raise UserError(
                f"{origin}: {option.name} cannot be a setting ({type(error).__name__}); use a "
                f"number, text, boolean or list, and a default of the same type"
            ) from None
