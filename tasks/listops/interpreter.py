"""The value of ListOps expressions: read token by token, plain and compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numba import njit

from common.errors import DataError
from tasks.listops.law import CLOSE_ID, DIGIT_ID, OPERATOR_ID, OPERATORS, TOKENS, Expressions

_MALFORMED = -1
_DIGITS = 10
_MIN, _MAX, _SM = (OPERATOR_ID + OPERATORS.index(name) for name in ("[MIN", "[MAX", "[SM"))


class ExpressionStatistics(NamedTuple):
    """What expressions are made of; for one that is malformed, only the value counts."""

    values: np.ndarray
    """(expressions,) int64, the value of each, 0..9; -1 if it is malformed."""
    depths: np.ndarray
    """(expressions,) int64, how deep operators are nested: 1 if only the root is one."""
    fewest: np.ndarray
    """(expressions,) int64, arguments of the operator with the fewest."""
    most: np.ndarray
    """(expressions,) int64, arguments of the operator with the most."""


def evaluate_expression(tokens: bytes) -> int:
    """Evaluate one expression by reading its token ids: the reference for all other evaluations.

    Raises: ValueError if it is not one operator with its arguments and matching brackets.
    """
    stack: list[list[int]] = []
    value = 0
    for position, token in enumerate(tokens, start=1):
        name = f"token {position}, {TOKENS[token - 1]!r},"
        if token == CLOSE_ID and stack:
            operator, *arguments = stack.pop()
            if not arguments:
                raise ValueError(f"{name} closes an operator that has no arguments")
            value = _OPERATIONS[operator - OPERATOR_ID](arguments)
            if stack:
                stack[-1].append(value)
            elif position < len(tokens):
                raise ValueError(f"{name} ends the expression, but more follows")
        elif OPERATOR_ID <= token < CLOSE_ID:
            stack.append([token])
        elif stack and DIGIT_ID <= token < OPERATOR_ID:
            stack[-1].append(token - DIGIT_ID)
        else:
            raise ValueError(f"{name} stands outside the brackets of an operator")
    if stack or not tokens:
        raise ValueError(f"the brackets do not match: {len(stack)} operators are not closed")
    return value


def _median(arguments: list[int]) -> int:
    ordered = sorted(arguments)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) // 2


_OPERATIONS = (min, max, _median, lambda arguments: sum(arguments) % 10)


def compute_statistics(expressions: Expressions) -> ExpressionStatistics:
    """Evaluate expressions and count what they are made of: `evaluate_expression`, compiled."""
    count, longest = len(expressions.lengths), int(expressions.lengths.max(initial=0))
    found = ExpressionStatistics(*np.zeros((4, count), dtype=np.int64))
    # An operator at depth d needs d tokens to be opened, and an argument has one at least.
    arguments = np.zeros((longest + 1, _DIGITS), dtype=np.int64)
    operators = np.zeros(longest + 1, dtype=np.int64)
    _fill_statistics(expressions.tokens, expressions.lengths, operators, arguments, *found)
    return found


@njit(nogil=True, cache=True)
def _fill_statistics(tokens, lengths, operators, arguments, values, depths, fewest, most):  # noqa: PLR0917
    """Fill values, depths, fewest and most; arguments (levels, 10) count those of each value."""
    start = 0
    for i in range(len(lengths)):
        depth, value, least = 0, 0, len(tokens)
        is_whole = lengths[i] > 0
        for position in range(start, start + lengths[i]):
            token = tokens[position]
            if depth == 0 and (position > start or not OPERATOR_ID <= token < CLOSE_ID):
                is_whole = False
                break
            if token < OPERATOR_ID:
                arguments[depth, token - DIGIT_ID] += 1
            elif token < CLOSE_ID:
                depth += 1
                operators[depth] = token
                arguments[depth] = 0
                depths[i] = max(depths[i], depth)
            else:
                count = arguments[depth].sum()
                if count == 0:
                    is_whole = False
                    break
                least = min(least, count)
                most[i] = max(most[i], count)
                value = _apply(operators[depth], arguments[depth], count)
                depth -= 1
                arguments[depth, value] += 1
        fewest[i] = least
        values[i] = value if is_whole and depth == 0 else _MALFORMED
        start += lengths[i]


@njit(nogil=True, cache=True)
def _apply(operator, counts, count):
    """Apply an operator to arguments of which there are counts (10,) by value, count in all."""
    if operator == _SM:
        total = 0
        for value in range(_DIGITS):
            total += value * counts[value]
        return total % _DIGITS
    if operator == _MIN:
        return _ranked(counts, 0)
    if operator == _MAX:
        return _ranked(counts, count - 1)
    return (_ranked(counts, (count - 1) // 2) + _ranked(counts, count // 2)) // 2


@njit(nogil=True, cache=True)
def _ranked(counts, rank):
    """Find the argument with this rank, 0 for the smallest."""
    value = 0
    seen = counts[0]
    while seen <= rank:
        value += 1
        seen += counts[value]
    return value


def check_answers(
    expressions: Expressions, found: ExpressionStatistics, place: Callable[[int], str]
) -> None:
    """Compare labels with the values of expressions.

    Args:
        expressions: the expressions and their labels.
        found: their statistics.
        place: says where the expression with an index is from.
    Raises: DataError naming the first that is malformed, or whose label is wrong.
    """
    wrong = np.flatnonzero(found.values != expressions.labels)
    if not len(wrong):
        return
    first = int(wrong[0])
    start = int(expressions.lengths[:first].sum())
    tokens = expressions.tokens[start : start + int(expressions.lengths[first])].tobytes()
    try:
        what = (
            f"is worth {evaluate_expression(tokens)}, but its label is {expressions.labels[first]}"
        )
    except ValueError as error:
        what = f"is malformed: {error}"
    more = f" ({len(wrong):,} such expressions in all)" if len(wrong) > 1 else ""
    raise DataError(f"{place(first)}: the expression {what}{more}")
