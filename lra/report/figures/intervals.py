"""How far a result could be from the true value: the intervals that figures draw."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lra.record.intervals import wilson_interval
from lra.report.boards.cells import AnyResult, Cell
from lra.report.boards.measures import ACCURACY, Measure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Interval = tuple[float, float]
"""Lower and upper end."""

SPREAD = "Vertical bars show the standard deviation over seeds."
INTERVALS = (
    "Vertical bars show the standard deviation over seeds or, for a single seed, the 95 % binomial "
    "interval (Wilson) of its test accuracy."
)
"""Sentences for captions: what the bars at accuracies show, and those at other measures."""


def interval_of(cell: Cell[AnyResult], measure: Measure) -> Interval | None:
    """Return the interval of a cell's number.

    Of several seeds it is the mean ± standard deviation, of one the 95 % interval of its accuracy.
    None for one seed of any other measure.
    """
    mean, deviation = cell.mean_of(measure), cell.deviation_of(measure)
    if mean is not None and deviation is not None:
        return mean - deviation, mean + deviation
    totals = [run.test_examples for run in cell.runs if measure.of(run) is not None]
    if mean is None or measure is not ACCURACY or not totals or not totals[0]:
        return None
    return wilson_interval(mean / 100, totals[0])


def average_interval(
    values: Sequence[float], intervals: Sequence[Interval | None]
) -> Interval | None:
    """Return the interval of an average over tasks, whose errors are independent.

    Args:
        values: the number of each task.
        intervals: their intervals; the average has one if all have.
    """
    known = [interval for interval in intervals if interval is not None]
    if not known or len(known) < len(values):
        return None
    if len(known) == 1:
        return known[0]
    halves = [(high - low) / 2 for low, high in known]
    half = math.hypot(*halves) / len(values)
    mean = statistics.mean(values)
    return mean - half, mean + half


def draw_intervals(
    axes: Axes,
    points: Sequence[tuple[float, float]],
    intervals: Sequence[Interval],
    colour: str,
) -> None:
    """Draw a vertical bar at each point, from the lower to the upper end of its interval."""
    x = [point[0] for point in points]
    low, high = zip(*intervals, strict=True)
    axes.vlines(x, low, high, color=colour, linewidth=0.8, zorder=1.5)
