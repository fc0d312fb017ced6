"""The law of ListOps: random trees, their lengths, answers and token sequences.

A tree grows from a root operator: a node above the deepest level is an operator with
probability 1/4, else a digit; an operator is MIN, MAX, MED or SM and has 2 to 10 arguments,
all choices uniform. A tree is kept if its length, the number of tokens without parentheses,
lies within limits. (The generator of google-research/long-range-arena, data/listops.py. The
root can be taken for an operator because a lone digit is never long enough.)

Trees grow in groups, level by level, all nodes of a level at once.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from tasks.random_words import RandomWords

OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")
CLOSE = "]"
TOKENS = (*"0123456789", *OPERATORS, CLOSE)
"""The token with id i is TOKENS[i - 1]; id 0 is the padding."""

DIGIT_ID = 1
OPERATOR_ID = 11
CLOSE_ID = 15
END_ID = 16
VOCAB_SIZE = 17

GROUP = 1024
"""Number of trees grown at once. It belongs to the law: another number gives other trees."""


@dataclass(frozen=True, kw_only=True)
class Law:
    """Limits on the trees, both ends included."""

    min_length: int
    max_length: int
    max_depth: int
    max_arguments: int


OFFICIAL_LAW = Law(min_length=501, max_length=1999, max_depth=10, max_arguments=10)
OFFICIAL_COUNTS = {"train": 96_000, "val": 2_000, "test": 2_000}
"""Examples of the official files, by split."""


@dataclass(frozen=True)
class Expressions:
    """Token sequences end to end."""

    tokens: np.ndarray
    """(total,) uint8 token ids."""
    lengths: np.ndarray
    """(expressions,) int64."""
    labels: np.ndarray
    """(expressions,) uint8, the value 0..9 of each expression."""


@dataclass(frozen=True)
class _Level:
    """All nodes of one depth, ordered as their parents are."""

    tree: np.ndarray
    kind: np.ndarray
    """0..9 for a digit, 10..13 for an operator."""
    arguments: np.ndarray
    """Number of children, 0 for a digit."""

    @functools.cached_property
    def is_operator(self) -> np.ndarray:
        """Whether each node is an operator, (nodes,) bool."""
        return self.kind >= OPERATOR_ID - DIGIT_ID

    @functools.cached_property
    def first_child(self) -> np.ndarray:
        """Index of each operator's first child in the level below, (operators,)."""
        arguments = self.arguments[self.is_operator]
        return np.cumsum(arguments) - arguments

    def of(self, trees: np.ndarray) -> _Level:
        """Keep the nodes of the trees for which the (trees,) bool array is true."""
        keep = trees[self.tree]
        return _Level(self.tree[keep], self.kind[keep], self.arguments[keep])


def grow(law: Law, seed: int, group: int) -> Expressions:
    """Grow a group of trees and keep those within the limits: a function of its arguments."""
    random = RandomWords(seed, group)
    levels: list[_Level] = []
    lengths = np.zeros(GROUP, dtype=np.int64)
    tree = np.arange(GROUP)
    for depth in range(1, law.max_depth + 1):
        level = _draw_level(law, depth, tree, random)
        levels.append(level)
        lengths += np.bincount(tree, minlength=GROUP)
        lengths += np.bincount(tree[level.is_operator], minlength=GROUP)
        growing = level.is_operator & (lengths <= law.max_length)[tree]
        tree = np.repeat(tree[growing], level.arguments[growing])
        if not len(tree):
            break
    kept = (lengths >= law.min_length) & (lengths <= law.max_length)
    return _write([level.of(kept) for level in levels], lengths[kept])


def _draw_level(law: Law, depth: int, tree: np.ndarray, random: RandomWords) -> _Level:
    """Draw a node for each entry of tree, (nodes,), from one 32-bit word each."""
    word = random.draw(len(tree))
    if depth == 1:
        is_operator = np.ones(len(tree), dtype=bool)
    elif depth == law.max_depth:
        is_operator = np.zeros(len(tree), dtype=bool)
    else:
        is_operator = word < np.uint32(2**30)
    # The next two bits choose the operator, the last 28 the number of arguments; the last
    # 30 choose the digit. Uniform to within 2**-25.
    low = (word & np.uint32(2**30 - 1)).astype(np.uint64)
    kind = ((low * 10) >> 30).astype(np.uint8)
    kind[is_operator] = (10 + (low[is_operator] >> 28)).astype(np.uint8)
    arguments = np.zeros(len(tree), dtype=np.int64)
    fraction = low[is_operator] & (2**28 - 1)
    arguments[is_operator] = 2 + ((fraction * (law.max_arguments - 1)) >> 28).astype(np.int64)
    return _Level(tree, kind, arguments)


def _write(levels: list[_Level], lengths: np.ndarray) -> Expressions:
    """Evaluate complete trees of the given lengths, (trees,), and write their tokens."""
    node_lengths, labels = _evaluate(levels)
    tokens = np.zeros(int(lengths.sum()), dtype=np.uint8)
    position = np.cumsum(lengths) - lengths
    for depth, level in enumerate(levels):
        tokens[position] = DIGIT_ID + level.kind
        if not level.is_operator.any():
            break
        end = position + node_lengths[depth] - 1
        tokens[end[level.is_operator]] = CLOSE_ID
        # A child starts after its parent's own token and its elder siblings.
        child = node_lengths[depth + 1]
        before = np.cumsum(child) - child
        shift = position[level.is_operator] + 1 - before[level.first_child]
        position = before + np.repeat(shift, level.arguments[level.is_operator])
    return Expressions(tokens, lengths, labels.astype(np.uint8))


def _evaluate(levels: list[_Level]) -> tuple[list[np.ndarray], np.ndarray]:
    """Compute the length of every node, level by level, and the value of every root."""
    node_lengths: list[np.ndarray] = []
    length_below = value = np.zeros(0, dtype=np.int64)
    for level in reversed(levels):
        value_below, value = value, level.kind.astype(np.int64)
        length = np.ones(len(level.kind), dtype=np.int64)
        if level.is_operator.any():
            length[level.is_operator] = 2 + np.add.reduceat(length_below, level.first_child)
            value[level.is_operator] = _apply(level, value_below)
        node_lengths.append(length)
        length_below = length
    return node_lengths[::-1], value


def _apply(level: _Level, arguments: np.ndarray) -> np.ndarray:
    """Apply a level's operators to the values of the level below: (operators,) values."""
    kind = level.kind[level.is_operator] - (OPERATOR_ID - DIGIT_ID)
    count = level.arguments[level.is_operator]
    first = level.first_child
    minimum = np.minimum.reduceat(arguments, first)
    maximum = np.maximum.reduceat(arguments, first)
    total = np.add.reduceat(arguments, first) % 10
    median = np.zeros_like(total)
    is_median = kind == OPERATORS.index("[MED")
    if is_median.any():
        count, first = count[is_median], first[is_median]
        column = np.arange(count.max())
        inside = column < count[:, None]
        at = np.minimum(first[:, None] + column, len(arguments) - 1)
        ordered = np.sort(np.where(inside, arguments[at], 10).astype(np.int8), axis=1)
        row = np.arange(len(count))
        # The mean of the two middle values, rounded down; if count is odd, they are the same.
        middle = ordered[row, (count - 1) // 2] + ordered[row, count // 2]
        median[is_median] = middle // 2
    return np.choose(kind, (minimum, maximum, median, total))
