"""The laws of the languages: random symbols and what they evaluate to.

Delétang et al., "Neural Networks and the Chomsky Hierarchy", ICLR 2023 (arXiv:2207.02098), with the
lengths and the vocabularies of Beck et al., "xLSTM", NeurIPS 2024 (arXiv:2405.04517). Both
arithmetics end with "=". Brackets have multiplication, too, as in Grazzi et al. 2025
(arXiv:2411.12537); by default Delétang et al. leave it out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tasks.generated import GROUP, Drawn
from tasks.languages.brackets import draw_brackets
from tasks.languages.symbols import EQUALS, MINUS, MODULUS, PLUS, TIMES, VOCAB_SIZE
from tasks.random_words import RandomWords

DrawSequences = Callable[[RandomWords, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""A function of random words and lengths (GROUP,) that returns tokens (GROUP, longest), whatever is
beyond the lengths, and labels (GROUP,)."""


@dataclass(frozen=True, kw_only=True)
class Language:
    """A language."""

    vocab_size: int
    num_classes: int
    draw: DrawSequences
    shortest: int = 1
    step: int = 1
    """Lengths are `shortest`, and more by multiples of this."""

    def lengths(self, least: int, most: int) -> np.ndarray:
        """List the lengths within limits that sequences can have."""
        every = np.arange(self.shortest, most + 1, self.step)
        return every[every >= least]


def _draw_parity(random: RandomWords, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Draw bits, whose sum is even or odd."""
    bits = random.draw_below(2, len(lengths), int(lengths.max()))
    return bits, (bits * is_inside(lengths)).sum(axis=1) % 2


def _draw_even_pairs(random: RandomWords, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Draw bits, whose number of unequal neighbours is even or odd: the ends are equal or not."""
    bits = random.draw_below(2, len(lengths), int(lengths.max()))
    return bits, bits[:, 0] ^ bits[np.arange(len(bits)), lengths - 1]


def _draw_cycle(random: RandomWords, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Draw steps on a circle of MODULUS places: 0 stays, 1 goes forward and 2 back."""
    symbols = random.draw_below(3, len(lengths), int(lengths.max()))
    steps = np.array([0, 1, -1])[symbols]
    return symbols, (steps * is_inside(lengths)).sum(axis=1) % MODULUS


def _draw_arithmetic(random: RandomWords, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Draw digits with operators between them, and "=": the value, with * before + and -."""
    rows, longest = len(lengths), int(lengths.max())
    tokens = random.draw_below(MODULUS, rows, longest)
    operators = np.array([PLUS, MINUS, TIMES])
    tokens[:, 1::2] = operators[random.draw_below(3, *tokens[:, 1::2].shape)]
    tokens[np.arange(rows), lengths - 1] = EQUALS
    total, product = np.zeros(rows, dtype=np.int64), tokens[:, 0]
    for place in range(1, longest - 1, 2):
        operator, digit = tokens[:, place], tokens[:, place + 1]
        is_new = operator != TIMES
        signed = np.where(operator == MINUS, -digit, digit)
        term = np.where(is_new, signed, product * digit % MODULUS)
        is_here = place < lengths - 1
        total = np.where(is_here & is_new, total + product, total)
        product = np.where(is_here, term, product)
    return tokens, (total + product) % MODULUS


LANGUAGES = {
    "parity": Language(vocab_size=2, num_classes=2, draw=_draw_parity),
    "even-pairs": Language(vocab_size=2, num_classes=2, draw=_draw_even_pairs),
    "cycle-navigation": Language(vocab_size=3, num_classes=MODULUS, draw=_draw_cycle),
    "modular-arithmetic": Language(
        vocab_size=EQUALS + 1, num_classes=MODULUS, draw=_draw_arithmetic, shortest=2, step=2
    ),
    "modular-arithmetic-brackets": Language(
        vocab_size=VOCAB_SIZE, num_classes=MODULUS, draw=draw_brackets, shortest=2
    ),
}


def is_inside(lengths: np.ndarray) -> np.ndarray:
    """Mark the positions of padded sequences that are real: (rows, longest) bool."""
    return np.arange(lengths.max()) < lengths[:, None]


def draw(language: Language, lengths: np.ndarray, seed: int, stream: int) -> Drawn:
    """Draw GROUP sequences: a function of its arguments.

    Args:
        language: the language.
        lengths: the lengths to choose from, all equally likely.
        seed: seed of all splits.
        stream: number of the group, different for all splits and groups.
    """
    random = RandomWords(seed, stream)
    chosen = lengths[random.draw_below(len(lengths), GROUP)]
    tokens, labels = language.draw(random, chosen)
    packed = tokens[is_inside(chosen)].astype(np.uint8)
    return Drawn(packed, chosen.astype(np.int32), labels.astype(np.int8))
