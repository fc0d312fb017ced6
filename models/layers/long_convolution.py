"""Long convolutions: kernels over lags that are generated once, and products by FFT.

A batch is mixed in groups of similar length, and an evaluation has many batches. All of them use
the same kernel over lags, cut to their length.
"""

from __future__ import annotations

import abc
import contextlib
import operator
from collections.abc import Callable, Hashable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from models.ops.reference import reference_forms_are_used
from models.ops.toeplitz import LagKernel, circulant_multiply, fast_fft_length

T = TypeVar("T")

MOST_RESPONSES = 4
"""Number of transforms of one kernel that are cached; an evaluation computes one per size."""


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
    found = kept.get(owner)
    if (
        found is None
        or found.state != state  # which is as long as there are tensors
        or not all(map(operator.is_, tensors, found.tensors))
    ):
        found = kept[owner] = _CachedKernels(tensors, state)
    return found.by_role


def compute_once(owner: nn.Module, role: Hashable, make: Callable[[], T]) -> T:
    """Compute a value from a module's parameters, or return the cached value of the same role.

    A role is the value's name, with everything that it depends on except the parameters.
    """
    kept = find_cache(owner)
    if kept is not None and role in kept:
        return kept[role]
    result = make()
    if kept is not None:
        kept[role] = result
    return result


class PositionOperator(nn.Module, abc.ABC):
    """A product with one matrix over positions per channel, the core of a mixer.

    `lra.bench op` measures the time of this product alone.
    """

    channels: int
    """Channels in and out."""

    @abc.abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Multiply x by the matrices: (batch, length, channels) -> the same shape."""

    @abc.abstractmethod
    def matrix(self, length: int) -> Tensor:
        """Write the matrices out for sequences of a length: (channels, length, length)."""


class LongConvolution(PositionOperator):
    """A product with one Toeplitz matrix per channel; parameters generate the kernel over lags."""

    @abc.abstractmethod
    def generate(self, length: int) -> LagKernel:
        """Generate the kernel for sequences of a length, in at least single precision."""

    def resolution(self, length: int) -> int:
        """Return a number that is equal for all lengths whose kernels are parts of one kernel."""
        return 0

    def kernel(self, length: int) -> LagKernel:
        """Generate the kernel for sequences of a length, or cut the cached one of longer ones."""
        kept = find_cache(self)
        role = ("kernel", self.resolution(length))
        if kept is not None and role in kept:
            longest, kernel = kept[role]
            if longest >= length:
                return kernel.cut(length)
        device = next(self.parameters()).device.type
        # In bfloat16, neighbouring lags above 256 round to the same number.
        with torch.autocast(device, enabled=False):
            kernel = self.generate(length)
        if kept is not None:
            kept[role] = length, kernel
        return kernel

    def convolve_prefix(self, x: Tensor, length: int) -> Tensor:
        """Multiply the first positions of sequences of a length, (batch, positions, channels)."""
        count = x.shape[1]
        needs_whole = self.resolution(count) != self.resolution(length)
        return self.kernel(length if needs_whole else count).cut(count).multiply(x)

    def matrix(self, length: int) -> Tensor:
        return self.kernel(length).matrix(length)

    def forward(self, x: Tensor) -> Tensor:
        """Multiply x by the kernel: (batch, length, channels) -> the same shape."""
        batch, length, _ = x.shape
        kernel, kept = self.kernel(length), find_cache(self)
        if kept is None:
            return kernel.multiply(x)
        size = fast_fft_length(kernel.smallest_circulant(length))
        role = ("responses", self.resolution(length), x.dtype)
        responses: list[tuple[int, int, Tensor]] = kept.setdefault(role, [])
        # That of longer sequences serves if it costs less than another transform.
        for longest, greater, response in responses:
            if longest >= length and batch * (greater - size) <= size:
                return circulant_multiply(response, greater, x)
        response = kernel.response(size, x.dtype)
        responses.append((length, size, response))
        del responses[:-MOST_RESPONSES]
        return circulant_multiply(response, size, x)
