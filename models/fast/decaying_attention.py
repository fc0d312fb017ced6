"""Linear attention with decays, in chunks.

The matrix form of state-space duality (Dao and Gu, ICML 2024, section 6). Within a chunk all pairs
of positions get a score, and states are carried from chunk to chunk, so that the cost is O(length
(chunk + channels)) for each pair of a key channel and a value channel.

The backward pass computes all of it again, so that only the inputs are saved. Sums of decays are
differences of cumulative sums in double precision: in single precision the difference of two large
sums would be off.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional

from lra.models.ops.deterministic import cumulative_sum


def decaying_attention(query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor) -> Tensor:
    """See `lra.models.ops.recurrences.decaying_attention`."""
    length = query.shape[-2]
    if query.numel() == 0 or value.numel() == 0:
        return torch.zeros_like(value)
    chunk = chunk_of(length, query.shape[-1])
    while chunk >= 2 * length:
        chunk //= 2
    excess = -length % chunk
    if excess:
        query, key, value = (functional.pad(x, (0, 0, 0, excess)) for x in (query, key, value))
        log_decay = functional.pad(log_decay, (0, excess))
    parts = (x.unflatten(2, (-1, chunk)) for x in (query, key, value, log_decay))
    mixed = attend_in_chunks(*parts)
    return mixed.flatten(-3, -2)[..., :length, :]


def chunk_of(length: int, channels: int) -> int:
    """Return a chunk, whose scores and state take about as long, for few enough of them."""
    return 2 ** round(math.log2(max(32, min(channels, 64), length**0.5 / 2)))


def segment_sums(x: Tensor) -> Tensor:
    """Compute x[j + 1] + ... + x[i], -inf where i < j, without subtracting cumulative sums."""
    count = x.shape[-1]
    rows = x[..., None].expand(*x.shape, count)
    is_later = torch.ones(count, count, dtype=torch.bool, device=x.device)
    sums = cumulative_sum(rows.masked_fill(~is_later.tril(-1), 0), -2)
    return sums.masked_fill(~is_later.tril(), -torch.inf)


def attend_in_chunks(query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor) -> Tensor:
    """Compute `decaying_attention` in chunks.

    Args:
        query, key: (batch, groups, chunks, chunk, channels).
        value: (batch, heads, chunks, chunk, value channels).
        log_decay: (batch, heads, chunks, chunk).
    Returns: of the shape of value.
    """
    inputs = query, key, value, log_decay
    working = functools.reduce(torch.promote_types, (x.dtype for x in inputs), torch.float32)
    # Autocast would not be there in the backward pass, and products of two types fail.
    with torch.autocast(value.device.type, enabled=False):
        query, key, value, log_decay = (x.to(working) for x in inputs)
        parts = (x.unflatten(1, (query.shape[1], -1)) for x in (value, log_decay))
        mixed: Any = _Attend.apply(query, key, *parts)
    return mixed.flatten(1, 2).to(inputs[2].dtype)


class _Attend(Function):
    """Values are (batch, groups, heads, chunks, chunk, channels), decays without channels."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor) -> Tensor:
        ctx.save_for_backward(query, key, value, log_decay)
        decays = _Decays.of(log_decay)
        mixed = (decays.within * (query @ key.mT)[:, :, None]) @ value
        if value.shape[3] > 1:
            _, _, before = _states(key, value, decays)
            mixed.addcmul_(_split(query @ before, value), decays.arriving)
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_mixed: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        query, key, value, log_decay = ctx.saved_tensors
        decays = _Decays.of(log_decay)
        weights = decays.within * (query @ key.mT)[:, :, None]
        to_value = weights.mT @ to_mixed
        to_weights = to_mixed @ value.mT
        to_scores = (to_weights * decays.within).sum(dim=2)
        to_query, to_key = to_scores @ key, to_scores.mT @ query
        # Of a position with itself nothing decays.
        passing = to_weights.mul_(weights).tril_(-1)
        to_decay = _passing_sums(passing)
        if value.shape[3] > 1:
            leaving, added, before = _states(key, value, decays)
            arriving = to_mixed * decays.arriving
            reached = arriving * _split(query @ before, value)
            to_decay += cumulative_sum(reached.sum(dim=-1).flip(-1), -1).flip(-1)
            arriving = _joined(arriving)
            to_query += arriving @ before.mT
            to_before = _rows(query.mT @ arriving, value)
            to_added = _joined_rows(decays.carry.mT @ to_before, key, value)
            to_key += _joined(leaving) @ to_added.mT
            to_leaving = _split(key @ to_added, value)
            to_value.addcmul_(to_leaving, decays.leaving)
            left = (to_leaving * leaving).sum(dim=-1)
            to_decay[..., 1:] += cumulative_sum(left[..., :-1], -1)
            carried = (to_before @ _rows(added, value).mT) * decays.carry
            # From the end of an earlier chunk to the start of a later one.
            to_decay[..., :-1, :] += _passing_sums(carried[..., 1:, :-1])[..., None]
        return to_query, to_key, to_value, to_decay


@dataclass(frozen=True)
class _Decays:
    sums: Tensor
    """(batch, groups, heads, chunks, chunk), from the start of each chunk, in double precision."""
    within: Tensor
    """(..., chunk, chunk), decays to a position of a chunk from one before it."""
    arriving: Tensor
    """(..., chunk, 1), from the start of the chunk to each position."""
    leaving: Tensor
    """(..., chunk, 1), from each position to the end of the chunk."""
    carry: Tensor
    """(batch, groups, heads, chunks, chunks), from the end of a chunk to the start of another."""

    @classmethod
    def of(cls, log_decay: Tensor) -> _Decays:
        dtype = log_decay.dtype
        sums = cumulative_sum(log_decay, -1, torch.promote_types(dtype, torch.float64))
        totals = sums[..., -1:]
        ends = cumulative_sum(totals[..., 0], -1)
        return cls(
            sums=sums,
            within=_fades(sums, sums, dtype).tril_(),
            arriving=sums.exp().to(dtype)[..., None],
            leaving=(totals - sums).exp().to(dtype)[..., None],
            carry=_fades(ends - totals[..., 0], ends, dtype).tril_(-1),
        )


def _fades(to: Tensor, start: Tensor, dtype: torch.dtype) -> Tensor:
    """Compute exp(to[i] - start[j]) in a type: (..., i, j)."""
    differences = torch.empty(*to.shape, start.shape[-1], dtype=dtype, device=to.device)
    torch.sub(to[..., :, None], start[..., None, :], out=differences)
    return differences.exp_()


def _states(key: Tensor, value: Tensor, decays: _Decays) -> tuple[Tensor, Tensor, Tensor]:
    """Return the values that leave chunks, what chunks add to states, and the states before them.

    States are (batch, groups, chunks, channels, heads value channels).
    """
    leaving = value * decays.leaving
    added = key.mT @ _joined(leaving)
    before = _joined_rows(decays.carry @ _rows(added, value), key, value)
    return leaving, added, before


def _joined(x: Tensor) -> Tensor:
    """Put heads side by side: (batch, groups, heads, ..., channels) -> (..., heads channels)."""
    return x.movedim(2, -2).flatten(-2)


def _split(x: Tensor, value: Tensor) -> Tensor:
    """Undo `_joined`."""
    return x.unflatten(-1, (-1, value.shape[-1])).movedim(-2, 2)


def _rows(states: Tensor, value: Tensor) -> Tensor:
    """Make a row of each chunk's state: (batch, groups, heads, chunks, channels values)."""
    return _split(states, value).flatten(-2)


def _joined_rows(rows: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Undo `_rows`."""
    return _joined(rows.unflatten(-1, (key.shape[-1], value.shape[-1])))


def _passing_sums(x: Tensor) -> Tensor:
    """Add up x[i, j] of all j < k <= i for each k: (..., i, j) -> (..., k).

    These are the pairs of positions between which k decays. Nothing is subtracted, so the sums are
    accurate however small this decay makes them beside the other pairs.
    """
    return functional.pad(cumulative_sum(x, -1).tril_(-1)[..., :-1].sum(dim=-2), (1, 0))
