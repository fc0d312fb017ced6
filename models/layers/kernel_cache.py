"""What is computed from a module's parameters alone, once for all batches that it serves.

A batch is mixed in groups of similar length, and an evaluation has many batches. All of them use
the same kernel over lags, or the same matrices.
"""

import contextlib
import operator
from collections.abc import Callable, Hashable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from lra.models.ops.reference import reference_forms_are_used

T = TypeVar("T")


@dataclass
class _CachedKernels:
    """What was made of a module's parameters and buffers as they were."""

    tensors: list[Tensor]
    state: tuple[object, ...]
    by_role: dict[Hashable, Any] = field(default_factory=dict)


_CACHES: ContextVar[dict[nn.Module, _CachedKernels] | None] = ContextVar(
    "cached_kernels", default=None
)


@contextlib.contextmanager
def cache_kernels() -> Iterator[None]:
    """Cache kernels, as long as no parameter changes, until the outermost such context ends."""
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
    cached = kept.get(owner)
    if (
        cached is None
        or cached.state != state  # which is as long as there are tensors
        or not all(map(operator.is_, tensors, cached.tensors))
    ):
        cached = kept[owner] = _CachedKernels(tensors, state)
    return cached.by_role


def compute_once(owner: nn.Module, role: Hashable, make: Callable[[], T]) -> T:
    """Compute a value from a module's parameters, or return the cached value of the same role.

    A role is the value's name, with everything that it depends on except the parameters.
    """
    kept = find_cache(owner)
    if kept is None:
        return make()
    if role not in kept:
        kept[role] = make()
    return kept[role]
