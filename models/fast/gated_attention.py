"""Attention with gates by compiled loops on a CPU, and by recurrences of all states on a GPU.

Each call of a loop is for some groups of sequences, so that calls may run side by side. The heads
of a group are last in memory, because a state has few rows and columns. Inner loops go over these
heads and index by nothing else, as they would not vectorise otherwise.

No states are saved: the backward pass runs them again, first for the states between tiles of
positions, and then for each tile.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from lra.models.fast.compiled import Array, compiled, run_compiled
from lra.models.fast.recurrence import is_by_doubling, scan, scan_both_ways

LANES = 128
"""Largest number of heads that a loop goes over, those of several sequences."""
TILE = 32
"""Positions whose states are in memory at once."""


def gated_attention(
    query: Tensor, key: Tensor, value: Tensor, kept: Tensor, *, causal: bool
) -> Tensor:
    """See `lra.models.ops.recurrences.gated_attention`."""
    if query.numel() == 0:
        return torch.zeros_like(query)
    if is_by_doubling(query):
        return gated_attention_by_scan(query, key, value, kept, causal=causal)
    batch, _, heads, _ = query.shape
    together = max([n for n in range(2, LANES // heads + 1) if batch % n == 0], default=1)
    inputs = (
        part.unflatten(0, (-1, together)).permute(0, 2, 4, 1, 3).flatten(3)
        for part in (query, key, value, kept)
    )
    result: Any = _Compiled.apply(causal, *inputs)
    return result.unflatten(3, (together, heads)).permute(0, 3, 1, 4, 2).flatten(0, 1)


def gated_attention_by_scan(
    query: Tensor, key: Tensor, value: Tensor, kept: Tensor, *, causal: bool
) -> Tensor:
    """Compute `gated_attention`; the columns of all states are one batch of a recurrence."""
    entering = key * value.movedim(-1, 0)[..., None]  # (size, batch, length, heads, size)
    decays, added = (part.flatten(3).flatten(0, 1) for part in (kept.expand_as(entering), entering))
    if causal:
        states = scan(decays, added)
    else:
        ahead, back = scan_both_ways(decays.expand(2, *decays.shape), added)
        states = ahead + back
    return (query * states.view_as(entering)).sum(dim=-1).movedim(0, -1)


class _Compiled(Function):
    """Of four (groups, length, size, heads), see `run_heads`."""

    @staticmethod
    def forward(ctx: Any, causal: bool, *inputs: Tensor) -> Tensor:
        inputs = tuple(part.detach().contiguous() for part in inputs)
        ctx.save_for_backward(*inputs)
        ctx.directions = (0,) if causal else (0, 1)
        y = torch.zeros_like(inputs[0])
        for reverse in ctx.directions:
            run_compiled(run_heads, len(y), reverse, inputs, y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_y: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        inputs = *ctx.saved_tensors, to_y.contiguous()
        to_inputs = tuple(torch.zeros_like(part) for part in ctx.saved_tensors)
        for reverse in ctx.directions:
            run_compiled(run_heads_back, len(to_y), reverse, inputs, to_inputs)
        return None, *to_inputs


@compiled
def run_heads(
    groups: tuple[int, int], reverse: int, inputs: tuple[Array, ...], y: Array
) -> None:  # pragma: no cover (compiled)
    """Add the results of one direction.

    Args:
        groups: the first one, and the one behind the last.
        reverse: 1 if it runs from the last position to the first.
        inputs: queries, keys, values and what is kept, (groups, length, size, heads).
        y: of this shape, added to.
    """
    query, key, value, kept = inputs
    length, size, heads = y.shape[1:]
    for group in range(groups[0], groups[1]):
        state = np.zeros((size, size, heads), y.dtype)
        for k in range(length):
            t = length - 1 - k if reverse else k
            for row in range(size):
                for column in range(size):
                    for i in range(heads):
                        entering = key[group, t, row, i] * value[group, t, column, i]
                        here = kept[group, t, row, i] * state[row, column, i] + entering
                        state[row, column, i] = here
                        y[group, t, column, i] += query[group, t, row, i] * here


@compiled
def _remember(
    states: Array, between: Array, index: tuple[int, int, int], inputs: tuple[Array, ...]
) -> int:  # pragma: no cover (compiled)
    """Write the states of a tile, and return its number of positions.

    Args:
        states: (TILE + 1, size, size, heads), written: before the tile, and behind each position.
        between: (tiles + 1, size, size, heads), those before each tile; the next ones are written.
        index: the group; the tile, in the order of the recurrence; and whether it runs from the
            last position to the first.
        inputs: see `run_heads_back`.
    """
    _, key, value, kept, _ = inputs
    group, tile, reverse = index
    length, size, heads = key.shape[1:]
    count = min(TILE, length - tile * TILE)
    for row in range(size):
        for column in range(size):
            for i in range(heads):
                states[0, row, column, i] = between[tile, row, column, i]
            for k in range(count):
                t = _position(tile, k, length, reverse)
                for i in range(heads):
                    entering = key[group, t, row, i] * value[group, t, column, i]
                    before = states[k, row, column, i]
                    states[k + 1, row, column, i] = kept[group, t, row, i] * before + entering
            for i in range(heads):
                between[tile + 1, row, column, i] = states[count, row, column, i]
    return count


@compiled
def _position(tile: int, k: int, length: int, reverse: int) -> int:  # pragma: no cover (compiled)
    """Return the position that is number k of a tile."""
    number = tile * TILE + k
    return length - 1 - number if reverse else number


@compiled
def run_heads_back(
    groups: tuple[int, int], reverse: int, inputs: tuple[Array, ...], to_inputs: tuple[Array, ...]
) -> None:  # pragma: no cover (compiled)
    """Add the gradients of one direction, see `run_heads`.

    Args:
        inputs: queries, keys, values, what is kept, and the gradients of the results.
        to_inputs: gradients of the first four, added to.
    """
    query, key, value, kept, to_y = inputs
    to_query, to_key, to_value, to_kept = to_inputs
    length, size, heads = to_y.shape[1:]
    tiles = -(-length // TILE)
    between = np.zeros((tiles + 1, size, size, heads), to_y.dtype)  # the first ones stay 0
    states = np.empty((TILE + 1, size, size, heads), to_y.dtype)
    for group in range(groups[0], groups[1]):
        for tile in range(tiles):
            _remember(states, between, (group, tile, reverse), inputs)
        to_state = np.zeros((size, size, heads), to_y.dtype)
        for tile in range(tiles - 1, -1, -1):
            for k in range(_remember(states, between, (group, tile, reverse), inputs) - 1, -1, -1):
                t = _position(tile, k, length, reverse)
                for row in range(size):
                    for column in range(size):
                        # Several loops, as one that writes all these arrays would not vectorise.
                        for i in range(heads):
                            asked = query[group, t, row, i]
                            to_state[row, column, i] += asked * to_y[group, t, column, i]
                        for i in range(heads):
                            here = states[k + 1, row, column, i]
                            to_query[group, t, row, i] += here * to_y[group, t, column, i]
                        for i in range(heads):
                            to_here = to_state[row, column, i]
                            to_key[group, t, row, i] += to_here * value[group, t, column, i]
                        for i in range(heads):
                            to_here = to_state[row, column, i]
                            to_value[group, t, column, i] += to_here * key[group, t, row, i]
                        for i in range(heads):
                            before = states[k, row, column, i]
                            to_kept[group, t, row, i] += to_state[row, column, i] * before
                        for i in range(heads):
                            to_state[row, column, i] *= kept[group, t, row, i]
