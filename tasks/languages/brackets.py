"""Modular arithmetic with brackets: a context-free language.

Delétang et al., "Neural Networks and the Chomsky Hierarchy", ICLR 2023 (arXiv:2207.02098), and
google-deepmind/neural_networks_chomsky_hierarchy, tasks/dcf/modular_arithmetic_brackets.py. With d
for a digit, an expression of 1, 2, 3 or 4 symbols is d, -d, (d) or (-d). A longer one of n symbols
is (left operator right). The left one has 1 to n - 4 symbols, uniformly, and the right one has the
rest. Digits and operators are uniform.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tasks.languages.symbols import CLOSE, EQUALS, MINUS, MODULUS, OPEN, PLUS, TIMES
from tasks.random_words import RandomWords

SHORT = 4
"""Most symbols of an expression that has no parts."""


@dataclass(frozen=True)
class _Expressions:
    """Parts of sequences, each a whole expression: three arrays of one size."""

    rows: np.ndarray
    """Index of the sequence."""
    starts: np.ndarray
    """First position in the sequence."""
    lengths: np.ndarray

    def where(self, which: np.ndarray) -> _Expressions:
        """Choose some by a mask."""
        return _Expressions(self.rows[which], self.starts[which], self.lengths[which])


def draw_brackets(random: RandomWords, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Draw expressions in brackets, and "="; the label is the value.

    Args:
        random: the random words.
        lengths: (sequences,) positions of each, "=" included.
    Returns: tokens (sequences, longest) int64, 0 beyond the lengths, and labels (sequences,).
    """
    rows = np.arange(len(lengths))
    tokens = np.zeros((len(lengths), int(lengths.max())), dtype=np.int64)
    tokens[rows, lengths - 1] = EQUALS
    level = _Expressions(rows, np.zeros_like(rows), lengths - 1)
    values: list[np.ndarray] = []
    operators: list[np.ndarray] = []
    while len(level.rows):
        is_short = level.lengths <= SHORT
        value = np.zeros(len(is_short), dtype=np.int64)
        value[is_short] = _write_short(random, tokens, level.where(is_short))
        operator, level = _write_operators(random, tokens, level.where(~is_short))
        values.append(np.where(is_short, value, -1))
        operators.append(operator)
    return tokens, _evaluate(values, operators)


def _write_short(random: RandomWords, tokens: np.ndarray, short: _Expressions) -> np.ndarray:
    """Write expressions without parts into tokens; return their values."""
    digits = random.draw_below(MODULUS, len(short.rows))
    is_negative, in_brackets = short.lengths % 2 == 0, short.lengths > 2  # noqa: PLR2004
    after = short.starts + in_brackets
    tokens[short.rows, short.starts] = OPEN
    tokens[short.rows, short.starts + short.lengths - 1] = CLOSE
    tokens[short.rows, after] = MINUS
    tokens[short.rows, after + is_negative] = digits
    return np.where(is_negative, -digits, digits) % MODULUS


def _write_operators(
    random: RandomWords, tokens: np.ndarray, long: _Expressions
) -> tuple[np.ndarray, _Expressions]:
    """Write brackets and operators into tokens.

    Returns: the operators, and the parts: first all the left ones, then all the right ones.
    """
    count = len(long.rows)
    left = 1 + random.draw_below(long.lengths - SHORT, count)
    operators = np.array([PLUS, MINUS, TIMES])[random.draw_below(3, count)]
    middle = long.starts + 1 + left
    tokens[long.rows, long.starts] = OPEN
    tokens[long.rows, middle] = operators
    tokens[long.rows, long.starts + long.lengths - 1] = CLOSE
    parts = _Expressions(
        np.concatenate([long.rows, long.rows]),
        np.concatenate([long.starts + 1, middle + 1]),
        np.concatenate([left, long.lengths - left - 3]),
    )
    return operators, parts


def _evaluate(values: list[np.ndarray], operators: list[np.ndarray]) -> np.ndarray:
    """Calculate the values of whole sequences, from the innermost expressions outwards.

    Args:
        values: of the expressions at each depth, -1 where they have parts, which are at the next.
        operators: of the expressions at each depth that have parts.
    """
    inner = np.zeros(0, dtype=np.int64)
    for value, operator in zip(reversed(values), reversed(operators), strict=True):
        left, right = np.split(inner, 2)
        results = np.select(
            [operator == PLUS, operator == MINUS], [left + right, left - right], left * right
        )
        value[value < 0] = results % MODULUS
        inner = value
    return inner
