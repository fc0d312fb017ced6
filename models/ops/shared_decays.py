"""Linear attention in chunks, with one decay for all key channels of a head.

Heads of a group share queries and keys. All chunks are computed at once, and states go from chunk
to chunk by one product with a triangular matrix. The backward pass computes all of it again, so
that only the inputs are saved.

Sums of decays are differences of cumulative sums in double precision: in single precision the
difference of two large sums would be off.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from models.ops.deterministic import cumulative_sum


def attend_with_shared_decays(
    query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor
) -> Tensor:
    """Compute `decaying_attention` in chunks.

    Args:
        query: (batch, groups, chunks, chunk, channels).
        key: of the same shape.
        value: (batch, heads, chunks, chunk, value channels).
        log_decay: (batch, heads, chunks, chunk).
    Returns: of the shape of value.
    """
    given = query, key, value, log_decay
    working = functools.reduce(torch.promote_types, (x.dtype for x in given), torch.float32)
    # Autocast would not be there in the backward pass, and products of two types fail.
    with torch.autocast(value.device.type, enabled=False):
        query, key, value, log_decay = (x.to(working) for x in given)
        parts = (x.unflatten(1, (query.shape[1], -1)) for x in (value, log_decay))
        mixed = _Attend.apply(query, key, *parts)
    assert isinstance(mixed, Tensor)
    return mixed.flatten(1, 2).to(given[2].dtype)


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
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, to_mixed: Tensor
    ) -> tuple[Tensor, ...]:
        query, key, value, log_decay = ctx.saved_tensors
        decays = _Decays.of(log_decay)
        weights = decays.within * (query @ key.mT)[:, :, None]
        to_value = weights.mH @ to_mixed
        to_weights = to_mixed @ value.mH
        to_scores = (to_weights * decays.within.conj()).sum(dim=2)
        to_query, to_key = to_scores @ key.conj(), to_scores.mT @ query.conj()
        # Of a position with itself nothing decays.
        passing = to_weights.mul_(weights.conj()).tril_(-1)
        double = decays.sums.dtype
        to_sums = (passing.sum(dim=-1) - passing.sum(dim=-2)).to(double)
        if value.shape[3] > 1:
            leaving, added, before = _states(key, value, decays)
            arriving = to_mixed * decays.arriving.conj()
            reached = arriving * _split(query @ before, value).conj()
            to_sums += reached.sum(dim=-1)
            arriving = _joined(arriving)
            to_query += arriving @ before.mH
            to_before = _rows(query.mH @ arriving, value)
            to_added = _joined_rows(decays.carry.mH @ to_before, key, value)
            to_key += _joined(leaving).conj() @ to_added.mT
            to_leaving = _split(key.conj() @ to_added, value)
            to_value.addcmul_(to_leaving, decays.leaving.conj())
            left = (to_leaving * leaving.conj()).sum(dim=-1).to(double)
            carried = ((to_before @ _rows(added, value).mH) * decays.carry.conj()).to(double)
            to_ends = carried.sum(dim=-1) - carried.sum(dim=-2)
            to_totals = _sums_to_the_end(to_ends) - carried.sum(dim=-1) + left.sum(dim=-1)
            to_sums -= left
            to_sums[..., -1] += to_totals
        return to_query, to_key, to_value, _sums_to_the_end(to_sums).to(log_decay.dtype)


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


def _sums_to_the_end(x: Tensor) -> Tensor:
    """Add up each number and all after it, along the last dimension."""
    return cumulative_sum(x.flip(-1), -1).flip(-1)
