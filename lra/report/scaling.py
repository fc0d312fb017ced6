"""Speed over length, and the exponent with which time grows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from lra.report.drawing import (
    Looks,
    ReportFigure,
    legend_below,
    legend_name,
    length_scale,
    log_scale,
    new_figure,
)
from lra.report.speed import Place, SpeedBoard

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FEWEST_FOR_ERROR = 3
"""Fewest points that give an error of the exponent."""


@dataclass(frozen=True)
class Fit:
    """The power law: seconds per step = exp(intercept) * length ** exponent."""

    exponent: float
    error: float | None
    """Standard error of the exponent; None for two points, which any line fits."""
    intercept: float

    def __str__(self) -> str:
        error = "" if self.error is None else f" ± {self.error:.2f}"
        return f"time ~ n^{self.exponent:.2f}{error}"


def fit(lengths: Sequence[int], steps_per_second: Sequence[float]) -> Fit:
    """Fit a power law to speeds by least squares on logarithms.

    Raises: ValueError for fewer than two lengths.
    """
    from scipy.stats import linregress

    if len(set(lengths)) < 2:  # noqa: PLR2004
        raise ValueError(f"got lengths {list(lengths)}, expected two or more")
    line: Any = linregress(np.log(lengths), -np.log(steps_per_second))
    error = float(line.stderr) if len(lengths) >= FEWEST_FOR_ERROR else None
    return Fit(float(line.slope), error, float(line.intercept))


def scaling_figures(board: SpeedBoard, looks: Looks, slug: str) -> list[ReportFigure]:
    """Make a figure per task and batch size that was timed at several lengths."""
    figures = []
    groups: dict[tuple[str, int], list[Place]] = {}
    for place in board.places:
        groups.setdefault((place.task, place.batch_size), []).append(place)
    for (task, batch_size), places in groups.items():
        lines: dict[str, list[tuple[int, float]]] = {}
        for method, cells in board.rows.items():
            points = [
                (place.length, speed)
                for place in places
                if place in cells and (speed := cells[place].steps_per_second) is not None
            ]
            if len(points) > 1:
                lines[method] = points
        if lines:
            figures.append(
                ReportFigure(
                    f"{slug}-{task}-{batch_size}-lengths",
                    f"{task}: speed over length",
                    f"{board.title}; {board.device}; batch {batch_size}. {board.note} Lines: "
                    f"least squares on logarithms.",
                    partial(_draw, lines, looks, board.unit),
                )
            )
    return figures


def _draw(lines: dict[str, list[tuple[int, float]]], looks: Looks, unit: str) -> Figure:
    fits = {m: fit(*zip(*points, strict=True)) for m, points in sorted(lines.items())}
    names = {method: f"{method}: {found}" for method, found in fits.items()}
    figure = new_figure(names.values())
    axes = figure.subplots()
    for method, points in sorted(lines.items()):
        lengths, speeds = zip(*points, strict=True)
        found = fits[method]
        look = looks.line(method)
        axes.plot(
            lengths, speeds, linestyle="none", marker=look["marker"], color=look["color"],
            label=legend_name(names[method]),
        )  # fmt: skip
        ends = np.array([min(lengths), max(lengths)], dtype=float)
        fitted = np.exp(-found.intercept) * ends**-found.exponent
        axes.plot(ends, fitted, color=look["color"], linestyle=look["linestyle"])
    length_scale(axes, {length for points in lines.values() for length, _ in points})
    log_scale(axes)
    axes.set_ylabel(unit)
    legend_below(axes)
    return figure
