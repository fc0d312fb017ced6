"""The gated delta rule: a state that erases the old value of a key before it stores a new one.

Yang, Kautz and Hatamizadeh, "Gated Delta Networks", ICLR 2025 (arXiv:2412.06464), section 3; in
chunks by a triangular solve, as there (section 3.3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional

from models.ops.decaying_attention import segment_sums
from models.ops.deterministic import cumulative_sum
from models.ops.matrix_recurrence import matrix_recurrence
from models.ops.public_kernels import DELTA_RULE, on_gpu_by
from models.ops.reference import fast_form_of
from models.ops.workers import num_workers, on_workers

TILE = 64
"""Positions of a tile in the compiled loops, of which all states are in memory at once."""

_COMPILED: set[tuple[object, torch.dtype]] = set()
"""Loops that have run, with the types of their numbers."""


def delta_rule_reference(
    query: Tensor, key: Tensor, value: Tensor, rate: Tensor, log_decay: Tensor, *, chunk: int = 64
) -> Tensor:
    """Compute `delta_rule` one position at a time."""
    state = torch.zeros_like(key[..., 0, :, None] * value[..., 0, None, :])
    results = []
    for k in range(key.shape[-2]):
        state = log_decay[..., k, None, None].exp() * state
        held = (key[..., k, None, :] @ state)[..., 0, :]
        change = rate[..., k, None] * (value[..., k, :] - held)
        state = state + key[..., k, :, None] * change[..., None, :]
        results.append((query[..., k, None, :] @ state)[..., 0, :])
    return torch.stack(results, dim=-2)


@fast_form_of(delta_rule_reference)
@on_gpu_by(DELTA_RULE)
def delta_rule(
    query: Tensor, key: Tensor, value: Tensor, rate: Tensor, log_decay: Tensor, *, chunk: int = 64
) -> Tensor:
    """Compute S[i]^T q[i], S[i] = a[i] S[i - 1] + b[i] k[i] (v[i] - a[i] S[i - 1]^T k[i])^T.

    On a CPU, compiled loops process position by position, and only the states between tiles of
    positions are saved for the backward pass. On a GPU, the changes of the state within a chunk
    solve a triangular system, and the states of all chunks are those of a recurrence of matrices.

    Args:
        query: (batch, heads, length, channels).
        key: of the same shape, of length 1 at most. At padding, which may come first or last, it
            must be 0.
        value: (batch, heads, length, value channels).
        rate: (batch, heads, length), b, in [0, 1].
        log_decay: (batch, heads, length), the logarithm of a, at most 0.
        chunk: positions of a chunk, on a GPU.
    Returns: (batch, heads, length, value channels).
    """
    if query.numel() == 0 or value.numel() == 0:
        return torch.zeros_like(value)
    if query.device.type != "cpu":
        return delta_rule_by_chunks(query, key, value, rate, log_decay, chunk=chunk)
    given = query, key, value, rate, log_decay.exp()
    result = _Compiled.apply(*(part.flatten(0, 1) for part in given))
    assert isinstance(result, Tensor)
    return result.unflatten(0, query.shape[:2])


def delta_rule_by_chunks(
    query: Tensor, key: Tensor, value: Tensor, rate: Tensor, log_decay: Tensor, *, chunk: int = 64
) -> Tensor:
    """Compute `delta_rule` by matrix products of all chunks at the same time, on any device."""
    length = query.shape[-2]
    chunk = min(chunk, length)
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


class _Compiled(Function):
    """The rule for pairs of a sequence and a head: (pairs, length, ...), with decays themselves."""

    @staticmethod
    def forward(ctx: Any, *given: Tensor) -> Tensor:
        from models.ops.compiled_delta_rule import run_pairs

        given = tuple(part.detach().contiguous() for part in given)
        key, value = given[1:3]
        tiles = -(-key.shape[1] // TILE)
        states = value.new_empty(len(key), tiles, key.shape[2], value.shape[2])
        y = torch.empty_like(value)
        _side_by_side(run_pairs, given, states, y)
        ctx.save_for_backward(*given, states)
        return y

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, to_y: Tensor
    ) -> tuple[Tensor, ...]:
        from models.ops.compiled_delta_rule import run_pairs_back

        *given, states = ctx.saved_tensors
        to_given = [torch.empty_like(part) for part in given]
        _side_by_side(run_pairs_back, given, states, to_y.contiguous(), to_given)
        return tuple(to_given)


def _side_by_side(
    kernel: Callable[..., None], given: Sequence[Tensor], *others: Tensor | Sequence[Tensor]
) -> None:
    """Run a kernel for all pairs, some on each thread."""
    arrays = [_as_arrays(part) for part in (given, *others)]
    count, types = len(given[0]), (kernel, given[0].dtype)
    shares = min(num_workers(given[0].device), count) if types in _COMPILED else 1
    # The first call compiles: in this thread, as interruptions reach the main one alone.
    ends = [count * share // shares for share in range(shares + 1)]
    on_workers(lambda pairs: kernel(pairs, TILE, *arrays), list(pairwise(ends)))
    _COMPILED.add(types)


def _as_arrays(given: Tensor | Sequence[Tensor]) -> Any:
    return given.numpy() if isinstance(given, Tensor) else tuple(part.numpy() for part in given)
