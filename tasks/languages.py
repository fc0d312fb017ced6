"""Languages: evaluate sequences of a formal language, longer ones than in training.

Delétang et al., "Neural Networks and the Chomsky Hierarchy", ICLR 2023 (arXiv:2207.02098), with the
lengths and the vocabularies of Beck et al., "xLSTM", NeurIPS 2024 (arXiv:2405.04517). Both
arithmetics end with "=". Brackets have multiplication, too, as in Grazzi et al. 2025
(arXiv:2411.12537); by default Delétang et al. leave it out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field, PositiveInt

from lra.tasks.base import SPLITS, DataSeed, TaskInfo
from lra.tasks.cache import Cache
from lra.tasks.generated import GROUP, Drawn, GeneratedTask, draw_in_groups
from lra.tasks.goals import ExampleClass
from lra.tasks.random_words import RandomWords
from lra.tasks.splits import PackedSequences, Sequences

MODULUS = 5
"""Number of different digits, and of places on the circle."""
SYMBOLS = "01234+-*=()"
"""What tokens of the arithmetics stand for; the one without brackets has the first nine."""
PLUS, MINUS, TIMES, EQUALS, OPEN, CLOSE = range(MODULUS, len(SYMBOLS))
OPERATORS = np.array([PLUS, MINUS, TIMES])
SHORT = 4
"""Most symbols of an expression in brackets that has no parts."""

COUNTS = {"train": 200_000, "val": 8_192, "test": 8_192}
BAND = 40
"""Width of the bands of lengths by which results are broken down."""
Length = Annotated[int, Field(ge=1, le=2**16)]

Pair = tuple[np.ndarray, np.ndarray]
"""Tokens (sequences, longest), whatever is beyond the lengths, and labels (sequences,)."""


def is_inside(lengths: np.ndarray) -> np.ndarray:
    """Mark the positions of padded sequences that are real: (rows, longest) bool."""
    return np.arange(lengths.max()) < lengths[:, None]


def draw_parity(random: RandomWords, lengths: np.ndarray) -> Pair:
    """Draw bits, whose sum is even or odd."""
    bits = random.draw_below(2, len(lengths), int(lengths.max()))
    return bits, (bits * is_inside(lengths)).sum(axis=1) % 2


def draw_even_pairs(random: RandomWords, lengths: np.ndarray) -> Pair:
    """Draw bits, whose number of unequal neighbours is even or odd: the ends are equal or not."""
    bits = random.draw_below(2, len(lengths), int(lengths.max()))
    return bits, bits[:, 0] ^ bits[np.arange(len(bits)), lengths - 1]


def draw_cycle(random: RandomWords, lengths: np.ndarray) -> Pair:
    """Draw steps on a circle of MODULUS places: 0 stays, 1 goes forward and 2 back."""
    symbols = random.draw_below(3, len(lengths), int(lengths.max()))
    steps = np.array([0, 1, -1])[symbols]
    return symbols, (steps * is_inside(lengths)).sum(axis=1) % MODULUS


def draw_arithmetic(random: RandomWords, lengths: np.ndarray) -> Pair:
    """Draw digits with operators between them, and "=": the value, with * before + and -."""
    rows, longest = len(lengths), int(lengths.max())
    tokens = random.draw_below(MODULUS, rows, longest)
    tokens[:, 1::2] = OPERATORS[random.draw_below(3, *tokens[:, 1::2].shape)]
    tokens[np.arange(rows), lengths - 1] = EQUALS
    total, product = np.zeros(rows, dtype=np.int64), tokens[:, 0]
    for position in range(1, longest - 1, 2):
        operator, digit = tokens[:, position], tokens[:, position + 1]
        is_new = operator != TIMES
        signed = np.where(operator == MINUS, -digit, digit)
        term = np.where(is_new, signed, product * digit % MODULUS)
        is_here = position < lengths - 1
        total = np.where(is_here & is_new, total + product, total)
        product = np.where(is_here, term, product)
    return tokens, (total + product) % MODULUS


class _Expressions(NamedTuple):
    """Parts of sequences, each a whole expression: three arrays of one size."""

    rows: np.ndarray
    """Index of the sequence."""
    starts: np.ndarray
    """First position in the sequence."""
    lengths: np.ndarray

    def where(self, which: np.ndarray) -> _Expressions:
        """Choose some by a mask."""
        return _Expressions(*(field[which] for field in self))


def draw_brackets(random: RandomWords, lengths: np.ndarray) -> Pair:
    """Draw expressions in brackets, and "="; the label is the value.

    With d for a digit, an expression of 1, 2, 3 or 4 symbols is d, -d, (d) or (-d). A longer one of
    n symbols is (left operator right). The left one has 1 to n - 4 symbols, uniformly, and the
    right one has the rest. Digits and operators are uniform. (google-deepmind/
    neural_networks_chomsky_hierarchy, tasks/dcf/modular_arithmetic_brackets.py)
    """
    rows = np.arange(len(lengths))
    tokens = np.zeros((len(lengths), int(lengths.max())), dtype=np.int64)
    tokens[rows, lengths - 1] = EQUALS
    level = _Expressions(rows, np.zeros_like(rows), lengths - 1)
    depths: list[Pair] = []
    while len(level.rows):
        is_short = level.lengths <= SHORT
        value = np.full(len(is_short), -1)
        value[is_short] = _write_short(random, tokens, level.where(is_short))
        operator, level = _write_operators(random, tokens, level.where(~is_short))
        depths.append((value, operator))
    inner = np.zeros(0, dtype=np.int64)
    for value, operator in reversed(depths):
        left, right = np.split(inner, 2)
        is_operator = [operator == PLUS, operator == MINUS]
        results = np.select(is_operator, [left + right, left - right], left * right)
        value[value < 0] = results % MODULUS
        inner = value
    return tokens, inner


def _write_short(random: RandomWords, tokens: np.ndarray, short: _Expressions) -> np.ndarray:
    """Write expressions without parts into tokens; return their values."""
    rows, starts, lengths = short
    digits = random.draw_below(MODULUS, len(rows))
    is_negative, in_brackets = lengths % 2 == 0, lengths > 2  # noqa: PLR2004
    after = starts + in_brackets
    tokens[rows, starts] = OPEN
    tokens[rows, starts + lengths - 1] = CLOSE
    tokens[rows, after] = MINUS
    tokens[rows, after + is_negative] = digits
    return np.where(is_negative, -digits, digits) % MODULUS


def _write_operators(
    random: RandomWords, tokens: np.ndarray, long: _Expressions
) -> tuple[np.ndarray, _Expressions]:
    """Write brackets and operators into tokens.

    Returns: the operators, and the parts: first all the left ones, then all the right ones.
    """
    rows, starts, lengths = long
    left = 1 + random.draw_below(lengths - SHORT, len(rows))
    operators = OPERATORS[random.draw_below(3, len(rows))]
    middle = starts + 1 + left
    tokens[rows, starts] = OPEN
    tokens[rows, middle] = operators
    tokens[rows, starts + lengths - 1] = CLOSE
    parts = _Expressions(
        np.concatenate([rows, rows]),
        np.concatenate([starts + 1, middle + 1]),
        np.concatenate([left, lengths - left - 3]),
    )
    return operators, parts


@dataclass(frozen=True, kw_only=True)
class Language:
    """A language."""

    vocab_size: int
    num_classes: int
    draw: Callable[[RandomWords, np.ndarray], Pair]
    """Draws sequences by random words and their lengths, (sequences,)."""
    shortest: int = 1
    step: int = 1
    """Lengths are `shortest`, and more by multiples of this."""


LANGUAGES = {
    "parity": Language(vocab_size=2, num_classes=2, draw=draw_parity),
    "even-pairs": Language(vocab_size=2, num_classes=2, draw=draw_even_pairs),
    "cycle-navigation": Language(vocab_size=3, num_classes=MODULUS, draw=draw_cycle),
    "modular-arithmetic": Language(
        vocab_size=EQUALS + 1, num_classes=MODULUS, draw=draw_arithmetic, shortest=2, step=2
    ),
    "modular-arithmetic-brackets": Language(
        vocab_size=len(SYMBOLS), num_classes=MODULUS, draw=draw_brackets, shortest=2
    ),
}


class Languages(GeneratedTask):
    """Say what a sequence of a formal language evaluates to.

    Sequences of validation and test are longer than those of training. All lengths that are
    possible within the limits are equally likely: arithmetic without brackets has even lengths.
    Published scores are often scaled: (accuracy - chance) / (1 - chance).

    Args:
        language: parity (of the ones among bits), even-pairs (whether the number of unequal
            neighbours among bits is even), cycle-navigation (the place on a circle of 5 after steps
            of 0, 1 or -1), modular-arithmetic (of digits below 5 with + - *), or
            modular-arithmetic-brackets.
        train_min: shortest sequence of the training set.
        train_max: longest sequence of the training set.
        test_min: shortest sequence of the validation set and the test set.
        test_max: longest sequence of the validation set and the test set.
        train: sequences to train on.
        val: sequences to select on.
        test: sequences to test on.
        data_seed: seed of the generator.
    Raises: ValueError for limits between which the language has no sequence.
    """

    name = "languages"
    default_counts = COUNTS

    def __init__(
        self,
        *,
        language: Literal[
            "parity", "even-pairs", "cycle-navigation", "modular-arithmetic",
            "modular-arithmetic-brackets",
        ] = "parity",
        train_min: Length = 3,
        train_max: Length = 40,
        test_min: Length = 40,
        test_max: Length = 256,
        train: PositiveInt = COUNTS["train"],
        val: PositiveInt = COUNTS["val"],
        test: PositiveInt = COUNTS["test"],
        data_seed: DataSeed = 0,
    ) -> None:  # fmt: skip
        self.language_name = language
        self.language = LANGUAGES[language]
        tested = self._list_lengths("test", test_min, test_max)
        trained = self._list_lengths("train", train_min, train_max)
        self.lengths = {"train": trained, "val": tested, "test": tested}
        self.counts = {"train": train, "val": val, "test": test}
        self.data_seed = data_seed
        self.info = TaskInfo(
            name=self.name,
            goal=ExampleClass(self.language.num_classes),
            max_length=int(max(trained[-1], tested[-1])),
            vocab_size=self.language.vocab_size,
        )

    def _list_lengths(self, split: str, least: int, most: int) -> np.ndarray:
        """List the lengths within limits that sequences can have."""
        shortest, step = self.language.shortest, self.language.step
        lengths = np.arange(shortest, most + 1, step)
        lengths = lengths[lengths >= least]
        if not len(lengths):
            raise ValueError(
                f"{split}_min is {least} and {split}_max is {most}, but {self.language_name} has "
                f"no sequence between them, only of {shortest}, {shortest + step}, "
                f"{shortest + 2 * step}, ... positions"
            )
        return lengths

    def describe_law(self) -> dict[str, Any]:
        """See `GeneratedTask.describe_law`."""
        limits = {split: [int(n[0]), int(n[-1])] for split, n in self.lengths.items()}
        return {"language": self.language_name, "lengths": limits, "version": 1}

    def mean_length(self, split: str) -> float:
        """See `GeneratedTask.mean_length`."""
        return float(self.lengths[split].mean())

    def draw(self) -> dict[str, np.ndarray]:
        """See `GeneratedTask.draw`."""
        arrays: dict[str, np.ndarray] = {}
        for number, split in enumerate(SPLITS):
            law = functools.partial(self.draw_group, self.lengths[split])
            count = self.counts[split]
            drawn = draw_in_groups(f"drawing {split}", count, law, self.data_seed, number)
            arrays |= drawn.arrays(split)
        return arrays

    def draw_group(self, lengths: np.ndarray, random: RandomWords) -> Drawn:
        """Draw GROUP sequences of some lengths, all equally likely."""
        chosen = lengths[random.draw_below(len(lengths), GROUP)]
        tokens, labels = self.language.draw(random, chosen)
        packed = tokens[is_inside(chosen)].astype(np.uint8)
        return Drawn(packed, chosen.astype(np.int32), labels.astype(np.int8))

    def open_split(self, cache: Cache, split: str) -> PackedSequences:
        """See `GeneratedTask.open_split`; metadata is the band of the length, by its end."""
        drawn = Drawn.from_cache(cache, split)
        bands = {"length up to": -(-drawn.lengths.astype(np.int64) // BAND) * BAND}
        sequences = Sequences(drawn.tokens, drawn.offsets)
        return PackedSequences(sequences, np.asarray(drawn.labels), fields=bands)

    @classmethod
    def change_length(cls, options: Mapping[str, Any], length: int) -> dict[str, Any]:
        """See `GeneratedTask.change_length`: at least three quarters of the length."""
        return {"test_min": max(1, 3 * length // 4), "test_max": length}
