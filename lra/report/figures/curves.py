"""Learning curves: validation accuracy, or loss, over steps, time and FLOPs."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from lra.record.run import RunRecord
from lra.report.boards.board import Board
from lra.report.boards.cells import Cell
from lra.report.boards.results import MetricsLine, Results
from lra.report.boards.slugs import slugify
from lra.report.figures.drawing import (
    Looks,
    ReportFigure,
    figure_with_labels,
    is_stretched,
    log_scale,
)
from lra.report.figures.drawn_rows import choose_rows, rank_by_result
from lra.report.figures.labels import LineEnd, label_ends

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AXES = {
    "steps": "optimizer steps",
    "seconds": "wall-clock time, s",
    "flops": "training FLOPs",
}
"""Label of the x axis, by the name of the quantity that curves are drawn over."""
_NAMES = {"steps": "steps", "seconds": "time", "flops": "FLOPs"}
_CAPTIONS = {
    "steps": "",
    "seconds": " Training and validation so far.",
    "flops": " Matrix products, convolutions, attention and Fourier transforms so far.",
}
_STRETCHED = (
    " The x axis is logarithmic, as one curve is over twice as long as the median one and would "
    "push the others into a corner."
)


@dataclass(frozen=True)
class Curve:
    """Validations of runs that differ only in their seed, at the steps that all have."""

    method: str
    seeds: int
    x: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]


@dataclass(frozen=True)
class Learned:
    """A number of each validation that curves show."""

    name: str
    """Label of the y axis, with the unit."""
    of: Callable[[MetricsLine], float | None]


ACCURACY = Learned("validation accuracy, %", lambda line: line.val_accuracy)
LOSS = Learned("validation loss, nats", lambda line: line.val_loss)


def curve(
    results: Results,
    method: str,
    runs: Sequence[RunRecord],
    axis: str,
    learned: Learned = ACCURACY,
) -> Curve | None:
    """Join the validations of finished runs, or of all where none is finished.

    Args:
        results: the results folder with the runs.
        method: name of the curve.
        runs: runs that differ only in their seed.
        axis: a key of AXES.
        learned: what is drawn over it.
    Returns: the curve; None if the runs have no step in common.
    """
    by_run: list[dict[int, tuple[float, float]]] = []
    done = [run for run in runs if run.status == "done"]
    for run in done or runs:  # one that stopped early would cut the others short
        points: dict[int, tuple[float, float]] = {}
        for line in results.validations(run):
            x = {
                "steps": float(line.step),
                "seconds": line.seconds,
                "flops": run.flops(line.step),
            }[axis]
            y = learned.of(line)
            if x is not None and y is not None:
                points[line.step] = (x, y)
        if points:
            by_run.append(points)
    if not by_run:
        return None
    steps = sorted(set.intersection(*map(set, by_run)))
    at_steps = [[points[step] for points in by_run] for step in steps]
    if not steps:
        return None
    return Curve(
        method=method,
        seeds=len(by_run),
        x=[statistics.mean(x for x, _ in points) for points in at_steps],
        mean=[statistics.mean(y for _, y in points) for points in at_steps],
        low=[min(y for _, y in points) for points in at_steps],
        high=[max(y for _, y in points) for points in at_steps],
    )


def _learned(board: Board) -> Learned:
    return LOSS if board.of_positions else ACCURACY


def curve_figures(results: Results, board: Board, looks: Looks, slug: str) -> list[ReportFigure]:
    """Make the curves of a board: a figure per task and axis, and for times also per device."""
    devices = sorted({run.device for run in board.records})
    rankings = {task: rank_by_result(board, task) for task in board.tasks}
    figures = []
    for task, axis in itertools.product(board.tasks, AXES):
        # Steps and FLOPs are the same on all devices; times are not.
        for device in devices if axis == "seconds" else [None]:
            found, note = choose_rows(_curves(results, board, task, axis, device), rankings[task])
            if not found:
                continue
            curves = list(found.values())
            on = f", on {device}" if device else ""
            stretched = _STRETCHED if is_stretched(_reach(curves)) else ""
            figures.append(
                ReportFigure(
                    slugify("learning", task, "over", _NAMES[axis], slug, device or ""),
                    f"Learning {task} over {_NAMES[axis]}{on}",
                    f"{board.name}; {board.conditions[task]}. Mean over n seeds, finished ones "
                    f"if any; band from the lowest to the highest.{_CAPTIONS[axis]}{stretched}"
                    f"{note}",
                    partial(_draw, curves, axis, _learned(board).name, looks),
                )
            )
    return figures


def _curves(
    results: Results, board: Board, task: str, axis: str, device: str | None
) -> dict[str, Curve]:
    """Make the curve of every method from its runs on one device, or on any device for None."""
    found: dict[str, Curve] = {}
    for method, cells in board.rows.items():
        runs = [r for r in cells.get(task, Cell()).runs if device in (None, r.device)]
        joined = curve(results, method, runs, axis, _learned(board))
        if joined is not None:
            found[method] = joined
    return found


def _reach(curves: Sequence[Curve]) -> list[float]:
    """Return how far each curve goes; a start at 0 counts, which a logarithm cannot show."""
    return [0.0 if drawn.x[0] <= 0 else drawn.x[-1] for drawn in curves]


def _draw(curves: list[Curve], axis: str, label: str, looks: Looks) -> Figure:
    from matplotlib.ticker import EngFormatter, StrMethodFormatter

    names = [f"{drawn.method} (n={drawn.seeds})" for drawn in curves]
    figure = figure_with_labels(names)
    axes = figure.subplots()
    for drawn in curves:
        axes.plot(drawn.x, drawn.mean, markersize=3.5, **looks.line(drawn.method))
        if drawn.seeds > 1:
            axes.fill_between(
                drawn.x, drawn.low, drawn.high, color=looks.colour(drawn.method), alpha=0.15
            )
    if is_stretched(_reach(curves)):
        log_scale(axes, "x")
    else:
        axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(
        EngFormatter(sep=" ") if axis == "flops" else StrMethodFormatter("{x:,.10g}")
    )
    axes.set_xlabel(AXES[axis])
    axes.set_ylabel(label)
    label_ends(
        axes,
        [
            LineEnd(drawn.x[-1], drawn.mean[-1], name, looks.colour(drawn.method))
            for name, drawn in zip(names, curves, strict=True)
        ],
    )
    return figure
