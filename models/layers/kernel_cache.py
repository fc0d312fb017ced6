"""A cache that computes a kernel once if several products use it.

A batch is mixed in groups of similar length, and an evaluation has many batches. All of them use
the same kernel over lags, cut to their length. `torch.nn.utils.parametrize.cached` does the same
for parametrized tensors; this cache also holds values that depend on an argument, such as a length.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Hashable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.profiler import record_function

from models.ops.reference import reference_forms_are_used

T = TypeVar("T")


@dataclass
class _CachedKernels:
    """What was made of a module's parameters and buffers as they were."""

    tensors: list[Tensor]
    state: tuple[object, ...]
    by_role: dict[Hashable, Any] = field(default_factory=dict)

    def holds_for(self, tensors: list[Tensor], state: tuple[object, ...]) -> bool:
        """Whether these are the same tensors, and unchanged."""
        same = len(tensors) == len(self.tensors) and all(map(operator.is_, tensors, self.tensors))
        return same and state == self.state


_CACHES: ContextVar[dict[nn.Module, _CachedKernels] | None] = ContextVar(
    "cached_kernels", default=None
)


@contextlib.contextmanager
def cache_kernels() -> Iterator[None]:
    """Return a context in which kernels are cached, as long as no parameter changes.

    The cache is emptied when the outermost such context ends; a nested context has no effect.
    """
    if _CACHES.get() is not None:
        yield
        return
    token = _CACHES.set({})
    try:
        yield
    finally:
        _CACHES.reset(token)


def find_cache(owner: nn.Module) -> dict[Hashable, Any] | None:
    """Return the cached values of a module by role; None outside of `cache_kernels`.

    The cache is emptied if a parameter or buffer of the module was changed in place, moved or
    replaced, or if the mode of autograd has changed. (A write through `.data` is not noticed.)
    Within `reference_forms` nothing is cached, as in published code.
    """
    kept = _CACHES.get()
    if kept is None or reference_forms_are_used():
        return None
    tensors = [*owner.parameters(), *owner.buffers()]
    state = (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        *((0 if t.is_inference() else t._version, t.data_ptr(), t.dtype) for t in tensors),
    )
    if owner not in kept or not kept[owner].holds_for(tensors, state):
        kept[owner] = _CachedKernels(tensors, state)
    return kept[owner].by_role


def compute_once(owner: nn.Module, role: Hashable, make: Callable[[], T]) -> T:
    """Compute a value from a module's parameters, or return the cached value of the same role.

    Args:
        owner: the module.
        role: the value's name, with everything that it depends on except the parameters.
        make: computes the value.
    """
    kept = find_cache(owner)
    if kept is not None and role in kept:
        return kept[role]
    with record_function("kernel"):  # what a profile of a step calls it
        result = make()
    if kept is not None:
        kept[role] = result
    return result
