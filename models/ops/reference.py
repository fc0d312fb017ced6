"""Fast forms and the plain ones behind the same functions.

A plain form is written as published code writes it, with autograd as it comes. It is what a
fast form is tested and timed against.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_ARE_USED: ContextVar[bool] = ContextVar("plain_forms_are_used", default=False)


@contextlib.contextmanager
def plain_forms() -> Iterator[None]:
    """Compute by plain forms within its block."""
    token = _ARE_USED.set(True)
    try:
        yield
    finally:
        _ARE_USED.reset(token)


def plain_forms_are_used() -> bool:
    """Whether this is within `plain_forms`."""
    return _ARE_USED.get()


def fast_form_of(plain: Callable[P, R]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a fast form of a function: it is called but within `plain_forms`."""

    def decorate(fast: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(fast)
        def choose(*args: P.args, **kwargs: P.kwargs) -> R:
            return (plain if _ARE_USED.get() else fast)(*args, **kwargs)

        return choose

    return decorate
