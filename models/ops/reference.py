"""Which form of a function runs: the fast one or the reference.

A reference form is written as published code writes it, with torch's own autograd. Fast forms are
tested and timed against it.
"""

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_ARE_USED: ContextVar[bool] = ContextVar("reference_forms_are_used", default=False)


@contextlib.contextmanager
def reference_forms(are_used: bool = True) -> Iterator[None]:
    """Let every function run its reference form within this context, or its fast form (False)."""
    token = _ARE_USED.set(are_used)
    try:
        yield
    finally:
        _ARE_USED.reset(token)


def reference_forms_are_used() -> bool:
    """Return whether this call is within `reference_forms`."""
    return _ARE_USED.get()


def fast_form_of(reference: Callable[P, R]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a fast form with its reference form, of the same arguments and results."""

    def decorate(fast: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(fast)
        def choose(*args: P.args, **kwargs: P.kwargs) -> R:
            return (reference if _ARE_USED.get() else fast)(*args, **kwargs)

        return choose

    return decorate


def has_fast_form(module: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a reference form; a module of `lra.models.fast` has its fast form, with its name."""

    def decorate(reference: Callable[P, R]) -> Callable[P, R]:
        @functools.cache
        def find_fast() -> Callable[P, R]:
            fast = importlib.import_module(f"lra.models.fast.{module}")
            return getattr(fast, reference.__name__)

        @functools.wraps(reference)
        def choose(*args: P.args, **kwargs: P.kwargs) -> R:
            return (reference if _ARE_USED.get() else find_fast())(*args, **kwargs)

        return choose

    return decorate
