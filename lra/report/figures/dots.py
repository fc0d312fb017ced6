"""Dot plots: a line for each row, with a marker for each condition that it was measured under."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lra.report.figures.drawing import add_legend, new_figure
from lra.report.figures.intervals import Interval
from lra.report.figures.series import describe, mark

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLES = (
    ("v", "#c4501b"), ("o", "#1f5fa8"), ("^", "#2c8a4b"), ("s", "#7b4aa0"), ("D", "#8a6d00"),
)  # fmt: skip
"""Marker and colour of each condition."""
_ROW = 0.2
"""Height of a row in inches, or of a condition in it where intervals are drawn."""
_SPREAD = 0.7
"""Share of a row's height that its conditions take where intervals are drawn, which overlap."""


@dataclass(frozen=True)
class Dot:
    """A number of a row under one condition."""

    condition: int
    """Which of the figure's conditions."""
    value: float
    text: str = ""
    """What the page says of it, besides its value."""
    interval: Interval | None = None
    is_filled: bool = True


def draw_dots(
    rows: Sequence[tuple[str, Sequence[Dot]]], conditions: Sequence[str], label: str
) -> Figure:
    """Draw the dots of each row, joined by a line from the lowest to the highest.

    Dots with intervals are not joined: they stand below each other, in the order of the conditions.

    Args:
        rows: the name of each row, which begins with its mixer, and its dots; the first is on top.
        conditions: their names in the legend.
        label: label of the axis, with the unit.
    """
    count = len(conditions)
    is_spread = any(dot.interval for _, dots in rows for dot in dots)
    height = _ROW * len(rows) * (count if is_spread else 1)
    figure = new_figure(conditions, height=0.7 + height)
    axes = figure.subplots()
    named: set[int] = set()
    for row, (name, dots) in enumerate(rows):
        values = [dot.value for dot in dots]
        if not is_spread:
            axes.plot(
                [min(values), max(values)], [row, row], color="#bbbbbb", linewidth=1.5, zorder=1
            )
        for dot in dots:
            y = row + is_spread * _SPREAD * ((dot.condition + 0.5) / count - 0.5)
            marker, colour = _STYLES[dot.condition]
            if dot.interval is not None:
                axes.plot(dot.interval, [y, y], color=colour, linewidth=0.8, zorder=1.5)
            (point,) = axes.plot(
                [dot.value], [y], marker=marker, markersize=5.5, linestyle="none",
                markerfacecolor=colour if dot.is_filled else "white", markeredgecolor=colour,
                label=None if dot.condition in named else conditions[dot.condition],
            )  # fmt: skip
            named.add(dot.condition)
            what = ", ".join(filter(None, [conditions[dot.condition], dot.text]))
            mark(point, name, [f"{what}: {describe(label, dot.value, dot.interval or ())}"])
    axes.set_yticks(range(len(rows)), [name for name, _ in rows])
    axes.invert_yaxis()
    axes.set_xlabel(label)
    handles = add_legend(figure)
    if not all(dot.is_filled for _, dots in rows for dot in dots):
        for handle in handles:
            handle.set_markerfacecolor("white")  # not as in the first row
    return figure
