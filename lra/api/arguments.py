"""Checks of the arguments of the Python API: a wrong one raises a UserError."""

import functools
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, ParamSpec, TypeVar

import numpy as np
from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    SkipValidation,
    ValidationError,
    validate_call,
)

from lra.common.errors import UserError, explain_fault, format_value, nearest
from lra.config.mistakes import find_setting
from lra.config.request import SECTIONS
from lra.runtime.cli import LARGEST_INT

P = ParamSpec("P")
R = TypeVar("R")


def _to_int(value: Any) -> Any:
    return int(value) if isinstance(value, np.integer) else value


Seed = Annotated[int, BeforeValidator(_to_int), Field(ge=0, le=LARGEST_INT)]
Steps = Annotated[int, BeforeValidator(_to_int), Field(ge=1, le=LARGEST_INT)]
Minutes = Annotated[float, Field(ge=0, allow_inf_nan=False)]
AnyPath = Path | str
Indices = Annotated[Sequence[int] | np.ndarray | None, SkipValidation]
"""Indices of examples, which `check_indices` checks; None: all examples."""


def check_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Check the arguments of a function by its annotations: a wrong one raises a UserError."""
    name = function.__qualname__ if "." in function.__qualname__ else f"lra.{function.__name__}"
    parameters = list(inspect.signature(function).parameters)
    checked = validate_call(config=ConfigDict(strict=True, arbitrary_types_allowed=True))(function)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return checked(*args, **kwargs)
        except ValidationError as error:
            first = error.errors()[0]
            location, message = first["loc"][0], explain_fault(first["msg"])
            is_position = isinstance(location, int) and location < len(parameters)
            argument = parameters[int(location)] if is_position else location
            if not first["type"].startswith(("missing", "unexpected")):
                value = format_value(first["input"])
                message = f"got {value}, {message}"
                if argument not in parameters:  # one of **settings
                    meant = nearest(str(location), parameters, 0.75)
                    if not meant and (setting := find_setting(str(location))):
                        section, _, key = setting.partition(".")
                        meant = f'{section}={{"{key}": {value}}}'
                    if meant:
                        message = f"got {value}; did you mean {meant}?"
                    elif location not in SECTIONS:
                        message = (
                            f'unknown name; if the mixer has it: mixer={{"{location}": {value}}}'
                        )
            raise UserError(f"{name}: {argument}: {message}") from None

    return call
