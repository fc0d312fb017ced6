"""Selective scans by compiled loops over tiles of positions on a CPU, and by blocks on a GPU.

Each call of a loop is for some of the pairs of a sequence and a group of channels, pair number
sequence * groups + group, so that calls may run side by side. Inner loops go over the channels of a
group, which are last in memory, and index by nothing else, as they would not vectorise otherwise.

Only the states between tiles are saved for the backward pass on a CPU. On a GPU it computes the
states of blocks of channels again. Memory is O(length) on both, for any number of states.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from lra.models.fast.compiled import Array, compiled, run_compiled
from lra.models.fast.recurrence import scan
from lra.models.ops.recurrences import Selection

BLOCK = 2**29
"""Largest number of states of a block of channels that are in memory at once, on a GPU."""
TILE = 2**19
"""Largest number of states of a tile of positions that are in memory at once."""


def selective_scan(inputs: Selection, poles: Tensor, bias: Tensor | None = None) -> Tensor:
    """See `lra.models.ops.recurrences.selective_scan`."""
    x, step, into, out = inputs
    if x.numel() == 0 or poles.numel() == 0:
        return torch.zeros_like(x)
    if x.device.type != "cpu":
        return selective_scan_by_blocks(inputs, poles, bias)
    groups = into.shape[2]
    x, step = (part.unflatten(-1, (groups, -1)) for part in (x, step))
    bias = torch.zeros_like(poles) if bias is None else bias
    poles, bias = (part.unflatten(0, (groups, -1)).mT for part in (poles, bias))
    result: Any = _Compiled.apply(x, step, poles, into, out, bias)
    return result.flatten(2)


class _Compiled(Function):
    """x and dt: (batch, length, groups, size); A and what B gains: (groups, states, size)."""

    @staticmethod
    def forward(ctx: Any, *arrays: Tensor) -> Tensor:
        x, step, poles, into, out, bias = (
            part.detach().resolve_conj().contiguous() for part in arrays
        )
        y = torch.empty_like(x)
        state = poles.new_zeros(len(x), *poles.shape)
        states, pairs = [], len(x) * into.shape[2]
        for tile in _tiles(x, poles):
            states.append(state.clone())
            decay = _decay(step[:, tile], poles)
            run_compiled(run_tile, pairs, tile.start, decay, (x, step, into, out, bias, state), y)
        ctx.save_for_backward(x, step, poles, into, out, bias, *states)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_y: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, step, poles, into, out, bias, *states = ctx.saved_tensors
        to_x, to_step = torch.empty_like(x), torch.empty_like(x)
        to_into, to_out = torch.zeros_like(into), torch.zeros_like(out)
        to_state, to_bias, to_poles = (torch.zeros_like(states[0]) for _ in range(3))
        to_arrays = to_x, to_step, to_into, to_out, to_bias, to_poles, to_state
        pairs, to_y = len(x) * into.shape[2], to_y.contiguous()
        for tile, state in reversed(list(zip(_tiles(x, poles), states, strict=True))):
            decay = _decay(step[:, tile], poles)
            arrays = x, step, to_y, into, out, bias, poles, state
            run_compiled(run_tile_back, pairs, tile.start, decay, arrays, to_arrays)
        return to_x, to_step, to_poles.sum(dim=0), to_into, to_out, to_bias.sum(dim=0)


def _tiles(x: Tensor, poles: Tensor) -> list[slice]:
    """Cut positions into tiles."""
    batch, length = x.shape[:2]
    size = max(1, TILE // (batch * poles.numel()))
    return [slice(start, min(start + size, length)) for start in range(0, length, size)]


def _decay(step: Tensor, poles: Tensor) -> Tensor:
    """Compute exp(dt A): (..., groups, size), (groups, states, size) -> (..., states, size)."""
    step = step[..., None, :]
    if not poles.is_complex():
        return (step * poles).exp_()
    # torch's exponential of complex numbers is not vectorised.
    size, angle = (step * poles.real).exp_(), step * poles.imag
    return torch.complex(angle.cos().mul_(size), angle.sin_().mul_(size))


def selective_scan_by_blocks(
    inputs: Selection, poles: Tensor, bias: Tensor | None = None
) -> Tensor:
    """Compute `selective_scan` by blocks of channels, on any device."""
    (batch, length, _), groups = inputs.x.shape, inputs.into.shape[2]
    x, step = (part.unflatten(-1, (groups, -1)) for part in inputs[:2])
    poles, *biases = (part.unflatten(0, (groups, -1)) for part in (poles, bias) if part is not None)
    states = poles.shape[2] * (2 if poles.is_complex() else 1)
    width = max(1, BLOCK // (batch * length * groups * states))
    # Each block has some channels of every group.
    results = [
        checkpoint(_block, inputs._replace(x=x, step=step), *parameters, use_reentrant=False)
        for x, step, *parameters in zip(
            *(part.split(width, dim=-1) for part in (x, step)),
            *(part.split(width, dim=1) for part in (poles, *biases)),
            strict=True,
        )
    ]
    return torch.cat(results, dim=-1).flatten(2)


def _block(inputs: Selection, poles: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute `selective_scan` of x and dt, (batch, length, groups, some channels)."""
    decay = (inputs.step[..., None] * poles).exp()
    into, out = inputs.into[..., None, :], inputs.out[..., None]
    added = (inputs.step * inputs.x)[..., None] * (into if bias is None else into + bias)
    states = scan(decay.flatten(2), added.expand_as(decay).flatten(2)).unflatten(2, poles.shape)
    if not states.is_complex():
        return (states @ out)[..., 0]
    # The real part of a product is a product of real parts with those of the conjugate.
    states, out = (
        torch.view_as_real(part.resolve_conj()).flatten(-2) for part in (states, out.conj().mT)
    )
    return (states @ out.mT)[..., 0]


Arrays = tuple[Array, ...]


@compiled
def run_tile(
    pairs: tuple[int, int], start: int, decay: Array, arrays: Arrays, y: Array
) -> None:  # pragma: no cover (compiled)
    """Run the states over a tile, and write the results to y.

    Args:
        pairs: the first one, and the one behind the last.
        start: first position of the tile.
        decay: (batch, tile, groups, states, size), exp(dt A).
        arrays: x and dt, (batch, length, groups, size); B and C, (batch, length, groups,
            states); what is added to B, (groups, states, size); and the states, (batch, groups,
            states, size), before the tile, and afterwards behind it.
        y: (batch, length, groups, size), written.
    """
    x, step, into, out, bias, state = arrays
    groups, size = x.shape[2:]
    added = np.empty(size, x.dtype)
    total = np.empty(size, x.dtype)
    for pair in range(pairs[0], pairs[1]):
        b, group = pair // groups, pair % groups
        for k in range(decay.shape[1]):
            t = start + k
            for i in range(size):
                added[i] = step[b, t, group, i] * x[b, t, group, i]
                total[i] = 0
            for n in range(decay.shape[3]):
                entry, exit_ = into[b, t, group, n], out[b, t, group, n]
                for i in range(size):
                    entering = added[i] * (entry + bias[group, n, i])
                    here = decay[b, k, group, n, i] * state[b, group, n, i] + entering
                    state[b, group, n, i] = here
                    total[i] += (here * exit_).real
            for i in range(size):
                y[b, t, group, i] = total[i]


@compiled
def _remember(
    before: Array, index: tuple[int, int, int], decay: Array, arrays: Arrays
) -> None:  # pragma: no cover (compiled)
    """Write the states before and behind each position of a tile: (tile + 1, states, size)."""
    x, step, into, bias, state = arrays
    b, group, start = index
    size = x.shape[3]
    added = np.empty(size, x.dtype)
    # Numba needs seconds to compile the error message of a slice assignment.
    for n in range(decay.shape[3]):
        for i in range(size):
            before[0, n, i] = state[b, group, n, i]
    for k in range(decay.shape[1]):
        t = start + k
        for i in range(size):
            added[i] = step[b, t, group, i] * x[b, t, group, i]
        for n in range(decay.shape[3]):
            entry = into[b, t, group, n]
            for i in range(size):
                entering = added[i] * (entry + bias[group, n, i])
                before[k + 1, n, i] = decay[b, k, group, n, i] * before[k, n, i] + entering


@compiled
def run_tile_back(
    pairs: tuple[int, int], start: int, decay: Array, arrays: Arrays, to_arrays: Arrays
) -> None:  # pragma: no cover (compiled)
    """Write the gradients of a tile, see `run_tile`; of A and the bias add them up by sequence."""
    x, step, to_y, into, out, bias, poles, state = arrays
    to_x, to_step, to_into, to_out, to_bias, to_poles, to_state = to_arrays
    groups, size = x.shape[2:]
    tile, states = decay.shape[1], decay.shape[3]
    before = np.empty((tile + 1, states, size), decay.dtype)
    here = np.empty(size, decay.dtype)
    added = np.empty(size, x.dtype)
    to_added = np.empty(size, x.dtype)
    to_dt = np.empty(size, x.dtype)
    for pair in range(pairs[0], pairs[1]):
        b, group = pair // groups, pair % groups
        _remember(before, (b, group, start), decay, (x, step, into, bias, state))
        for k in range(tile - 1, -1, -1):
            t = start + k
            for i in range(size):
                added[i] = step[b, t, group, i] * x[b, t, group, i]
                to_added[i] = 0
                to_dt[i] = 0
            for n in range(states):
                entry, exit_ = into[b, t, group, n], np.conj(out[b, t, group, n])
                to_entry, to_exit = entry * 0, entry * 0
                # Several loops, as one that writes all these arrays would not vectorise.
                for i in range(size):
                    here[i] = to_state[b, group, n, i] + to_y[b, t, group, i] * exit_
                for i in range(size):
                    to_exit += to_y[b, t, group, i] * np.conj(before[k + 1, n, i])
                    to_entry += added[i] * here[i]
                for i in range(size):
                    to_bias[b, group, n, i] += added[i] * here[i]
                for i in range(size):
                    to_added[i] += (here[i] * np.conj(entry + bias[group, n, i])).real
                for i in range(size):
                    here[i] *= np.conj(decay[b, k, group, n, i])
                    to_state[b, group, n, i] = here[i]
                for i in range(size):
                    here[i] *= np.conj(before[k, n, i])
                    to_dt[i] += (here[i] * np.conj(poles[group, n, i])).real
                for i in range(size):
                    to_poles[b, group, n, i] += step[b, t, group, i] * here[i]
                to_into[b, t, group, n] = to_entry
                to_out[b, t, group, n] = to_exit
            for i in range(size):
                to_x[b, t, group, i] = step[b, t, group, i] * to_added[i]
                to_step[b, t, group, i] = to_dt[i] + x[b, t, group, i] * to_added[i]
