"""Checks of the arguments of the Python API: a wrong one raises a UserError."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np

from common.errors import format_value
from lra.runtime.cli import LARGEST_INT
from lra.runtime.errors import UserError, describe_os_error

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Expected:
    """What an argument is expected to be."""

    words: str
    """Description for messages."""
    fits: Callable[[Any], bool]
    """Whether a value is as expected."""


def _is_path(value: object) -> bool:
    if not isinstance(value, (str, Path)):
        return False
    try:
        return b"\0" not in str(value).encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return False


def _is_seed(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        return False
    return 0 <= int(value) <= LARGEST_INT  # pyright: ignore[reportUnknownArgumentType]


def _is_count(value: object) -> bool:
    return _is_seed(value) and value != 0


def _is_time(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        return False
    return bool(0 <= value < math.inf)  # pyright: ignore[reportUnknownVariableType]


def instance_of(cls: type) -> Expected:
    """Expect an instance of a class."""
    return Expected(f"a {cls.__name__}", lambda value: isinstance(value, cls))


def optional(expected: Expected) -> Expected:
    """Expect None or something else."""
    return Expected(
        f"None or {expected.words}", lambda value: value is None or expected.fits(value)
    )


ANYTHING = Expected("anything", lambda _: True)
"""For an argument that its function checks itself."""
NAME = Expected("a name", lambda value: isinstance(value, str))
PATH = Expected("a path, as a str or pathlib.Path", _is_path)
SEED = Expected(f"a whole number from 0 to {LARGEST_INT}", _is_seed)
STEPS = Expected(f"a whole number from 1 to {LARGEST_INT}", _is_count)
MINUTES = Expected("a finite number of at least 0", _is_time)
SWITCH = Expected("True or False", lambda value: isinstance(value, (bool, np.bool_)))


def check_arguments(name: str, **expected: Expected) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Check the arguments of a function, and turn errors of the file system into UserErrors.

    Args:
        name: name of the function in messages.
        **expected: what is expected of each argument, except for `self` and `**settings`.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        parameters = {
            key
            for key, parameter in signature.parameters.items()
            if key != "self" and parameter.kind is not parameter.VAR_KEYWORD
        }
        if parameters != expected.keys():
            raise TypeError(f"{name}: say what is expected of {parameters ^ expected.keys()}")

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                given = signature.bind(*args, **kwargs).arguments
            except TypeError as error:
                raise UserError(f"{name}: {error}") from None
            for key, wanted in expected.items():
                if key in given and not wanted.fits(given[key]):
                    raise UserError(f"{name}: {key}: got {format_value(given[key])}, expected "
                                    f"{wanted.words}")  # fmt: skip
            try:
                return function(*args, **kwargs)
            except OSError as error:
                raise UserError(f"{name}: {describe_os_error(error)}") from error

        return call

    return decorate
