"""Softmax attention between all places and platters of a torus."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional

from models.ops.device_copy import copy_together
from models.ops.reference import fast_form_of
from models.ops.torus_reach import Pairs, Reach

BLOCK = 256
"""Number of queries in a block; each platter of a place counts as one."""


def toroidal_attention_reference(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    reach: Reach,
    *,
    weight: Tensor | None = None,
    mask: Tensor | None = None,
    periods: Tensor | None = None,
) -> Tensor:
    """Compute `toroidal_attention` with a table of all pairs of places and platters."""
    if query.shape[2] == 0:
        return torch.zeros_like(query)
    position = torch.arange(query.shape[2], device=query.device)
    bias = reach.pairs(position, position, mask, periods).bias(weight, query.dtype)
    mixed = functional.scaled_dot_product_attention(
        query.flatten(2, 3), key.flatten(2, 3), value.flatten(2, 3), attn_mask=bias
    )
    return mixed.unflatten(2, query.shape[2:4])


@fast_form_of(toroidal_attention_reference)
def toroidal_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    reach: Reach,
    *,
    weight: Tensor | None = None,
    mask: Tensor | None = None,
    periods: Tensor | None = None,
) -> Tensor:
    """Attend from every place and platter to those within reach.

    Queries are processed in blocks, each with the keys within its reach. The backward pass computes
    the weights again. Memory is therefore linear in the length, and so is time with a window.

    Args:
        query: (batch, heads, length, platters, channels), its positions encoded.
        key: of the same shape.
        value: of the same shape.
        reach: which places attend to which.
        weight: (heads,) of the distance in scores. None: distances cost nothing.
        mask: (batch, length) bool, True at real positions. None: all are real.
        periods: (batch, 1), of the one axis, where they are not the torus's own; not with a
            window.
    Returns: (batch, heads, length, platters, channels).
    """
    is_plain = weight is None and reach.window is None
    if is_plain and (not reach.causal or (query.shape[3] == 1 and mask is None)):
        return _attend_to_all(query, key, value, mask, is_causal=reach.causal)
    # Gradients of weights need sums over many pairs: in single precision at least.
    working = torch.promote_types(torch.float32, query.dtype)
    parts = (x.to(working).flatten(2, 3) for x in (query, key, value))
    with torch.autocast(query.device.type, enabled=False):
        mixed: Any = _InBlocks.apply(*parts, weight, reach, mask, periods)
    return mixed.unflatten(2, query.shape[2:4]).to(query.dtype)


class _InBlocks(Function):
    """Attention in blocks of queries, (batch, heads, length * platters, channels) throughout."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        query, key, value, weight, reach, mask, periods = inputs
        mixed = torch.empty_like(query)
        for block in _blocks(query, reach, mask, periods):
            mixed[:, :, block.queries] = functional.scaled_dot_product_attention(
                query[:, :, block.queries],
                block.of(key),
                block.of(value),
                attn_mask=block.pairs.bias(weight, query.dtype),
            )
        ctx.save_for_backward(query, key, value, weight, mask, periods, mixed)
        ctx.reach = reach
        return mixed

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, to_mixed: Tensor
    ) -> tuple[Tensor | None, ...]:
        query, key, value, weight, mask, periods, mixed = ctx.saved_tensors
        scale = query.shape[-1] ** -0.5
        to_query, to_key, to_value = (torch.zeros_like(x) for x in (query, key, value))
        to_weight = None if weight is None else torch.zeros_like(weight, dtype=query.dtype)
        along = (to_mixed * mixed).sum(dim=-1, keepdim=True)
        for block in _blocks(query, ctx.reach, mask, periods):
            some, above = query[:, :, block.queries] * scale, to_mixed[:, :, block.queries]
            keys = block.of(key)
            scores = some @ keys.mT
            bias = block.pairs.bias(weight, query.dtype)
            weights = (scores if bias is None else scores.add_(bias)).softmax(dim=-1)
            block.add(to_value, weights.mT @ above)
            to_scores = (above @ block.of(value).mT).sub_(along[:, :, block.queries]).mul_(weights)
            if to_weight is not None:
                to_weight -= block.pairs.summed(to_scores)
            to_query[:, :, block.queries] = (to_scores @ keys).mul_(scale)
            block.add(to_key, to_scores.mT @ some)
        if weight is not None and to_weight is not None:
            to_weight = to_weight.to(weight.dtype)
        return to_query, to_key, to_value, to_weight, None, None, None


@dataclass(frozen=True)
class _QueryBlock:
    """Some queries, and the keys within their reach."""

    queries: slice
    """Rows of the table: places, platters counted."""
    keys: slice | Tensor
    """Columns of the table, as a slice or, if they are not contiguous, as int64 indices."""
    pairs: Pairs

    def of(self, x: Tensor) -> Tensor:
        """Select the keys from (batch, heads, all keys, channels)."""
        return x[:, :, self.keys]

    def add(self, total: Tensor, part: Tensor) -> None:
        """Add to the keys of (batch, heads, all keys, channels), in place."""
        total[:, :, self.keys] += part


def _blocks(
    query: Tensor, reach: Reach, mask: Tensor | None, periods: Tensor | None
) -> Iterator[_QueryBlock]:
    """Cut queries (batch, heads, length * platters, channels) into blocks."""
    platters = reach.torus.num_platters
    for here, near in reach.blocks(query.shape[2] // platters, BLOCK):
        first, last = int(near[0]), int(near[-1]) + 1
        queries = slice(int(here[0]) * platters, (int(here[-1]) + 1) * platters)
        copied = copy_together([here, near], query.device)
        keys: slice | Tensor = slice(first * platters, last * platters)
        if last - first > len(near):
            platter = torch.arange(platters, device=query.device)
            keys = (copied[1][:, None] * platters + platter).flatten()
        pairs = reach.pairs(copied[0], copied[1], mask, periods)
        yield _QueryBlock(queries, keys, pairs)


def _attend_to_all(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, is_causal: bool
) -> Tensor:
    """Attend to all real positions, or on one platter to those before, with no table of pairs."""
    allowed = None
    if mask is not None:
        is_alone = ~mask.any(dim=1, keepdim=True)  # of a row without any, which is never read
        real = (mask | is_alone).repeat_interleave(query.shape[3], dim=1)
        allowed = real[:, None, None, :]
    mixed = functional.scaled_dot_product_attention(
        query.flatten(2, 3), key.flatten(2, 3), value.flatten(2, 3),
        attn_mask=allowed, is_causal=is_causal,
    )  # fmt: skip
    return mixed.unflatten(2, query.shape[2:4])
