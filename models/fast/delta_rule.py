"""The delta rule by compiled loops on a CPU, and by chunks on a GPU.

Each call of a loop is for some of the pairs of a sequence and a head, so that calls may run side by
side. Inner loops go over the value channels, which are last in memory: they vectorise, and a state
stays in the cache. Numbers are of single or double precision. Only the states between tiles of
positions are saved for the backward pass.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional

from lra.models.fast.compiled import Array, compiled, run_compiled
from lra.models.fast.decaying_attention import segment_sums
from lra.models.fast.doubling import matrix_recurrence
from lra.models.ops.deterministic import cumulative_sum

CHUNK = 64
"""Positions of a chunk, on a GPU."""
TILE = 64
"""Positions of a tile in the compiled loops, of which all states are in memory at once."""


def delta_rule(
    query: Tensor, key: Tensor, value: Tensor, rate: Tensor, log_decay: Tensor
) -> Tensor:
    """See `lra.models.ops.recurrences.delta_rule`."""
    if query.numel() == 0 or value.numel() == 0:
        return torch.zeros_like(value)
    if query.device.type != "cpu":
        return delta_rule_by_chunks(query, key, value, rate, log_decay)
    inputs = query, key, value, rate, log_decay.exp()
    result: Any = _Compiled.apply(*(part.flatten(0, 1) for part in inputs))
    return result.unflatten(0, query.shape[:2])


class _Compiled(Function):
    """The rule for pairs of a sequence and a head: (pairs, length, ...), with decays themselves."""

    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> Tensor:
        inputs = tuple(part.detach().contiguous() for part in inputs)
        key, value = inputs[1:3]
        tiles = -(-key.shape[1] // TILE)
        states = value.new_empty(len(key), tiles, key.shape[2], value.shape[2])
        y = torch.empty_like(value)
        run_compiled(run_pairs, len(key), TILE, inputs, states, y)
        ctx.save_for_backward(*inputs, states)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_y: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        *inputs, states = ctx.saved_tensors
        to_inputs = [torch.empty_like(part) for part in inputs]
        saved = *inputs, states, to_y.contiguous()
        run_compiled(run_pairs_back, len(states), TILE, saved, to_inputs)
        return tuple(to_inputs)


def delta_rule_by_chunks(
    query: Tensor, key: Tensor, value: Tensor, rate: Tensor, log_decay: Tensor
) -> Tensor:
    """Compute `delta_rule` by matrix products of all chunks at the same time (section 3.3).

    The changes of the state within a chunk solve a triangular system, and the states of all chunks
    are those of a recurrence of matrices.
    """
    length = query.shape[-2]
    chunk = min(CHUNK, length)
    excess = -length % chunk
    query, key, value = (
        functional.pad(x, (0, 0, 0, excess)).unflatten(-2, (-1, chunk)) for x in (query, key, value)
    )
    rate, log_decay = (
        functional.pad(x, (0, excess)).unflatten(-1, (-1, chunk)) for x in (rate, log_decay)
    )
    fades = segment_sums(log_decay).exp()
    from_start = cumulative_sum(log_decay, -1).exp()[..., None]
    to_end = fades[..., -1, :, None]
    pairs = (torch.cat([query, key], dim=-2) @ key.mT).unflatten(-2, (2, chunk))
    scores, overlaps = (pairs * fades[..., None, :, :]).unbind(dim=-3)
    rate = rate[..., None]
    right = rate * torch.cat([value, key * from_start], dim=-1)
    # Of the matrix only what is below the diagonal is read.
    solved = torch.linalg.solve_triangular(rate * overlaps, right, upper=False, unitriangular=True)
    mixed, held = (scores @ solved).split([value.shape[-1], key.shape[-1]], dim=-1)
    if query.shape[-3] > 1:
        reading = query * from_start - held
        mixed = mixed + reading @ _states_before(key * to_end, solved, from_start[..., -1:, :])
    return mixed.flatten(-3, -2)[..., :length, :]


def _states_before(key: Tensor, solved: Tensor, fade: Tensor) -> Tensor:
    """Compute the states in front of all chunks, by one recurrence over the chunks.

    Args:
        key: (batch, heads, chunks, chunk, channels), decayed to the ends of chunks.
        solved: (batch, heads, chunks, chunk, value channels + channels), the changes of the state
            if it is 0 before the chunk, and what each of its rows subtracts from them.
        fade: (batch, heads, chunks, 1, 1), decays of whole chunks.
    Returns: (batch, heads, chunks, channels, value channels).
    """
    channels = key.shape[-1]
    stored, erased = (key[..., :-1, :, :].mT @ solved[..., :-1, :, :]).split(
        [solved.shape[-1] - channels, channels], dim=-1
    )
    kept = fade[..., :-1, :, :] * torch.eye(channels, dtype=key.dtype, device=key.device) - erased
    states = matrix_recurrence(kept.flatten(0, 1), stored.flatten(0, 1))
    return functional.pad(states.unflatten(0, key.shape[:2]), (0, 0, 0, 0, 1, 0))


@compiled
def _copy(source: Array, target: Array) -> None:  # pragma: no cover (compiled)
    """Copy a state. Numba needs seconds to compile the error message of a slice assignment."""
    for i in range(source.shape[0]):
        for j in range(source.shape[1]):
            target[i, j] = source[i, j]


@compiled
def _store(  # noqa: PLR0917 (compiled functions take positional arguments alone)
    state: Array, key: Array, value: Array, rate: Any, fade: Any, held: Array, change: Array
) -> None:  # pragma: no cover (compiled)
    """Decay the state, (channels, value channels), and replace what it holds for a key."""
    held[:] = 0
    for i in range(len(key)):
        k = key[i]
        for j in range(len(value)):
            kept = fade * state[i, j]
            state[i, j] = kept
            held[j] += k * kept
    for j in range(len(value)):
        change[j] = rate * (value[j] - held[j])
    for i in range(len(key)):
        k = key[i]
        for j in range(len(value)):
            state[i, j] += k * change[j]


@compiled
def run_pairs(
    pairs: tuple[int, int], tile: int, inputs: tuple[Array, ...], states: Array, y: Array
) -> None:  # pragma: no cover (compiled)
    """Run the rule from the first position to the last.

    Args:
        pairs: the first one, and the one behind the last.
        tile: positions of a tile.
        inputs: queries, keys and values, (pairs, length, channels), rates and decays, (pairs,
            length).
        states: (pairs, tiles, channels, value channels), written: the states before the tiles.
        y: (pairs, length, value channels), written.
    """
    query, key, value, rate, fade = inputs
    length, channels = key.shape[1:]
    held, change = np.empty_like(value[0, 0]), np.empty_like(value[0, 0])
    state = np.empty_like(states[0, 0])
    for pair in range(pairs[0], pairs[1]):
        state[:] = 0
        for t in range(length):
            if t % tile == 0:
                _copy(state, states[pair, t // tile])
            _store(state, key[pair, t], value[pair, t], rate[pair, t], fade[pair, t], held, change)
            result = y[pair, t]
            result[:] = 0
            for i in range(channels):
                q = query[pair, t, i]
                for j in range(len(result)):
                    result[j] += q * state[i, j]


@compiled
def _read_back(
    inputs: tuple[Array, Array, Array],
    stored: tuple[Array, Array],
    to_inputs: tuple[Array, Array],
    to_state: Array,
    to_change: Array,
) -> None:  # pragma: no cover (compiled)
    """Add the gradients of a result, and compute those of a query, of a key and of a change."""
    (query, key, to_y), (state, change), (to_query, to_key) = inputs, stored, to_inputs
    to_change[:] = 0
    for i in range(len(key)):
        q, k, to_q, to_k = query[i], key[i], to_query[i], to_key[i]
        # Two loops, as one that does all of this would not vectorise.
        for j in range(len(to_y)):
            g = to_state[i, j] + q * to_y[j]
            to_state[i, j] = g
            to_change[j] += k * g
        for j in range(len(to_y)):
            to_q += state[i, j] * to_y[j]
            to_k += to_state[i, j] * change[j]
        to_query[i], to_key[i] = to_q, to_k


@compiled
def _store_back(  # noqa: PLR0917 (compiled functions take positional arguments alone)
    key: Array, fade: Any, before: Array, to_key: Array, to_state: Array, to_value: Array
) -> Any:  # pragma: no cover (compiled)
    """Carry the gradients of a state to the one before, and return that of the decay."""
    to_fade = fade * 0
    for i in range(len(key)):
        k, to_k = key[i], to_key[i] * 0
        for j in range(len(to_value)):
            g = to_state[i, j] - k * to_value[j]
            to_k += before[i, j] * to_value[j]
            to_fade += g * before[i, j]
            to_state[i, j] = fade * g
        to_key[i] -= fade * to_k
    return to_fade


@compiled
def run_pairs_back(
    pairs: tuple[int, int], tile: int, inputs: tuple[Array, ...], to_inputs: tuple[Array, ...]
) -> None:  # pragma: no cover (compiled)
    """Write the gradients of the inputs of `run_pairs`, from the last tile on.

    Inputs here are the same, the states before the tiles, and the gradients of y.
    """
    query, key, value, rate, fade, states, to_y = inputs
    to_query, to_key, to_value, to_rate, to_fade = to_inputs
    length, channels = key.shape[1:]
    size = value.shape[2]
    after = np.empty((tile + 1, channels, size), value.dtype)
    held, change = np.empty((tile, size), value.dtype), np.empty((tile, size), value.dtype)
    to_state = np.empty((channels, size), value.dtype)
    to_change = np.empty(size, value.dtype)
    zero = value.dtype.type(0)
    for pair in range(pairs[0], pairs[1]):
        to_state[:] = 0
        for number in range(states.shape[1] - 1, -1, -1):
            start, end = number * tile, min(length, (number + 1) * tile)
            _copy(states[pair, number], after[0])
            for t in range(start, end):
                here = t - start
                _copy(after[here], after[here + 1])
                _store(
                    after[here + 1], key[pair, t], value[pair, t], rate[pair, t], fade[pair, t],
                    held[here], change[here],
                )  # fmt: skip
            for t in range(end - 1, start - 1, -1):
                here = t - start
                to_query[pair, t], to_key[pair, t] = 0, 0
                _read_back(
                    (query[pair, t], key[pair, t], to_y[pair, t]), (after[here + 1], change[here]),
                    (to_query[pair, t], to_key[pair, t]), to_state, to_change,
                )  # fmt: skip
                to_b = zero
                for j in range(size):
                    to_b += to_change[j] * (value[pair, t, j] - held[here, j])
                to_rate[pair, t] = to_b
                for j in range(size):
                    to_change[j] *= rate[pair, t]
                    to_value[pair, t, j] = to_change[j]
                to_fade[pair, t] = _store_back(
                    key[pair, t], fade[pair, t], after[here], to_key[pair, t], to_state, to_change
                )
