"""Averages over tasks, and which numbers of a column are the best."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal

from lra.report.scores import Cell, Interval
from tasks.base import BENCHMARK

BEST, SECOND = "best", "second"
FIVE = BENCHMARK[:-1]
"""The tasks of the average without Path-X."""
AVERAGES = {"mean of 5": FIVE, "mean of 6": BENCHMARK}
"""Tasks of each average."""


def mean_over(tasks: Sequence[str], values: Mapping[str, float | None]) -> float | None:
    """Average a row over tasks; None if any is missing."""
    found = [value for task in tasks if (value := values.get(task)) is not None]
    return statistics.mean(found) if len(found) == len(tasks) else None


def average(cells: Mapping[str, Cell], tasks: Sequence[str]) -> float | None:
    """Average a row over tasks, in which results at chance count; None if a task has none."""
    return mean_over(tasks, {task: cell.number() for task, cell in cells.items()})


def average_interval(
    values: Sequence[float], intervals: Sequence[Interval | None]
) -> Interval | None:
    """Return the interval of an average over tasks, whose errors are independent; None if any
    number has no interval.
    """
    known = [interval for interval in intervals if interval is not None]
    if not known or len(known) < len(values):
        return None
    if len(known) == 1:
        return known[0]
    half = math.hypot(*((high - low) / 2 for low, high in known)) / len(values)
    mean = statistics.mean(values)
    return mean - half, mean + half


def rounded(value: float, digits: int) -> str:
    """Write a number with so many decimals, halves away from 0, as its decimal form has them.

    Of 54.55 and 46.45 the binary forms lie below and above the half.
    """
    unit = Decimal(1).scaleb(-digits)
    return str(Decimal(repr(float(value))).quantize(unit, ROUND_HALF_UP))


def rank_numbers(
    values: Sequence[float | None],
    digits: int = 2,
    *,
    lowest_is_best: bool = False,
    margin: float | None = None,
) -> dict[int, str]:
    """Mark the best and the second best of two numbers or more, compared as printed.

    With a margin, the largest difference that means nothing, the highest number is the best if all
    others are lower by more; otherwise it and those within are second.
    """
    known = {i: value for i, value in enumerate(values) if value is not None}
    if len(known) < 2:  # noqa: PLR2004
        return {}
    if margin is not None:
        close = [i for i, value in known.items() if value >= max(known.values()) - margin]
        return dict.fromkeys(close, BEST if len(close) == 1 else SECOND)
    shown = {i: float(rounded(value, digits)) for i, value in known.items()}
    order = sorted(set(shown.values()), reverse=not lowest_is_best)
    marks = dict(zip(order, (BEST, SECOND), strict=False))
    return {i: marks[value] for i, value in shown.items() if value in marks}
