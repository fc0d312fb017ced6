"""Softmax attention between the pairs of a sparse pattern, without a table of all pairs.

Queries are in blocks, and one softmax goes over all keys that the pattern chooses for a block.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from lra.models.ops.attention import attention
from lra.models.ops.reference import fast_form_of
from lra.models.sparse.patterns import TOGETHER, KeySet, Pattern, every_pair


def sparse_attention_reference(
    heads: Sequence[Tensor], mask: Tensor | None, pattern: Pattern, dropout: float
) -> Tensor:
    """Compute `sparse_attention` with a table of all pairs, O(length^2)."""
    query, key, value = heads
    length = query.shape[2]
    position = torch.arange(length, device=query.device)
    i, j = position[:, None], position[None, :]
    first, stop = pattern.inner
    is_inner = (position >= first) & (position < stop)
    last = max(0, min(stop, length) - first - 1)
    of_pattern = pattern.pairs((i - first).clamp(0, last), (j - first).clamp(0, last))
    allowed = of_pattern | ~is_inner[:, None] | ~is_inner[None, :]
    if pattern.causal:
        allowed = allowed & (j <= i)
    if mask is not None:
        allowed = allowed & mask[:, None, None, :]
    # A softmax over no positions would be 0 / 0 at padding.
    return functional.scaled_dot_product_attention(
        query, key, value, attn_mask=allowed | (i == j), dropout_p=dropout
    )


@fast_form_of(sparse_attention_reference)
def sparse_attention(
    heads: Sequence[Tensor], mask: Tensor | None, pattern: Pattern, dropout: float
) -> Tensor:
    """Attend to the real positions of a pattern, and to global ones, O(keys of each query).

    Positions other than the inner ones of the pattern are global: they attend to all, and all
    attend to them.

    Args:
        heads: queries, keys and values, (batch, heads, length, channels).
        mask: (batch, length) bool, True at real positions. None: all are real.
        pattern: the pairs of inner positions.
        dropout: fraction of attention weights dropped.
    Returns: (batch, heads, length, channels).
    """
    query, key, value = heads
    length = query.shape[2]
    first = min(pattern.inner[0], length)
    stop = min(max(pattern.inner[1], first), length)
    position = torch.arange(length, device=query.device)
    number = (position + 1)[None] if mask is None else (position + 1) * mask

    def outer(x: Tensor, dim: int = 2) -> Tensor:
        return torch.cat([x.narrow(dim, 0, first), x.narrow(dim, stop, length - stop)], dim=dim)

    mixed, shared = value[:, :, :0], []
    if first > 0 or stop < length:
        outer_heads = outer(query), key, value
        mixed = attend_to_all(outer_heads, mask, outer(position, 0), pattern.causal, dropout)
        numbers = outer(number[:, None, :, None])
        groups = [x[:, :, None] for x in (outer(key), outer(value), numbers)]
        shared = [KeySet(groups, every_pair, TOGETHER)]
    if first == stop:
        return mixed
    numbers = (number[:, first:stop] - first).clamp(min=0)
    query, key, value = (x[:, :, first:stop] for x in (query, key, value))
    near = _attend_in_blocks((query, key, value), numbers, pattern, shared, dropout)
    return torch.cat([mixed[:, :, :first], near, mixed[:, :, first:]], dim=2)


def attend_to_all(
    heads: Sequence[Tensor], mask: Tensor | None, position: Tensor, causal: bool, dropout: float
) -> Tensor:
    """Let queries at a few places, (queries,), attend to all real positions, O(length) for each.

    See `sparse_attention` for the other arguments.
    """
    query, key, value = heads
    lag = position[:, None] - torch.arange(key.shape[2], device=position.device)
    allowed = lag >= 0 if causal else torch.ones_like(lag, dtype=torch.bool)
    if mask is not None:
        allowed = (allowed & mask[:, None, None, :]) | (lag == 0)
    return attention(query, key, value, allowed, dropout=dropout)


def _attend_in_blocks(
    heads: tuple[Tensor, Tensor, Tensor],
    number: Tensor,
    pattern: Pattern,
    shared: list[KeySet],
    dropout: float,
) -> Tensor:
    """Attend to the sets of a pattern and to the shared ones by one softmax.

    Queries, keys and values are (batch, heads, length, channels), numbers (1 or batch, length).
    """
    query, key, value = heads
    length, channels = query.shape[2:]
    blocks = -(-length // pattern.block)
    missing = blocks * pattern.block - length

    def in_blocks(x: Tensor) -> Tensor:
        return functional.pad(x, (0, 0, 0, missing)).unflatten(2, (blocks, pattern.block))

    query = in_blocks(query * channels**-0.5)
    sets = pattern.key_sets(in_blocks(key), in_blocks(value), in_blocks(number[:, None, :, None]))
    sets = [*sets, *shared]
    position = torch.arange(blocks * pattern.block, device=query.device)
    position = position.view(1, 1, blocks, pattern.block, 1)
    scores = torch.cat([_scores(query, position, keys) for keys in sets], dim=-1)
    weights = functional.dropout(scores.softmax(dim=-1), dropout).to(value.dtype)
    values = [keys.parts[1] for keys in sets]
    parts = weights.split([some.shape[3] for some in values], dim=-1)
    mixed = [
        keys.layout.ungroup(keys.layout.group(part) @ some, blocks)
        for keys, part, some in zip(sets, parts, values, strict=True)
    ]
    return sum(mixed[1:], mixed[0]).flatten(2, 3)[:, :, :length]


def _scores(query: Tensor, position: Tensor, keys: KeySet) -> Tensor:
    """Multiply queries by the keys of a set; the lowest number stands for pairs that do not count.

    It is finite, so that padded queries without any key have weights, too.

    Returns: (batch, heads, blocks, block, keys).
    """
    (key, _, number), group = keys.parts, keys.layout.group
    allowed = keys.pairs(group(position), number.mT - 1) & (number.mT > 0)
    scores = group(query) @ key.mT
    scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
    return keys.layout.ungroup(scores, query.shape[2])
