"""The law of ListOps: random trees, their token sequences, and their values.

A tree grows from a root operator: a node above the deepest level is an operator with
probability 1/4, else a digit; an operator is MIN, MAX, MED or SM and has 2 to 10 arguments,
all choices uniform. A tree is kept if its length, the number of tokens without parentheses,
lies within limits. (The generator of google-research/long-range-arena, data/listops.py. The
root can be taken for an operator because a lone digit is never long enough.)

Trees grow in groups, level by level, all nodes of a level at once; they are read and evaluated in
the same way.
"""

import hashlib
import itertools
from collections.abc import Generator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lra.common.errors import DataError
from lra.common.progress import progress
from lra.common.threads import core_count
from lra.tasks.generated import GROUP, Drawn
from lra.tasks.random_words import RandomWords

OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")
TOKENS = (*"0123456789", *OPERATORS, "]")
"""The token with id i is TOKENS[i - 1]; id 0 is the padding."""
DIGITS = 10
DIGIT_ID, OPERATOR_ID, CLOSE_ID, END_ID = 1, 11, 15, 16
VOCAB_SIZE = 17

DEEPEST = 10_000
"""Levels of operators beyond which an expression is not read."""
TOKENS_A_CHUNK = 2**20
"""Tokens that are read at a time."""
BARREN_GROUPS = 200
"""After this many groups in a row without a new expression, the law counts as exhausted."""


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


class Expressions(Drawn):
    """Token sequences end to end; the label of each is its value, 0..9."""

    def list_texts(self) -> list[bytes]:
        """List the tokens of each expression."""
        text = self.tokens.tobytes()
        return [text[start:end] for start, end in itertools.pairwise(self.offsets.tolist())]


class _Level(NamedTuple):
    """All nodes of one depth, ordered as their parents are."""

    kind: np.ndarray
    """0..9 for a digit, 10..13 for an operator."""
    arguments: np.ndarray
    """Number of children, 0 for a digit."""

    @property
    def is_operator(self) -> np.ndarray:
        """Whether each node is an operator, (nodes,) bool."""
        return self.kind >= DIGITS


def example_digest(tokens: bytes) -> bytes:
    """Hash an expression's tokens for the search for duplicates."""
    return hashlib.blake2b(tokens, digest_size=16).digest()


def generate(
    law: Law, seed: int, counts: Mapping[str, int], workers: int | None = None
) -> dict[str, Expressions]:
    """Generate splits without common expressions, filled in the order of the counts.

    They depend on law, seed and counts alone, not on the number of threads (by default the cores).

    Raises: DataError if the law has too few distinct expressions.
    """
    total = sum(counts.values())
    distinct: dict[bytes, tuple[bytes, int]] = {}
    barren = 0
    with (
        progress("generating ListOps", total=total, unit="examples") as bar,
        closing(_grow_groups(law, seed, workers or core_count())) as groups,  # else Ctrl-C is lost
    ):
        for group in groups:
            before = len(distinct)
            for text, label in zip(group.list_texts(), group.labels.tolist(), strict=True):
                distinct.setdefault(example_digest(text), (text, label))
            bar.update(min(len(distinct), total) - before)
            if len(distinct) >= total:
                break
            barren = 0 if len(distinct) > before else barren + 1
            if barren == BARREN_GROUPS:
                raise DataError(
                    f"found only {len(distinct)} distinct expressions of {total} under {law}; "
                    f"ask for fewer examples or widen the limits on length"
                )
    examples = iter(distinct.values())
    return {
        name: join_examples(itertools.islice(examples, count)) for name, count in counts.items()
    }


def _grow_groups(law: Law, seed: int, workers: int) -> Generator[Expressions]:
    """Grow groups 0, 1, 2, ... on threads; NumPy releases the interpreter's lock."""
    at_once = 4 * workers
    with ThreadPoolExecutor(workers) as pool:
        for first in itertools.count(0, at_once):
            numbers = range(first, first + at_once)
            yield from pool.map(lambda group: grow(law, seed, group), numbers)


def join_examples(examples: Iterable[tuple[bytes, int]]) -> Expressions:
    """Put the tokens and the labels of expressions, at least one, together."""
    texts, labels = zip(*examples, strict=True)
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    tokens = np.frombuffer(b"".join(texts), dtype=np.uint8)
    return Expressions(tokens, lengths, np.array(labels, dtype=np.uint8))


def grow(law: Law, seed: int, group: int) -> Expressions:
    """Grow a group of trees and keep those within the limits: a function of its arguments."""
    random = RandomWords(seed, group)
    grown: list[tuple[np.ndarray, _Level]] = []
    lengths = np.zeros(GROUP, dtype=np.int64)
    tree = np.arange(GROUP)
    for depth in range(1, law.max_depth + 1):
        level = _draw_level(law, depth, random.draw(len(tree)))
        grown.append((tree, level))
        lengths += np.bincount(tree, minlength=GROUP)
        lengths += np.bincount(tree[level.is_operator], minlength=GROUP)
        growing = level.is_operator & (lengths <= law.max_length)[tree]
        tree = np.repeat(tree[growing], level.arguments[growing])
        if not len(tree):
            break
    kept = (lengths >= law.min_length) & (lengths <= law.max_length)
    levels = [_Level(*(field[kept[tree]] for field in level)) for tree, level in grown]
    return Expressions(
        _write(levels, lengths[kept]), lengths[kept], _evaluate_levels(levels).astype(np.uint8)
    )


def _draw_level(law: Law, depth: int, word: np.ndarray) -> _Level:
    """Make a node of each 32-bit word, (nodes,)."""
    if depth == 1:
        is_operator = np.ones(len(word), dtype=bool)
    elif depth == law.max_depth:
        is_operator = np.zeros(len(word), dtype=bool)
    else:
        is_operator = word < np.uint32(2**30)
    # The next two bits choose the operator, the last 28 the number of arguments; the last
    # 30 choose the digit. Uniform to within 2**-25.
    low = (word & np.uint32(2**30 - 1)).astype(np.int64)
    kind = np.where(is_operator, DIGITS + (low >> 28), low * DIGITS >> 30)
    arguments = 2 + ((low & 2**28 - 1) * (law.max_arguments - 1) >> 28)
    return _Level(kind, np.where(is_operator, arguments, 0))


def _write(levels: list[_Level], lengths: np.ndarray) -> np.ndarray:
    """Write the tokens, (total,), of complete trees of the given lengths, (trees,)."""
    node_lengths: list[np.ndarray] = []
    for level in reversed(levels):
        length = np.ones(len(level.kind), dtype=np.int64)
        if level.is_operator.any():
            arguments = level.arguments[level.is_operator]
            starts = np.cumsum(arguments) - arguments
            length[level.is_operator] = 2 + np.add.reduceat(node_lengths[-1], starts)
        node_lengths.append(length)
    node_lengths.reverse()
    tokens = np.zeros(int(lengths.sum()), dtype=np.uint8)
    position = np.cumsum(lengths) - lengths
    for level, length, child in zip(levels, node_lengths, [*node_lengths[1:], None], strict=True):
        is_operator = level.is_operator
        tokens[position] = DIGIT_ID + level.kind
        if child is None or not is_operator.any():
            break
        tokens[(position + length - 1)[is_operator]] = CLOSE_ID
        # A child starts after its parent's own token and its elder siblings.
        arguments = level.arguments[is_operator]
        before = np.cumsum(child) - child
        shift = position[is_operator] + 1 - before[np.cumsum(arguments) - arguments]
        position = before + np.repeat(shift, arguments)
    return tokens


def _evaluate_levels(levels: list[_Level]) -> np.ndarray:
    """Compute the value of every root, (trees,) int64, from the deepest level upwards."""
    value = np.zeros(0, dtype=np.int64)
    for level in reversed(levels):
        is_operator, below, value = level.is_operator, value, level.kind.astype(np.int64)
        if is_operator.any():
            arguments = level.arguments[is_operator]
            parent = np.repeat(np.arange(len(arguments)), arguments)
            counts = np.bincount(DIGITS * parent + below, minlength=DIGITS * len(arguments))
            value[is_operator] = _apply(value[is_operator] - DIGITS, counts.reshape(-1, DIGITS))
    return value


def _apply(operator: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Apply operators, (n,), to arguments, of which (n, DIGITS) says how often each digit occurs.

    The median of an even number of arguments is the mean of the two middle ones, rounded down.
    """
    up_to = counts.cumsum(axis=1)
    number = up_to[:, -1]

    def find(rank: np.ndarray) -> np.ndarray:
        return (up_to > rank[:, None]).argmax(axis=1)

    median = (find((number - 1) // 2) + find(number // 2)) // 2
    total = counts @ np.arange(DIGITS) % DIGITS
    return np.choose(operator, (find(0 * number), find(number - 1), median, total))


def evaluate(expressions: Expressions) -> np.ndarray:
    """Evaluate expressions of one token or more: (expressions,) int64, -1 for a malformed one."""
    offsets, lengths = expressions.offsets, expressions.lengths
    ends = np.flatnonzero(np.diff(offsets[:-1] // TOKENS_A_CHUNK)) + 1
    parts = [
        _evaluate_some(expressions.tokens[offsets[start] : offsets[stop]], lengths[start:stop])
        for start, stop in itertools.pairwise([0, *ends.tolist(), len(lengths)])
    ]
    return np.concatenate(parts)


def _evaluate_some(tokens: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    values = np.full(len(lengths), -1)
    is_operator, is_close = (tokens >= OPERATOR_ID) & (tokens < CLOSE_ID), tokens == CLOSE_ID
    steps = is_operator.astype(np.int64) - is_close
    starts = np.cumsum(lengths) - lengths
    depth = np.cumsum(steps)
    depth -= np.repeat((depth - steps)[starts], lengths)
    # The root's bracket is open until the last token, and no operator is without arguments.
    is_sound = (depth > 0) & (depth <= DEEPEST)
    is_sound[starts + lengths - 1] = depth[starts + lengths - 1] == 0
    is_sound[starts] &= is_operator[starts]
    is_sound[1:] &= ~(is_operator[:-1] & is_close[1:])
    is_whole = np.logical_and.reduceat(is_sound, starts)
    if is_whole.any():
        kept = np.repeat(is_whole, lengths)
        values[is_whole] = _evaluate_levels(_read(tokens[kept], (depth - is_operator)[kept]))
    return values


def _read(tokens: np.ndarray, depth: np.ndarray) -> list[_Level]:
    """Read trees from their tokens, (total,), and the number of operators around each."""
    nodes = np.flatnonzero(tokens != CLOSE_ID)
    nodes = nodes[np.argsort(depth[nodes], kind="stable")]
    by_depth = np.split(nodes, np.cumsum(np.bincount(depth[nodes]))[:-1])
    levels: list[_Level] = []
    for here, below in itertools.pairwise([*by_depth, nodes[:0]]):
        kind = tokens[here] - DIGIT_ID
        operators = here[kind >= DIGITS]
        parent = np.searchsorted(operators, below) - 1
        arguments = np.zeros(len(here), dtype=np.int64)
        arguments[kind >= DIGITS] = np.bincount(parent, minlength=len(operators))
        levels.append(_Level(kind, arguments))
    return levels
