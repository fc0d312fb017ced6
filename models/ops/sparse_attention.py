"""Softmax attention between the pairs of a sparse pattern, without a table of all pairs.

Queries are in blocks. A pattern chooses a few sets of keys for each block (`KeySet`), and one
softmax goes over all of them. No pair is in two sets.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from models.ops.reference import fast_form_of

Pairs = Callable[[Tensor, Tensor], Tensor]
"""Whether queries at positions i attend to keys at positions j, by broadcasting."""


def every_pair(i: Tensor, j: Tensor) -> Tensor:
    """Let all queries attend to all keys; see `Pairs`."""
    return torch.ones_like(i + j, dtype=torch.bool)


@dataclass(frozen=True)
class Layout:
    """How queries are grouped, so that the queries of a group have the same keys."""

    group: Callable[[Tensor], Tensor]
    """(batch, heads, blocks, block, ...) -> (batch, heads, groups, queries, ...)."""
    ungroup: Callable[[Tensor, int], Tensor]
    """The inverse; its second argument is the number of blocks."""


BY_BLOCK = Layout(lambda x: x, lambda x, blocks: x)
"""A group for each block."""
TOGETHER = Layout(
    lambda x: x.flatten(2, 3)[:, :, None],
    lambda x, blocks: x[:, :, 0].unflatten(2, (blocks, -1)),
)
"""One group of all queries."""
BY_PLACE = Layout(lambda x: x.transpose(2, 3), lambda x, blocks: x.transpose(2, 3))
"""A group for each place within a block: the queries whose distances are multiples of a block."""


@dataclass(frozen=True)
class KeySet:
    """Keys for groups of queries."""

    key: Tensor
    """(batch, heads, groups, keys, channels)."""
    value: Tensor
    """(batch, heads, groups, keys, channels)."""
    number: Tensor
    """(1 or batch, 1 or heads, groups, keys, 1), the positions of the keys plus 1, and 0 where
    there is no key or it is padding."""
    layout: Layout
    """The groups of queries."""
    pairs: Pairs
    """Which of the pairs count."""


class Pattern(abc.ABC):
    """A sparse pattern over positions 0, 1, 2, ...

    Every position attends to itself.
    """

    block: int
    """Number of queries in a block."""

    @abc.abstractmethod
    def pairs(self, i: Tensor, j: Tensor) -> Tensor:
        """See `Pairs`; i and j are not negative. The result may have heads before the pairs."""

    @abc.abstractmethod
    def key_sets(self, key: Tensor, value: Tensor, number: Tensor) -> list[KeySet]:
        """Choose keys for each block of queries.

        Args:
            key,     value: (batch, heads, blocks, block, channels).
            number: (1 or batch, 1, blocks, block, 1), see `KeySet`.
        """


def _choose(
    chosen: Callable[[Tensor], Tensor], parts: tuple[Tensor, ...], layout: Layout, pairs: Pairs
) -> KeySet:
    """Make a set of the same choice of keys, values and numbers."""
    key, value, number = map(chosen, parts)
    return KeySet(key, value, number, layout, pairs)


def neighbours(blocks: Tensor, behind: int, ahead: int) -> Tensor:
    """Join each block with a number of blocks before and after it, zeros beyond the ends.

    Blocks are (batch, heads, blocks, block, channels); the results are longer in the fourth.
    """
    count = blocks.shape[2]
    padded = functional.pad(blocks, (0, 0, 0, 0, behind, ahead))
    shifted = [padded[:, :, shift : shift + count] for shift in range(behind + 1 + ahead)]
    return torch.cat(shifted, dim=3)


@dataclass(frozen=True)
class Window(Pattern):
    """Positions from `behind` before to `ahead` after the query (Longformer, section 3.1)."""

    block: int
    behind: int
    ahead: int

    def pairs(self, i: Tensor, j: Tensor) -> Tensor:
        """See `Pairs`."""
        return (j - i >= -self.behind) & (j - i <= self.ahead)

    def key_sets(self, key: Tensor, value: Tensor, number: Tensor) -> list[KeySet]:
        """Choose the blocks that the window reaches."""
        others = key.shape[2] - 1
        behind, ahead = (min(others, -(-n // self.block)) for n in (self.behind, self.ahead))

        def near(x: Tensor) -> Tensor:
            return neighbours(x, behind, ahead)

        return [_choose(near, (key, value, number), BY_BLOCK, self.pairs)]


@dataclass(frozen=True)
class Local(Pattern):
    """The query's own block, in a causal model up to the query."""

    block: int
    causal: bool

    def pairs(self, i: Tensor, j: Tensor) -> Tensor:
        """See `Pairs`."""
        near = i // self.block == j // self.block
        return near & (j <= i) if self.causal else near

    def key_sets(self, key: Tensor, value: Tensor, number: Tensor) -> list[KeySet]:
        """Choose the block itself."""
        return [KeySet(key, value, number, BY_BLOCK, self.pairs)]


@dataclass(frozen=True)
class Strided(Pattern):
    """The last `block` positions, and those at multiples of `block` behind (Child et al., 4.3).

    Both heads of the paper are merged (section 5.2, equation 7). No position attends to later ones.
    """

    block: int

    def pairs(self, i: Tensor, j: Tensor) -> Tensor:
        """See `Pairs`."""
        lag = i - j
        return (lag >= 0) & ((lag <= self.block) | (lag % self.block == 0))

    def key_sets(self, key: Tensor, value: Tensor, number: Tensor) -> list[KeySet]:
        """Choose two blocks, and the keys at the query's place in all blocks."""
        parts = key, value, number

        def is_near(i: Tensor, j: Tensor) -> Tensor:
            return (j <= i) & (i - j <= self.block)

        def is_far(i: Tensor, j: Tensor) -> Tensor:
            return i - j > self.block

        near = _choose(lambda x: neighbours(x, 1, 0), parts, BY_BLOCK, is_near)
        far = _choose(lambda x: x.transpose(2, 3), parts, BY_PLACE, is_far)
        return [near, far]


@dataclass(frozen=True)
class Fixed(Pattern):
    """The query's block up to the query, and summaries of blocks behind (Child et al., 4.3).

    Summaries are the first position of a block and its last `num_summary`: the paper's places are
    block - num_summary to block, modulo block. Both heads of the paper are merged (section 5.2,
    equation 7). No position attends to later ones.
    """

    block: int
    num_summary: int

    def pairs(self, i: Tensor, j: Tensor) -> Tensor:
        """See `Pairs`."""
        place = j % self.block
        is_summary = (place == 0) | (place >= self.block - self.num_summary)
        return (j <= i) & ((i // self.block == j // self.block) | is_summary)

    def key_sets(self, key: Tensor, value: Tensor, number: Tensor) -> list[KeySet]:
        """Choose the block itself, and all summaries."""
        parts = key, value, number

        def summaries(x: Tensor) -> Tensor:
            ends = torch.cat([x[..., :1, :], x[..., self.block - self.num_summary :, :]], dim=3)
            return TOGETHER.group(ends)

        def is_near(i: Tensor, j: Tensor) -> Tensor:
            return j <= i

        def is_far(i: Tensor, j: Tensor) -> Tensor:
            return j // self.block < i // self.block

        near = KeySet(*parts, BY_BLOCK, is_near)
        return [near, _choose(summaries, parts, TOGETHER, is_far)]


@dataclass(frozen=True)
class RandomBlocks(Pattern):
    """The query's block, the ones beside it, and blocks drawn at random (BigBird, section 2).

    Attributes:
        block: positions in a block.
        table: (heads, blocks, drawn), the numbers of the drawn blocks, and -1 for none. They are
            different from each other and from the query's block and its neighbours.
    """

    block: int
    table: Tensor

    def pairs(self, i: Tensor, j: Tensor) -> Tensor:
        """See `Pairs`; i and j have the shapes (length, 1) and (1, length)."""
        of_query, of_key = i // self.block, j // self.block
        drawn = self.table[:, of_query.flatten()]
        return ((of_query - of_key).abs() <= 1) | (drawn[..., None] == of_key[None]).any(dim=-2)

    def key_sets(self, key: Tensor, value: Tensor, number: Tensor) -> list[KeySet]:
        """Choose three blocks, and the drawn ones, which differ by head."""
        blocks = key.shape[2]
        table = self.table[:, :blocks]
        heads = torch.arange(len(table), device=table.device)[:, None, None]
        exists = (table >= 0) & (table < blocks)
        source = torch.where(exists, table, 0)

        def drawn(x: Tensor) -> Tensor:
            return x.expand(-1, len(table), -1, -1, -1)[:, heads, source].flatten(3, 4)

        parts = key, value, number
        near = _choose(lambda x: neighbours(x, 1, 1), parts, BY_BLOCK, every_pair)
        far = _choose(drawn, parts, BY_BLOCK, every_pair)
        exists = exists.repeat_interleave(self.block, dim=-1)[None, ..., None]
        return [near, KeySet(far.key, far.value, far.number * exists, BY_BLOCK, every_pair)]


def sparse_attention_reference(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    *,
    pattern: Pattern,
    inner: tuple[int, int],
    causal: bool,
    dropout: float,
) -> Tensor:
    """Compute `sparse_attention` with a table of all pairs, O(length^2)."""
    length = query.shape[2]
    place = torch.arange(length, device=query.device)
    i, j = place[:, None], place[None, :]
    first, stop = inner
    is_inner = (place >= first) & (place < stop)
    last = max(0, min(stop, length) - first - 1)
    of_pattern = pattern.pairs((i - first).clamp(0, last), (j - first).clamp(0, last))
    allowed = of_pattern | ~is_inner[:, None] | ~is_inner[None, :]
    if causal:
        allowed = allowed & (j <= i)
    if mask is not None:
        allowed = allowed & mask[:, None, None, :]
    # A softmax over no positions would be 0 / 0 at padding.
    return functional.scaled_dot_product_attention(
        query, key, value, attn_mask=allowed | (i == j), dropout_p=dropout
    )


@fast_form_of(sparse_attention_reference)
def sparse_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    *,
    pattern: Pattern,
    inner: tuple[int, int],
    causal: bool,
    dropout: float,
) -> Tensor:
    """Attend to the real positions of a pattern, and to global ones, O(keys of each query).

    Positions from the first to the second number of `inner` follow the pattern, which counts from
    the first of them. All other positions are global: they attend to all, and all attend to them.

    Args:
        query, key, value: (batch, heads, length, channels).
        mask: (batch, length) bool, True at real positions. None: all are real.
        pattern: the pairs of inner positions.
        inner: first inner position, and the first one after them.
        causal: whether global positions attend to earlier ones only; the pattern has to be causal.
        dropout: fraction of attention weights dropped.
    Returns: (batch, heads, length, channels).
    """
    length = query.shape[2]
    first = min(inner[0], length)
    stop = min(max(inner[1], first), length)
    place = torch.arange(length, device=query.device)
    number = (place + 1)[None] if mask is None else (place + 1) * mask

    def outer(x: Tensor, dim: int = 2) -> Tensor:
        return torch.cat([x.narrow(dim, 0, first), x.narrow(dim, stop, length - stop)], dim=dim)

    mixed, shared = value[:, :, :0], []
    if first > 0 or stop < length:
        mixed = attend_to_all(
            outer(query), key, value, mask, outer(place, 0), causal=causal, dropout=dropout
        )
        numbers = outer(number[:, None, :, None])
        groups = [x[:, :, None] for x in (outer(key), outer(value), numbers)]
        shared = [KeySet(groups[0], groups[1], groups[2], TOGETHER, every_pair)]
    if first == stop:
        return mixed
    numbers = (number[:, first:stop] - first).clamp(min=0)
    query, key, value = (x[:, :, first:stop] for x in (query, key, value))
    near = _attend_in_blocks((query, key, value), numbers, pattern, shared, dropout)
    return torch.cat([mixed[:, :, :first], near, mixed[:, :, first:]], dim=2)


def attend_to_all(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    place: Tensor,
    *,
    causal: bool,
    dropout: float,
) -> Tensor:
    """Let a few positions attend to all real ones, O(length) for each.

    Args:
        query: (batch, heads, queries, channels).
        key, value: (batch, heads, length, channels).
        mask: (batch, length) bool, True at real positions. None: all are real.
        place: (queries,), the positions of the queries.
        causal: whether positions attend to earlier ones only.
        dropout: fraction of attention weights dropped.
    Returns: (batch, heads, queries, channels).
    """
    lag = place[:, None] - torch.arange(key.shape[2], device=place.device)
    allowed = lag >= 0 if causal else torch.ones_like(lag, dtype=torch.bool)
    if mask is not None:
        allowed = (allowed & mask[:, None, None, :]) | (lag == 0)
    return functional.scaled_dot_product_attention(
        query, key, value, attn_mask=allowed, dropout_p=dropout
    )


def _attend_in_blocks(
    heads: tuple[Tensor, Tensor, Tensor],
    number: Tensor,
    pattern: Pattern,
    shared: list[KeySet],
    dropout: float,
) -> Tensor:
    """Attend to the sets of a pattern and to the shared ones by one softmax.

    Args:
        heads: queries, keys and values, each (batch, heads, length, channels).
        number: (1 or batch, length), see `KeySet`.
        pattern: which keys each block has.
        shared: sets of keys for all queries.
        dropout: fraction of attention weights dropped.
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
    place = torch.arange(blocks * pattern.block, device=query.device)
    place = place.view(1, 1, blocks, pattern.block, 1)
    scores = torch.cat([_scores(query, place, keys) for keys in sets], dim=-1)
    weights = functional.dropout(scores.softmax(dim=-1), dropout).to(value.dtype)
    parts = weights.split([keys.key.shape[3] for keys in sets], dim=-1)
    mixed = [
        keys.layout.ungroup(keys.layout.group(part) @ keys.value, blocks)
        for part, keys in zip(parts, sets, strict=True)
    ]
    return sum(mixed[1:], mixed[0]).flatten(2, 3)[:, :, :length]


def _scores(query: Tensor, place: Tensor, keys: KeySet) -> Tensor:
    """Multiply queries by the keys of a set; the lowest number stands for pairs that do not count.

    It is finite, so that padded queries without any key have weights, too.

    Returns: (batch, heads, blocks, block, keys).
    """
    group, number = keys.layout.group, keys.number.mT
    allowed = keys.pairs(group(place), number - 1) & (number > 0)
    scores = group(query) @ keys.key.mT
    scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
    return keys.layout.ungroup(scores, query.shape[2])
