"""Linear recurrences: by compiled loops on a CPU, and by doubling on a GPU.

Each call of a loop is for some of the pairs of a sequence and a block of channels, pair number
sequence * blocks + block, so that calls may run side by side. Inner loops go over the channels of a
block and index by nothing else, as they would not vectorise otherwise.
"""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from lra.models.fast.compiled import Array, compiled, run_compiled
from lra.models.fast.doubling import gradients_by_doubling, recur_by_doubling

CHANNELS = 128
"""Largest number of channels of a block."""


def scan(factors: Tensor, x: Tensor, *, reverse: bool = False) -> Tensor:
    """See `lra.models.ops.recurrences.scan`; the backward pass is the recurrence in reverse."""
    return cast("Tensor", _Scan.apply(factors, x, reverse))


def scan_both_ways(factors: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """See `lra.models.ops.recurrences.scan_both_ways`; on a GPU both directions are one."""
    is_fixed = factors.dim() == 1
    ahead, back = (factors, factors) if is_fixed else factors
    if not is_by_doubling(x):
        return scan(ahead, x), scan(back, x, reverse=True)
    joined = factors if is_fixed else torch.cat([ahead, back.flip(1)])
    ahead, back = scan(joined, torch.cat([x, x.flip(1)])).chunk(2)
    return ahead, back.flip(1)


def is_by_doubling(x: Tensor) -> bool:
    """Whether recurrences over x run by doubling, as they do wherever operations are launched."""
    return x.device.type != "cpu"


class _Scan(Function):
    @staticmethod
    def forward(ctx: Any, factors: Tensor, x: Tensor, reverse: bool) -> Tensor:
        factors, x = (part.detach().resolve_conj().contiguous() for part in (factors, x))
        if x.numel() == 0:
            states = x.clone()
        elif is_by_doubling(x):
            states = recur_by_doubling(factors, x, reverse=reverse)
        else:
            states = torch.empty_like(x)
            _run(run_states, reverse, factors, x, states)
        ctx.save_for_backward(factors, states)
        ctx.reverse = reverse
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_states: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        factors, states = ctx.saved_tensors
        if states.numel() == 0:
            return torch.zeros_like(factors), to_states, None
        if is_by_doubling(states):
            return *gradients_by_doubling(factors, states, to_states, reverse=ctx.reverse), None
        to_x, to_states = torch.empty_like(states), to_states.resolve_conj().contiguous()
        # Gradients of fixed factors are summed by sequence first.
        shape = (states.shape[0], 1, len(factors)) if factors.dim() == 1 else factors.shape
        to_factors = states.new_zeros(shape)
        _run(run_states_back, ctx.reverse, factors, states, to_states, to_x, to_factors)
        return to_factors.sum(dim=(0, 1)) if factors.dim() == 1 else to_factors, to_x, None


def _run(loop: Callable[..., None], reverse: bool, factors: Tensor, *arrays: Tensor) -> None:
    """Run a loop; fixed factors get one sequence and one position, which stand for all."""
    pairs = len(arrays[0]) * -(-arrays[0].shape[2] // CHANNELS)
    factors = factors[None, None] if factors.dim() == 1 else factors
    run_compiled(loop, pairs, int(reverse), factors, tuple(part.detach() for part in arrays))


@compiled
def run_states(
    pairs: tuple[int, int], reverse: int, factors: Array, arrays: tuple[Array, ...]
) -> None:  # pragma: no cover (compiled)
    """Run states over all positions.

    Args:
        pairs: the first one, and the one behind the last; pair number sequence * blocks + block.
        reverse: 1 if it runs from the last position to the first.
        factors: (batch, length, channels), or one sequence and one position for all.
        arrays: x, (batch, length, channels), and the states, of this shape, written.
    """
    x, states = arrays
    length, channels = x.shape[1:]
    blocks = -(-channels // CHANNELS)
    for pair in range(pairs[0], pairs[1]):
        b, start = pair // blocks, pair % blocks * CHANNELS
        size = min(CHANNELS, channels - start)
        state, block = np.zeros(size, x.dtype), slice(start, start + size)
        for k in range(length):
            t = length - 1 - k if reverse else k
            row, at = min(b, factors.shape[0] - 1), min(t, factors.shape[1] - 1)
            factor, entering, here = factors[row, at, block], x[b, t, block], states[b, t, block]
            for i in range(size):
                state[i] = factor[i] * state[i] + entering[i]
                here[i] = state[i]


@compiled
def run_states_back(
    pairs: tuple[int, int], reverse: int, factors: Array, arrays: tuple[Array, ...]
) -> None:  # pragma: no cover (compiled)
    """Write the gradients of x, and add up those of the factors, see `run_states`.

    Args:
        arrays: the states; their gradients; those of x, written; and those of the factors,
            (batch, length or 1, channels).
    """
    states, to_states, to_x, to_factors = arrays
    length, channels = states.shape[1:]
    blocks = -(-channels // CHANNELS)
    for pair in range(pairs[0], pairs[1]):
        b, start = pair // blocks, pair % blocks * CHANNELS
        size = min(CHANNELS, channels - start)
        carried, block = np.zeros(size, states.dtype), slice(start, start + size)
        for k in range(length):
            t = k if reverse else length - 1 - k
            before = t + 1 if reverse else t - 1
            row, at = min(b, factors.shape[0] - 1), min(t, factors.shape[1] - 1)
            factor, to_factor = factors[row, at, block], to_factors[b, at, block]
            to_here, to_entering = to_states[b, t, block], to_x[b, t, block]
            for i in range(size):
                carried[i] += to_here[i]
                to_entering[i] = carried[i]
            if 0 <= before < length:
                state = states[b, before, block]
                for i in range(size):
                    to_factor[i] += carried[i] * np.conj(state[i])
            for i in range(size):
                carried[i] *= np.conj(factor[i])
