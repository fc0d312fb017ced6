"""Learning curves: validation accuracy, or loss, over steps, time and FLOPs."""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from lra.record.intervals import wilson_interval
from lra.record.run import RunRecord
from lra.report.boards.board import Board
from lra.report.boards.cells import Cell
from lra.report.boards.results import MetricsLine, Results
from lra.report.boards.slugs import slugify
from lra.report.figures.best_rows import choose_rows, rank_by_result
from lra.report.figures.drawing import (
    ReportFigure,
    add_legend,
    has_outlier,
    new_figure,
    plot_line,
    set_log_scale,
)
from lra.report.figures.intervals import Interval, draw_intervals
from lra.report.figures.styles import MethodStyles, styles_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Cost(NamedTuple):
    """What training has taken until a validation: the x axis of learning curves."""

    name: str
    label: str
    """Label of the axis, with the unit."""
    of: Callable[[RunRecord, MetricsLine], float | None]
    note: str = ""
    """Sentence for the caption."""


STEPS = Cost("steps", "optimizer steps", lambda _, line: float(line.step))
TIME = Cost(
    "time",
    "wall-clock time, s",
    lambda _, line: line.seconds,
    " Time is of training and validation so far.",
)
FLOPS = Cost(
    "FLOPs",
    "training FLOPs",
    lambda run, line: run.flops(line.step),
    " FLOPs are of matrix products, convolutions, attention and Fourier transforms so far.",
)
COSTS = (STEPS, TIME, FLOPS)
_LOGARITHMIC = (
    " The x axis is logarithmic because one curve is more than twice as long as the median curve."
)


class ValidationMeasure(NamedTuple):
    """A number of each validation that curves show."""

    label: str
    """Label of the y axis, with the unit."""
    of: Callable[[MetricsLine], float | None]
    is_proportion: bool = False
    """Whether it is the percentage of the examples that are right."""

    @property
    def intervals(self) -> str:
        """What bands and bars show, for a caption."""
        band = "Bands reach from the lowest to the highest seed."
        bar = " A bar after the end is the 95 % binomial interval (Wilson) of a single seed."
        return band + bar * self.is_proportion


ACCURACY = ValidationMeasure("validation accuracy, %", lambda line: line.val_accuracy, True)
LOSS = ValidationMeasure("validation loss, nats", lambda line: line.val_loss)


@dataclass(frozen=True)
class Curve:
    """Validations of runs that differ only in their seed, at the steps that all have."""

    method: str
    seeds: int
    points: list[tuple[float, float]]
    """Cost of training and mean over seeds."""
    intervals: list[Interval]
    """Lowest and highest value at each point; for a single seed the 95 % interval of its accuracy,
    and nothing for its loss."""

    @property
    def name(self) -> str:
        """The method, with the number of seeds."""
        return f"{self.method} (n={self.seeds})"


def learning_curve(
    results: Results,
    method: str,
    runs: Sequence[RunRecord],
    cost: Cost,
    measure: ValidationMeasure = ACCURACY,
) -> Curve | None:
    """Join the validations of finished runs, or of all where none is finished.

    Args:
        results: the results folder with the runs.
        method: name of the curve.
        runs: runs that differ only in their seed.
        cost: the x axis.
        measure: the y axis.
    Returns: the curve; None if the runs have no step in common.
    """
    by_run: list[tuple[RunRecord, dict[int, tuple[float, float]]]] = []
    done = [run for run in runs if run.status == "done"]
    for run in done or runs:  # one that stopped early would cut the others short
        points: dict[int, tuple[float, float]] = {}
        for line in results.validations(run):
            x, y = cost.of(run, line), measure.of(line)
            if x is not None and y is not None:
                points[line.step] = (x, y)
        if points:
            by_run.append((run, points))
    steps = sorted(set.intersection(*(set(points) for _, points in by_run))) if by_run else []
    if not steps:
        return None
    at_steps = [tuple(zip(*(points[step] for _, points in by_run), strict=True)) for step in steps]
    return Curve(
        method,
        len(by_run),
        [(statistics.mean(x), statistics.mean(y)) for x, y in at_steps],
        _intervals([y for _, y in at_steps], by_run[0][0], measure),
    )


def _intervals(
    values: Sequence[tuple[float, ...]], first: RunRecord, measure: ValidationMeasure
) -> list[Interval]:
    """Return the intervals of values of all seeds, step by step; of one seed by its examples."""
    if len(values[0]) > 1:
        return [(min(found), max(found)) for found in values]
    examples = first.data.sizes.get(first.selected_on or "val")
    if not measure.is_proportion or not examples:
        return []
    return [wilson_interval(value / 100, examples) for (value,) in values]


def curve_figures(
    results: Results, board: Board, styles: MethodStyles, slug: str
) -> list[ReportFigure]:
    """Make the curves of a board: a figure per task and cost, and for times also per device."""
    devices = sorted({run.device for run in board.records})
    rankings = {task: rank_by_result(board, task) for task in board.tasks}
    measure = LOSS if board.of_positions else ACCURACY
    figures = []
    for task, cost in itertools.product(board.tasks, COSTS):
        # Steps and FLOPs are the same on all devices; times are not.
        for device in devices if cost is TIME else [None]:
            every: dict[str, Curve] = {}
            for method, cells in board.rows.items():
                runs = [r for r in cells.get(task, Cell()).runs if device in (None, r.device)]
                curve = learning_curve(results, method, runs, cost, measure)
                if curve is not None:
                    every[method] = curve
            chosen, note = choose_rows(every, rankings[task])
            if not chosen:
                continue
            curves = list(chosen.values())
            on = f", on {device}" if device else ""
            logarithmic = _LOGARITHMIC if _is_logarithmic(curves) else ""
            figures.append(
                ReportFigure(
                    slugify("learning", task, "over", cost.name, slug, device or ""),
                    f"Learning {task} over {cost.name}{on}",
                    f"{board.name}; {board.conditions[task]}. Mean over the n seeds that have "
                    f"finished, or over all where none has. {measure.intervals}"
                    f"{cost.note}{logarithmic}{note}",
                    partial(_draw, curves, cost.label, measure.label, styles_of(chosen, styles)),
                )
            )
    return figures


def _is_logarithmic(curves: Sequence[Curve]) -> bool:
    """Whether one curve is far longer than the others; a logarithm cannot show a start at 0."""
    first, last = ([curve.points[k][0] for curve in curves] for k in (0, -1))
    return min(first) > 0 and has_outlier(last)


def _draw(curves: Sequence[Curve], x_label: str, y_label: str, styles: MethodStyles) -> Figure:
    from matplotlib.ticker import EngFormatter, StrMethodFormatter

    figure = new_figure(curve.name for curve in curves)
    axes = figure.subplots()
    is_logarithmic = _is_logarithmic(curves)
    longest = max(curve.points[-1][0] for curve in curves)
    ends: Counter[float] = Counter()
    for curve in curves:
        line, (end, y) = styles[curve.method], curve.points[-1]
        is_one_seed = curve.seeds == 1
        plot_line(
            axes,
            curve.method,
            curve.points,
            line,
            name=curve.name,
            band=[] if is_one_seed else curve.intervals,
        )
        if is_one_seed and curve.intervals:
            # A band for each curve would hide the others: bars stand side by side after the end.
            ends[end] += 1
            x = end * 1.015 ** ends[end] if is_logarithmic else end + 0.01 * ends[end] * longest
            draw_intervals(axes, [(x, y)], curve.intervals[-1:], line["color"])
    if is_logarithmic:
        set_log_scale(axes, "x")
    else:
        axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(
        EngFormatter(sep=" ") if x_label == FLOPS.label else StrMethodFormatter("{x:,.10g}")
    )
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    add_legend(figure)
    return figure
