"""Speed over length, and the exponent with which time grows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from lra.report.boards.slugs import slugify
from lra.report.boards.speeds import Place, SpeedBoard
from lra.report.figures.drawing import (
    Looks,
    ReportFigure,
    figure_with_labels,
    length_scale,
    log_scale,
)
from lra.report.figures.drawn_rows import choose_rows, rank
from lra.report.figures.labels import LineEnd, label_ends

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FEWEST = 3
"""Fewest lengths that an exponent is fitted to: any line fits two."""


@dataclass(frozen=True)
class Fit:
    """The power law: seconds per step = exp(intercept) * length ** exponent."""

    exponent: float
    error: float
    """Standard error of the exponent."""
    intercept: float

    def __str__(self) -> str:
        return f"time ~ n^{self.exponent:.2f} ± {self.error:.2f}"


def fit(lengths: Sequence[int], steps_per_second: Sequence[float]) -> Fit:
    """Fit a power law to speeds by least squares on logarithms.

    Raises: ValueError for fewer than three lengths.
    """
    if len(set(lengths)) < FEWEST:
        raise ValueError(f"got lengths {list(lengths)}, expected {FEWEST} or more")
    x, y = np.log(lengths), -np.log(steps_per_second)
    (exponent, intercept), covariance = np.polyfit(x, y, 1, cov=True)
    return Fit(float(exponent), float(np.sqrt(covariance[0, 0])), float(intercept))


def scaling_figures(board: SpeedBoard, looks: Looks) -> list[ReportFigure]:
    """Make a figure per task and batch size that was timed at several lengths."""
    figures = []
    groups: dict[tuple[str, int, tuple[str, ...]], list[Place]] = {}
    for place in board.places:
        key = (place.task, place.batch_size, tuple(place.differences))
        groups.setdefault(key, []).append(place)
    for (task, batch_size, differences), places in groups.items():
        lines: dict[str, list[tuple[int, float]]] = {}
        for method, cells in board.rows.items():
            points = [
                (place.length, speed)
                for place in places
                if place in cells and (speed := cells[place].steps_per_second) is not None
            ]
            if len(points) > 1:
                lines[method] = points
        furthest = {method: points[-1] for method, points in lines.items()}
        lines, note = choose_rows(lines, rank(furthest, "speed at the longest length"))
        if lines:
            figures.append(
                ReportFigure(
                    slugify(
                        "speed-over-length", task, f"batch-{batch_size}", *differences, board.slug
                    ),
                    f"{', '.join([task, *differences])}: speed over length",
                    f"{board.title}; {board.device}; batch {batch_size}. {board.note} Lines: "
                    f"least squares on logarithms, from {FEWEST} lengths on; n^a: time grows with "
                    f"this power of the length, ± its standard error.{note}",
                    partial(_draw, lines, looks, board.unit),
                )
            )
    return figures


def _draw(lines: dict[str, list[tuple[int, float]]], looks: Looks, unit: str) -> Figure:
    fits = {
        method: fit(*zip(*points, strict=True))
        for method, points in lines.items()
        if len(points) >= FEWEST
    }
    names = {method: f"{method}\n{fits.get(method, '')}".strip() for method in lines}
    figure = figure_with_labels(names.values())
    axes = figure.subplots()
    ends: list[LineEnd] = []
    for method, points in lines.items():
        lengths, speeds = zip(*points, strict=True)
        look = looks.line(method)
        axes.plot(lengths, speeds, linestyle="none", marker=look["marker"], color=look["color"])
        x, y = np.array(lengths, dtype=float), np.array(speeds)
        if (found := fits.get(method)) is not None:
            x = x[[0, -1]]
            y = np.exp(-found.intercept) * x**-found.exponent
        axes.plot(x, y, color=look["color"], linestyle=look["linestyle"])
        ends.append(LineEnd(float(x[-1]), float(y[-1]), names[method], look["color"]))
    length_scale(axes, {length for points in lines.values() for length, _ in points})
    log_scale(axes)
    axes.set_ylabel(unit)
    label_ends(axes, ends)
    return figure
