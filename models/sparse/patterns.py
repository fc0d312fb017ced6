"""Sparse patterns of attention: which pairs count, and how the keys of a block are chosen.

A pattern chooses a few sets of keys for each block of queries. No pair is in two sets.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

Pairs = Callable[[Tensor, Tensor], Tensor]
"""Whether queries at positions i attend to keys at positions j, by broadcasting."""


def every_pair(i: Tensor, j: Tensor) -> Tensor:
    """Let all queries attend to all keys; see `Pairs`."""
    return torch.ones_like(i + j, dtype=torch.bool)


class Layout(NamedTuple):
    """How queries are grouped, so that the queries of a group have the same keys."""

    group: Callable[[Tensor], Tensor]
    """(batch, heads, blocks, block, ...) -> (batch, heads, groups, queries, ...)."""
    ungroup: Callable[[Tensor, int], Tensor]
    """The inverse; its second argument is the number of blocks."""


BY_BLOCK = Layout(lambda x: x, lambda x, blocks: x)
"""A group for each block."""
TOGETHER = Layout(
    lambda x: x.flatten(2, 3)[:, :, None], lambda x, blocks: x[:, :, 0].unflatten(2, (blocks, -1))
)
"""One group of all queries."""
BY_PLACE = Layout(lambda x: x.transpose(2, 3), lambda x, blocks: x.transpose(2, 3))
"""A group for each place within a block: the queries whose distances are multiples of a block."""


class KeySet(NamedTuple):
    """Keys for groups of queries."""

    parts: Sequence[Tensor]
    """Keys and values, (batch, heads, groups, keys, channels), and numbers, (1 or batch, 1 or
    heads, groups, keys, 1): the positions of the keys plus 1, and 0 for no key or padding."""
    pairs: Pairs
    """Which of the pairs count."""
    layout: Layout = BY_BLOCK
    """The groups of queries."""


@dataclass(frozen=True)
class Pattern:
    """A sparse pattern over positions 0, 1, 2, ... Every position attends to itself."""

    block: int
    """Number of queries in a block."""
    pairs: Pairs
    """Whether i attends to j, which are not negative. A result may have heads before the pairs."""
    key_sets: Callable[[Tensor, Tensor, Tensor], list[KeySet]]
    """Chooses the keys of each block from keys, values and numbers as in `KeySet`, which are in
    blocks: (batch, heads, blocks, block, ...)."""
    inner: tuple[int, int] = (0, sys.maxsize)
    """The first position that follows the pattern, which counts from there, and the first one after
    them."""
    causal: bool = False
    """Whether the other positions attend to earlier ones only, as all inner ones then do."""


def neighbours(blocks: Tensor, behind: int, ahead: int) -> Tensor:
    """Join each block with a number of blocks before and after it, zeros beyond the ends.

    Blocks are (batch, heads, blocks, block, channels); the results are longer in the fourth.
    """
    count = blocks.shape[2]
    padded = functional.pad(blocks, (0, 0, 0, 0, behind, ahead))
    shifted = [padded[:, :, shift : shift + count] for shift in range(behind + 1 + ahead)]
    return torch.cat(shifted, dim=3)


def window_pattern(block: int, behind: int, ahead: int) -> Pattern:
    """Attend to the positions from `behind` before to `ahead` after (Longformer, section 3.1)."""

    def pairs(i: Tensor, j: Tensor) -> Tensor:
        return (j - i >= -behind) & (j - i <= ahead)

    def key_sets(*parts: Tensor) -> list[KeySet]:
        others = parts[0].shape[2] - 1
        reach = [min(others, -(-n // block)) for n in (behind, ahead)]
        return [KeySet([neighbours(x, *reach) for x in parts], pairs)]

    return Pattern(block, pairs, key_sets)


def local_pattern(block: int, *, causal: bool) -> Pattern:
    """Attend to the query's own block, in a causal model up to the query."""

    def pairs(i: Tensor, j: Tensor) -> Tensor:
        near = i // block == j // block
        return near & (j <= i) if causal else near

    return Pattern(block, pairs, lambda *parts: [KeySet(parts, pairs)])


def strided_pattern(block: int) -> Pattern:
    """Attend to the last `block` positions, and to those at multiples of it (Child et al., 4.3).

    Both heads of the paper are merged (section 5.2, equation 7). No position attends to later ones.
    """

    def pairs(i: Tensor, j: Tensor) -> Tensor:
        lag = i - j
        return (lag >= 0) & ((lag <= block) | (lag % block == 0))

    def key_sets(*parts: Tensor) -> list[KeySet]:
        near, far = ([neighbours(x, 1, 0) for x in parts], [x.transpose(2, 3) for x in parts])
        return [
            KeySet(near, lambda i, j: (j <= i) & (i - j <= block)),
            KeySet(far, lambda i, j: i - j > block, BY_PLACE),
        ]

    return Pattern(block, pairs, key_sets)


def fixed_pattern(block: int, num_summary: int) -> Pattern:
    """Attend to the query's block up to it, and to summaries of those behind (Child et al., 4.3).

    Summaries are the first position of a block and its last `num_summary`: the paper's places are
    block - num_summary to block, modulo block. Both heads of the paper are merged (section 5.2,
    equation 7). No position attends to later ones.
    """

    def pairs(i: Tensor, j: Tensor) -> Tensor:
        offset = j % block
        is_summary = (offset == 0) | (offset >= block - num_summary)
        return (j <= i) & ((i // block == j // block) | is_summary)

    def summaries(x: Tensor) -> Tensor:
        ends = torch.cat([x[..., :1, :], x[..., block - num_summary :, :]], dim=3)
        return TOGETHER.group(ends)

    def key_sets(*parts: Tensor) -> list[KeySet]:
        return [
            KeySet(parts, lambda i, j: j <= i),
            KeySet([*map(summaries, parts)], lambda i, j: j // block < i // block, TOGETHER),
        ]

    return Pattern(block, pairs, key_sets)


def random_pattern(block: int, table: Tensor) -> Pattern:
    """Attend to the query's block, the ones beside it, and random blocks (BigBird, section 2).

    Args:
        block: positions in a block.
        table: (heads, blocks, drawn), the numbers of the drawn blocks, and -1 for none. They are
            different from each other and from the query's block and its neighbours.
    """

    def pairs(i: Tensor, j: Tensor) -> Tensor:
        """See `Pairs`; i and j have the shapes (length, 1) and (1, length)."""
        of_query, of_key = i // block, j // block
        drawn = table[:, of_query.flatten()]
        return ((of_query - of_key).abs() <= 1) | (drawn[..., None] == of_key[None]).any(dim=-2)

    def key_sets(*parts: Tensor) -> list[KeySet]:
        blocks = parts[0].shape[2]
        some = table[:, :blocks]
        exists = (some >= 0) & (some < blocks)
        heads = torch.arange(len(some), device=some.device)[:, None, None]
        source = torch.where(exists, some, 0)
        key, value, number = (
            x.expand(-1, len(some), -1, -1, -1)[:, heads, source].flatten(3, 4) for x in parts
        )
        number = number * exists.repeat_interleave(block, dim=-1)[None, ..., None]
        near = KeySet([neighbours(x, 1, 1) for x in parts], every_pair)
        return [near, KeySet([key, value, number], every_pair)]

    return Pattern(block, pairs, key_sets)
