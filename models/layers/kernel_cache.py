"""Making a kernel once where several products use it.

A batch is mixed in groups of like length, and an evaluation in many batches; the kernel over
lags that a mixer's parameters generate is the same for all of them, only cut to their length.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator
from contextvars import ContextVar
from typing import Any, TypeVar

from torch import Tensor
from torch.profiler import record_function

from models.ops.circulant import circulant_multiply
from models.ops.reference import plain_forms_are_used
from models.ops.toeplitz import (
    circulant_response,
    fast_fft_length,
    smallest_circulant,
    toeplitz_multiply,
)

T = TypeVar("T")
Kernel = tuple[Tensor, int]
"""(num_lags, channels) for increasing lags, and the first lag."""

MOST_RESPONSES = 4
"""Transforms of one kernel that are kept, the last ones: an evaluation makes one per size."""

_MADE: ContextVar[dict[Hashable, Any] | None] = ContextVar("kernels_made", default=None)


@contextlib.contextmanager
def shared_kernels() -> Iterator[None]:
    """Keep what is made within the outermost such block: no parameter may change in it."""
    if _MADE.get() is not None:
        yield
        return
    token = _MADE.set({})
    try:
        yield
    finally:
        _MADE.reset(token)


def made_once(key: Hashable, make: Callable[[], T]) -> T:
    """Make something, or take what was made under the same key within `shared_kernels`."""
    made = None if plain_forms_are_used() else _MADE.get()
    if made is not None and key in made:
        return made[key]
    with record_function("kernel"):  # what a profile of a step calls it
        result = make()
    if made is not None:
        made[key] = result
    return result


def kernel_for(key: Hashable, length: int, generate: Callable[[int], Kernel]) -> Kernel:
    """Generate a kernel for sequences of a length, or cut one that was made for longer ones.

    Args:
        key: of all that the kernel at a lag depends on.
        generate: makes the kernel for a length.
    """
    made = None if plain_forms_are_used() else _MADE.get()
    if made is not None and key in made:
        longest, coefficients, first_lag = made[key]
        if longest >= length:
            return cut(coefficients, first_lag, length)
    with record_function("kernel"):
        coefficients, first_lag = generate(length)
    if made is not None:
        made[key] = length, coefficients, first_lag
    return coefficients, first_lag


def multiply_shared(key: Hashable, coefficients: Callable[[int], Kernel], x: Tensor) -> Tensor:
    """Multiply by the Toeplitz matrices of a kernel, `toeplitz_multiply`.

    Within `shared_kernels` the transform of the kernel for longer sequences is taken for shorter
    ones too, where its greater size costs less than another transform of the kernel.

    Args:
        key: of all that the kernel at a lag depends on.
        coefficients: gives the kernel for a length.
        x: (batch, length, channels).
    Returns: (batch, length, channels).
    """
    batch, length, _ = x.shape
    kernel, first_lag = coefficients(length)
    made = None if plain_forms_are_used() else _MADE.get()
    if made is None:
        return toeplitz_multiply(kernel, first_lag, x)
    size = fast_fft_length(smallest_circulant(kernel, first_lag, length))
    responses = made.setdefault((key, "responses", x.dtype), [])
    for longest, greater, response in responses:
        if longest >= length and batch * (greater - size) <= size:
            return circulant_multiply(response, greater, x)
    response = circulant_response(kernel, first_lag, size, x.dtype)
    responses.append((length, size, response))
    del responses[:-MOST_RESPONSES]
    return circulant_multiply(response, size, x)


def cut(coefficients: Tensor, first_lag: int, length: int) -> Kernel:
    """Drop the lags that sequences of a length do not have."""
    first = max(first_lag, 1 - length)
    return coefficients[first - first_lag : length - first_lag], first
