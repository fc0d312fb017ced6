"""Softmax attention between all places and platters of a torus."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional

from lra.models.ops.reference import fast_form_of
from lra.models.toroidal.torus import Pairs, Reach

BLOCK = 256
"""Number of queries in a block on a CPU; each platter of a place counts as one."""
SCORES = 2**29
"""Number of scores of a block on a GPU, where small blocks cost more launches than time."""
KEPT = 2**24
"""Largest number of pairs whose tables are kept between calls, on a GPU."""


def toroidal_attention_reference(
    heads: Sequence[Tensor], reach: Reach, weight: Tensor | None, mask: Tensor | None
) -> Tensor:
    """Compute `toroidal_attention` with a table of all pairs of places and platters."""
    query, key, value = heads
    if query.shape[2] == 0:
        return torch.zeros_like(query)
    position = torch.arange(query.shape[2], device=query.device)
    pairs = reach.pairs(position, position)
    if mask is not None:
        row_position = position.repeat_interleave(query.shape[3])
        real = mask.repeat_interleave(query.shape[3], dim=1)
        pairs = pairs.among(real, row_position[:, None] == row_position)
    return _attend(query, key, value, attn_mask=pairs.bias(weight, query.dtype))


def _attend(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
    """Attend between all places and platters, with the options of torch's attention."""
    mixed = functional.scaled_dot_product_attention(
        query.flatten(2, 3), key.flatten(2, 3), value.flatten(2, 3), **options
    )
    return mixed.unflatten(2, query.shape[2:4])


@fast_form_of(toroidal_attention_reference)
def toroidal_attention(
    heads: Sequence[Tensor], reach: Reach, weight: Tensor | None, mask: Tensor | None
) -> Tensor:
    """Attend from every place and platter to those within reach.

    Queries are processed in blocks, each with the keys within its reach. The backward pass computes
    the weights again. Memory is therefore linear in the length, and so is time with a window.

    Args:
        heads: queries, keys and values, (batch, heads, length, platters, channels), with their
            positions encoded.
        reach: which places attend to which.
        weight: (heads,) of the distance in scores. None: distances cost nothing.
        mask: (batch, length) bool, True at real positions. None: all are real.
    Returns: (batch, heads, length, platters, channels).
    """
    (query, key, value), real = heads, None
    if mask is not None:
        real = mask if reach.is_limited else mask | ~mask.any(dim=1, keepdim=True)  # never read
        real = real.repeat_interleave(query.shape[3], dim=1)
    if weight is None and reach.window is None:
        # Attention without a table of pairs: all to all or, on one platter, to those before.
        if not reach.causal:
            allowed = None if real is None else real[:, None, None, :]
            return _attend(query, key, value, attn_mask=allowed)
        if query.shape[3] == 1 and mask is None:
            return _attend(query, key, value, is_causal=True)
    # Gradients of weights need sums over many pairs: in single precision at least.
    working = torch.promote_types(torch.float32, query.dtype)
    parts = (x.to(working).flatten(2, 3) for x in (query, key, value))
    with torch.autocast(query.device.type, enabled=False):
        mixed: Any = _InBlocks.apply(*parts, weight, reach, real)
    return mixed.unflatten(2, query.shape[2:4]).to(query.dtype)


class _InBlocks(Function):
    """Attention in blocks of queries, (batch, heads, length * platters, channels) throughout."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        query, key, value, weight, reach, real = inputs
        mixed = torch.empty_like(query)
        for queries, keys, pairs in _blocks(query, reach, real):
            mixed[:, :, queries] = functional.scaled_dot_product_attention(
                query[:, :, queries],
                key[:, :, keys],
                value[:, :, keys],
                attn_mask=pairs.bias(weight, query.dtype),
            )
        ctx.save_for_backward(query, key, value, weight, real, mixed)
        ctx.reach = reach
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_mixed: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        query, key, value, weight, real, mixed = ctx.saved_tensors
        scale = query.shape[-1] ** -0.5
        to_query = torch.empty_like(query)
        to_key, to_value = torch.zeros_like(key), torch.zeros_like(value)
        to_weight = None if weight is None else torch.zeros_like(weight, dtype=query.dtype)
        along = (to_mixed * mixed).sum(dim=-1, keepdim=True)
        for queries, keys, pairs in _blocks(query, ctx.reach, real):
            some, above = query[:, :, queries] * scale, to_mixed[:, :, queries]
            near = key[:, :, keys]
            scores = some @ near.mT
            bias = pairs.bias(weight, query.dtype)
            weights = (scores if bias is None else scores.add_(bias)).softmax(dim=-1)
            _add(to_value, keys, weights.mT @ above)
            to_scores = (above @ value[:, :, keys].mT).sub_(along[:, :, queries]).mul_(weights)
            if to_weight is not None:
                distance = pairs.distance.to(query.dtype).flatten()
                to_weight -= to_scores.sum(dim=0).flatten(1) @ distance
            to_query[:, :, queries] = (to_scores @ near).mul_(scale)
            _add(to_key, keys, to_scores.mT @ some)
        if weight is not None and to_weight is not None:
            to_weight = to_weight.to(weight.dtype)
        return to_query, to_key, to_value, to_weight, None, None


def _add(total: Tensor, keys: slice | Tensor, part: Tensor) -> None:
    """Add to some keys of (batch, heads, all keys, channels), in place."""
    if isinstance(keys, slice):
        total[:, :, keys].add_(part)
    else:
        total.index_add_(2, keys, part)


def _blocks(
    query: Tensor, reach: Reach, real: Tensor | None
) -> Iterator[tuple[slice, slice | Tensor, Pairs]]:
    """Cut queries (batch, heads, length * platters, channels) into blocks with their keys.

    Real ones are (batch, keys). Queries and keys are rows and columns of the table of all pairs.
    """
    length = query.shape[2] // reach.torus.num_platters
    most = BLOCK
    if _is_gpu(query.device):
        most = reach.most_queries(length, SCORES // query.shape[:2].numel())
    for span in _spans(reach, length, most, query.device):
        pairs = span.kept if span.is_kept else reach.pairs(span.here, span.near)
        if real is not None:
            pairs = pairs.among(real[:, span.keys], span.same if reach.is_limited else None)
        yield span.queries, span.keys, pairs


def _is_gpu(device: torch.device) -> bool:
    return device.type != "cpu"


@dataclass(frozen=True)
class _Span:
    """The positions of a block of queries and of its keys, on the device."""

    reach: Reach
    here: Tensor
    near: Tensor
    queries: slice
    """Rows of the table of all pairs: places, platters counted."""
    keys: slice | Tensor
    """Columns of that table, as a slice or, if they are not contiguous, as int64 indices."""
    is_kept: bool
    """Whether its tables are small, and on a GPU, where building them takes many launches."""

    @functools.cached_property
    def kept(self) -> Pairs:
        """Its tables, kept for the next layer and for the backward pass."""
        with torch.inference_mode(False):  # a training run may use them next
            pairs = self.reach.pairs(self.here, self.near)
        return Pairs(pairs.distance.to(torch.get_default_dtype()), pairs.allowed)

    @property
    def same(self) -> Tensor:
        """Whether a query and a key are of the same place: (queries, keys)."""
        platters = self.reach.torus.num_platters
        here, near = (x.repeat_interleave(platters) for x in (self.here, self.near))
        return here[:, None] == near


@functools.lru_cache(maxsize=16)
def _spans(reach: Reach, length: int, most: int, device: torch.device) -> list[_Span]:
    """Cut queries into blocks of at most so many places and platters."""
    platters = reach.torus.num_platters
    blocks = reach.blocks(length, most)
    total = sum(len(here) * len(near) for here, near in blocks) * platters**2
    is_kept = _is_gpu(device) and total <= KEPT
    spans: list[_Span] = []
    for queries, keys in blocks:
        ends = [int(keys[0]), *_gaps(keys), int(keys[-1]) + 1]
        runs = list(zip(ends[::2], ends[1::2], strict=True))
        # Made on the device, as a copy to it would wait.
        near = torch.cat([torch.arange(*run, device=device) for run in runs])
        columns: slice | Tensor = slice(ends[0] * platters, ends[-1] * platters)
        if len(runs) > 1:
            columns = near[:, None] * platters + torch.arange(platters, device=device)
            columns = columns.flatten()
        first, last = int(queries[0]), int(queries[-1]) + 1
        rows = slice(first * platters, last * platters)
        here = torch.arange(first, last, device=device)
        spans.append(_Span(reach, here, near, rows, columns, is_kept))
    return spans


def _gaps(positions: Tensor) -> list[int]:
    """List where runs of increasing positions stop and the next ones start, alternately."""
    (behind,) = (positions.diff() > 1).nonzero(as_tuple=True)
    return torch.stack([positions[behind] + 1, positions[behind + 1]], dim=1).flatten().tolist()
