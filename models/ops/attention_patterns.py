"""Sparse patterns of attention: which pairs of positions count, and how to compute them in blocks.

Queries are in blocks. A pattern chooses a few sets of keys for each block (`KeySet`), and
`models.ops.sparse_attention` attends to all of them by one softmax. No pair is in two sets.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

Pairs = Callable[[Tensor, Tensor], Tensor]
"""Whether queries at positions i attend to keys at positions j, by broadcasting."""


def every_pair(i: Tensor, j: Tensor) -> Tensor:
    """Let all queries attend to all keys; see `Pairs`."""
    return torch.ones_like(i + j, dtype=torch.bool)


@dataclass(frozen=True)
class Layout:
    """How queries are grouped, so that the queries of a group have the same keys.

    Attributes:
        group: (batch, heads, blocks, block, ...) -> (batch, heads, groups, queries, ...).
        ungroup: the inverse; its second argument is the number of blocks.
    """

    group: Callable[[Tensor], Tensor]
    ungroup: Callable[[Tensor, int], Tensor]


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
    """Keys for groups of queries.

    Attributes:
        key: (batch, heads, groups, keys, channels).
        value: (batch, heads, groups, keys, channels).
        number: (1 or batch, 1 or heads, groups, keys, 1), the positions of the keys plus 1, and 0
            where there is no key or it is padding.
        layout: the groups of queries.
        pairs: which of the pairs count.
    """

    key: Tensor
    value: Tensor
    number: Tensor
    layout: Layout
    pairs: Pairs


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
            key: (batch, heads, blocks, block, channels).
            value: (batch, heads, blocks, block, channels).
            number: (1 or batch, 1, blocks, block, 1), see `KeySet`.
        """


def _choose(
    chosen: Callable[[Tensor], Tensor], parts: tuple[Tensor, ...], layout: Layout, pairs: Pairs
) -> KeySet:
    """Make a set of the same choice of keys, values and numbers."""
    key, value, number = map(chosen, parts)
    return KeySet(key, value, number, layout, pairs)


def neighbours(blocks: Tensor, behind: int, ahead: int) -> Tensor:
    """Join each block with blocks before and after it.

    Args:
        blocks: (batch, heads, blocks, block, channels).
        behind: number of blocks before it.
        ahead: number of blocks after it.
    Returns: (batch, heads, blocks, (behind + 1 + ahead) * block, channels), 0 beyond the ends.
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
