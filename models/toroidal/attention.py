"""Softmax attention between all places and platters of a torus."""

import functools
from collections.abc import Iterator, Sequence
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


def toroidal_attention_reference(
    heads: Sequence[Tensor], reach: Reach, weight: Tensor | None, mask: Tensor | None
) -> Tensor:
    """Compute `toroidal_attention` with a table of all pairs of places and platters."""
    query, key, value = heads
    position = torch.arange(query.shape[2], device=query.device)
    bias = reach.pairs(position, position, mask).bias(weight, query.dtype)
    return _attend(query, key, value, attn_mask=bias)


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
    query, key, value = heads
    has_table = weight is not None or reach.window is not None or mask is not None
    if not has_table and (not reach.causal or query.shape[3] == 1):
        # All to all or, on one platter, to those before.
        return _attend(query, key, value, is_causal=reach.causal)
    # Gradients of weights need sums over many pairs: in single precision at least.
    working = torch.promote_types(torch.float32, query.dtype)
    parts = (x.to(working).flatten(2, 3) for x in heads)
    with torch.autocast(query.device.type, enabled=False):
        mixed: Any = _InBlocks.apply(*parts, weight, reach, mask)
    return mixed.unflatten(2, query.shape[2:4]).to(query.dtype)


class _InBlocks(Function):
    """Attention in blocks of queries, (batch, heads, length * platters, channels) throughout."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        query, key, value, weight, reach, mask = inputs
        mixed = torch.empty_like(query)
        for queries, keys, pairs in _cut(query, reach, mask):
            mixed[:, :, queries] = functional.scaled_dot_product_attention(
                query[:, :, queries],
                key[:, :, keys],
                value[:, :, keys],
                attn_mask=pairs.bias(weight, query.dtype),
            )
        ctx.save_for_backward(query, key, value, weight, mask, mixed)
        ctx.reach = reach
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_mixed: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        query, key, value, weight, mask, mixed = ctx.saved_tensors
        scale = query.shape[-1] ** -0.5
        to_query = torch.empty_like(query)
        to_key, to_value = torch.zeros_like(key), torch.zeros_like(value)
        to_weight = None if weight is None else torch.zeros_like(weight, dtype=query.dtype)
        along = (to_mixed * mixed).sum(dim=-1, keepdim=True)
        for queries, keys, pairs in _cut(query, ctx.reach, mask):
            some, above = query[:, :, queries] * scale, to_mixed[:, :, queries]
            near = key[:, :, keys]
            scores = some @ near.mT
            bias = pairs.bias(weight, query.dtype)
            weights = (scores if bias is None else scores.add_(bias)).softmax(dim=-1)
            to_value[:, :, keys] += weights.mT @ above
            to_scores = (above @ value[:, :, keys].mT).sub_(along[:, :, queries]).mul_(weights)
            if to_weight is not None:
                distance = pairs.distance.to(query.dtype).flatten()
                to_weight -= to_scores.sum(dim=0).flatten(1) @ distance
            to_query[:, :, queries] = (to_scores @ near).mul_(scale)
            to_key[:, :, keys] += to_scores.mT @ some
        if weight is not None and to_weight is not None:
            to_weight = to_weight.to(weight.dtype)
        return to_query, to_key, to_value, to_weight, None, None


def _cut(
    query: Tensor, reach: Reach, mask: Tensor | None
) -> Iterator[tuple[slice, slice | Tensor, Pairs]]:
    """Cut queries (batch, heads, length * platters, channels) into blocks with their keys.

    Queries and keys are rows and columns of the table of all pairs, without those twice.
    """
    length, most = query.shape[2] // reach.torus.num_platters, BLOCK
    if query.device.type != "cpu":
        most = max(BLOCK, SCORES // max(1, query.shape[:3].numel()))
    for here, near, queries, keys in _list_blocks(reach, length, most, query.device):
        yield queries, keys, reach.pairs(here, near, None if mask is None else mask[:, near])


Block = tuple[Tensor, Tensor, slice, slice | Tensor]
"""The positions of queries and of keys, and their places if each platter of a position has one."""


@functools.lru_cache(maxsize=16)
def _list_blocks(reach: Reach, length: int, most: int, device: torch.device) -> list[Block]:
    """See `Reach.blocks`; tensors are on a device."""
    blocks: list[Block] = []
    platter = torch.arange(reach.torus.num_platters)
    for positions in reach.blocks(length, most):
        ends = [(int(some[0]), int(some[-1]) + 1) for some in positions]
        rows, columns = (slice(a * len(platter), b * len(platter)) for a, b in ends)
        here, near = positions
        if ends[1][1] - ends[1][0] > len(near):  # around the end of a circle
            columns = (near[:, None] * len(platter) + platter).flatten().to(device)
        blocks.append((here.to(device), near.to(device), rows, columns))
    return blocks
