"""Attention on a CPU that drops weights, block by block.

torch keeps several tables of all pairs where weights are dropped. Here a block of pairs stays in
the cache, and memory is linear in the length: the backward pass computes a block again, and draws
the same random numbers from a generator of the block's own.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional

from lra.models.fast.dropout import draw_kept, scale_of_kept
from lra.models.fast.workers import num_workers, on_workers

MOST_PAIRS = 2**20
"""Pairs of a block, 4 MiB in single precision."""
FEWEST_ROWS = 16
"""Queries of a block, however many keys there are."""


class Block(NamedTuple):
    """Some queries of all heads of some sequences."""

    number: int
    sequences: slice
    heads: slice
    """Among those of all sequences."""
    rows: slice


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    allowed: Tensor | None = None,
    *,
    dropout: float,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """See `lra.models.ops.attention.attention`."""
    pairs = *query.shape[:3], key.shape[2]
    is_here = query.device.type == "cpu" and not torch.is_autocast_enabled("cpu")
    bias = None
    if dropout and is_here and query.numel():
        bias = _make_bias(query, pairs, allowed, causal=causal)
    if bias is None:
        return functional.scaled_dot_product_attention(
            query, key, value, allowed, dropout, is_causal=causal, scale=scale
        )
    query = query * (query.shape[3] ** -0.5 if scale is None else scale)
    heads = (part.flatten(0, 1) for part in (query, key, value * scale_of_kept(dropout)))
    mixed: Any = _Dropped.apply(dropout, *heads, bias)
    return mixed.unflatten(0, pairs[:2])


def _make_bias(
    query: Tensor, pairs: tuple[int, ...], allowed: Tensor | None, *, causal: bool
) -> Tensor | None:
    """Return what is added to the products of all pairs (batch, heads, queries, keys).

    None: it needs a gradient, or a query may attend to no key.
    """
    if causal:
        allowed = query.new_ones(pairs[2:], dtype=torch.bool).tril()
    if allowed is None:
        bias = query.new_zeros(1)
    elif allowed.dtype == torch.bool:
        bias = torch.zeros_like(allowed, dtype=query.dtype).masked_fill(~allowed, -torch.inf)
    else:
        bias = allowed
    is_other = bias.requires_grad or bias.amax(dim=-1).isneginf().any()
    return None if is_other else bias.expand(pairs)


def _list_blocks(pairs: torch.Size) -> list[list[Block]]:
    """List the blocks of all pairs, those of the same heads together."""
    batch, heads, queries, keys = pairs
    rows = min(queries, max(FEWEST_ROWS, MOST_PAIRS // (heads * keys)))
    sequences = max(1, MOST_PAIRS // (heads * queries * keys)) if rows == queries else 1
    of_sequence = -(-queries // rows)
    return [
        [
            Block(
                start * of_sequence + number,
                slice(start, start + sequences),
                slice(start * heads, (start + sequences) * heads),
                slice(number * rows, (number + 1) * rows),
            )
            for number in range(of_sequence)
        ]
        for start in range(0, batch, sequences)
    ]


def _on_blocks(compute: Callable[[Block], None], pairs: torch.Size) -> None:
    """Compute all blocks, those of the same heads in one worker."""
    blocks = _list_blocks(pairs)
    workers = min(num_workers(torch.device("cpu")), len(blocks))
    ends = [len(blocks) * worker // workers for worker in range(workers + 1)]

    def work(share: tuple[int, int]) -> None:
        for group in blocks[slice(*share)]:
            for block in group:
                compute(block)

    on_workers(work, [*pairwise(ends)])


class _Dropped(Function):
    """Of three (batch * heads, queries or keys, channels), and the bias of `_make_bias`."""

    @staticmethod
    def forward(ctx: Any, dropout: float, *inputs: Tensor) -> Tensor:
        query, key, value, bias = inputs
        ctx.save_for_backward(*inputs)
        ctx.dropout, ctx.seed = dropout, int(torch.randint(2**62, ()))
        y = query.new_empty(*query.shape[:2], value.shape[2])

        def compute(block: Block) -> None:
            weights = _weigh(query, key, bias, block)
            kept = _draw(ctx, block, weights)
            y[block.heads, block.rows] = weights.mul_(kept) @ value[block.heads]

        _on_blocks(compute, bias.shape)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_y: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        query, key, value, bias = ctx.saved_tensors
        to_query, to_key, to_value = (torch.zeros_like(part) for part in (query, key, value))

        def compute(block: Block) -> None:
            heads, here = block.heads, (block.heads, block.rows)
            weights = _weigh(query, key, bias, block)
            kept = _draw(ctx, block, weights)
            to_weights = (to_y[here] @ value[heads].mT).mul_(kept)
            to_scores = torch.ops.aten._softmax_backward_data(
                to_weights, weights, -1, weights.dtype
            )
            to_query[here] = to_scores @ key[heads]
            to_key[heads].baddbmm_(to_scores.mT, query[here])
            to_value[heads].baddbmm_(weights.mul_(kept).mT, to_y[here])

        _on_blocks(compute, bias.shape)
        return None, to_query, to_key, to_value, None


def _weigh(query: Tensor, key: Tensor, bias: Tensor, block: Block) -> Tensor:
    """Compute the weights of a block before any are dropped, (heads, rows, keys)."""
    scores = query[block.heads, block.rows] @ key[block.heads].mT
    scores.unflatten(0, (-1, bias.shape[1])).add_(bias[block.sequences, :, block.rows])
    return torch.softmax(scores, dim=-1, out=scores)


def _draw(ctx: Any, block: Block, weights: Tensor) -> Tensor:
    """Draw which weights of a block are kept, the same ones in both passes."""
    generator = torch.Generator().manual_seed(ctx.seed + block.number)
    return draw_kept(weights.shape, ctx.dropout, weights.dtype, generator)
