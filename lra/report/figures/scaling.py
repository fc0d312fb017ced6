"""Speed over length, and the exponent with which time grows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from lra.report.boards.slugs import slugify
from lra.report.boards.speeds import SpeedBoard, Workload
from lra.report.figures.best_rows import choose_rows, rank
from lra.report.figures.drawing import (
    ReportFigure,
    add_legend,
    new_figure,
    plot_line,
    set_length_scale,
    set_log_scale,
)
from lra.report.figures.styles import MethodStyles, styles_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FEWEST = 3
"""Fewest lengths that an exponent is fitted to: any line fits two."""
Speeds = Sequence[tuple[int, float]]
"""Length in positions and speed, in order of the length."""


@dataclass(frozen=True)
class PowerLaw:
    """The power law: seconds per step = exp(intercept) * length ** exponent."""

    exponent: float
    error: float
    """Standard error of the exponent."""
    intercept: float

    def __str__(self) -> str:
        return f"time ~ n^{self.exponent:.2f} ± {self.error:.2f}"


def fit_power_law(lengths: Sequence[int], steps_per_second: Sequence[float]) -> PowerLaw:
    """Fit a power law to speeds by least squares on logarithms.

    Raises: ValueError for fewer than three lengths.
    """
    if len(set(lengths)) < FEWEST:
        raise ValueError(f"got lengths {list(lengths)}, expected {FEWEST} or more")
    x, y = np.log(lengths), -np.log(steps_per_second)
    (exponent, intercept), covariance = np.polyfit(x, y, 1, cov=True)
    return PowerLaw(float(exponent), float(np.sqrt(covariance[0, 0])), float(intercept))


def scaling_figures(board: SpeedBoard, styles: MethodStyles) -> list[ReportFigure]:
    """Make a figure per task and batch size that was timed at several lengths."""
    figures = []
    groups: dict[tuple[str, int, tuple[str, ...]], list[Workload]] = {}
    for workload in board.workloads:
        key = (workload.task, workload.batch_size, tuple(workload.differences))
        groups.setdefault(key, []).append(workload)
    for (task, batch_size, differences), workloads in groups.items():
        found: dict[str, Speeds] = {}
        for method, cells in board.rows.items():
            points = [
                (workload.length, speed)
                for workload in workloads
                if workload in cells and (speed := cells[workload].steps_per_second) is not None
            ]
            if len(points) > 1:
                found[method] = points
        at_longest = {method: points[-1] for method, points in found.items()}
        found, note = choose_rows(found, rank(at_longest, "speed at the longest length"))
        if found:
            figures.append(
                ReportFigure(
                    slugify(
                        "speed-over-length", task, f"batch-{batch_size}", *differences, board.slug
                    ),
                    f"{', '.join([task, *differences])}: speed over length",
                    f"{board.title}; {board.device}; batch {batch_size}. {board.note} Lines "
                    f"are least-squares fits on logarithms to {FEWEST} or more lengths. n^a means "
                    f"that time grows with this power of the length, ± its standard error.{note}",
                    partial(_draw, found, styles_of(found, styles), board.unit),
                )
            )
    return figures


def _draw(found: Mapping[str, Speeds], styles: MethodStyles, unit: str) -> Figure:
    names: dict[str, str] = {}
    lines: dict[str, Sequence[tuple[float, float]]] = {}
    for method, speeds in found.items():
        names[method], lines[method] = method, speeds
        if len(speeds) >= FEWEST:
            law = fit_power_law(*zip(*speeds, strict=True))
            names[method] = f"{method}\n{law}"
            ends = speeds[0][0], speeds[-1][0]
            lines[method] = [(n, float(np.exp(-law.intercept)) * n**-law.exponent) for n in ends]
    figure = new_figure(names.values())
    axes = figure.subplots()
    for method, speeds in found.items():
        line_style = styles[method]
        axes.plot(*zip(*speeds, strict=True), **{**line_style, "linestyle": "none"})
        line_style = {**line_style, "marker": ""}
        plot_line(axes, method, lines[method], line_style, name=names[method])
    set_length_scale(axes, {length for speeds in found.values() for length, _ in speeds})
    set_log_scale(axes)
    axes.set_ylabel(unit)
    add_legend(figure)
    return figure
