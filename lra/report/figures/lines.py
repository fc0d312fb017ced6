"""Figures of lines: a table's numbers over length or another option, and learning curves."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from lra.report.boards import Board
from lra.report.data import Data
from lra.report.figures.drawing import (
    ReportFigure,
    add_legend,
    draw_intervals,
    legend_name,
    new_figure,
    set_length_scale,
    set_log_scale,
)
from lra.report.names import slugify
from lra.report.points import has_outlier
from lra.report.scores import Interval
from lra.report.styles import GRAY, RowStyles, styles_of
from lra.report.tables.results import RANKS
from lra.report.tables.table import Column, Entry, Line, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BASELINE = "best trivial baseline"
MOST_ROWS = 30
"""Most rows that a figure draws: nobody can read the labels of more."""
_GRAY_LINE = {"color": GRAY, "linestyle": ":", "zorder": 0}
FEWEST = 3
"""Fewest lengths that an exponent is fitted to: any line fits two."""


@dataclass(frozen=True)
class Series:
    """A line of a figure: places on the x axis in order, numbers and, if known, their intervals."""

    x: Sequence[float | str]
    y: Sequence[float]
    intervals: Sequence[Interval] = ()
    detail: str = ""
    """What the legend says after the name."""


@dataclass(frozen=True)
class PowerLaw:
    """The power law: seconds per step = exp(intercept) * length ** exponent."""

    exponent: float
    error: float
    """Standard error of the exponent."""
    intercept: float

    def __str__(self) -> str:
        return f"time ~ n^{self.exponent:.2f} ± {self.error:.2f}"


def fit_power_law(lengths: Sequence[float], steps_per_second: Sequence[float]) -> PowerLaw:
    """Fit a power law to speeds by least squares on logarithms.

    Raises: ValueError for fewer than three lengths.
    """
    if len(set(lengths)) < FEWEST:
        raise ValueError(f"got lengths {list(lengths)}, expected {FEWEST} or more")
    x, y = np.log(lengths), -np.log(steps_per_second)
    (exponent, intercept), covariance = np.polyfit(x, y, 1, cov=True)
    return PowerLaw(float(exponent), float(np.sqrt(covariance[0, 0])), float(intercept))


def line_figures(table: Table, styles: RowStyles) -> list[ReportFigure]:
    """Draw what the lines of a table join, a figure each.

    Speeds, whose axis is logarithmic, are shown with the power law that fits them.
    """
    made: list[ReportFigure] = []
    for title, line in table.lines.items():
        series = _series_of(table, line)
        shown = {row: series[row] for row in [*series][:MOST_ROWS]}
        missing = [row for row in series if row not in shown]
        what = table.caption.replace(RANKS, "").strip()
        notes = [f"Of {len(series):,} rows, {MOST_ROWS} are drawn."] * bool(missing)
        notes += ["Vertical lines: lengths in training."] * bool(line.marks)
        notes += [_describe_bars(table, line)] * any(one.intervals for one in shown.values())
        if shown and max(len(one.x) for one in shown.values()) > 1:
            looks = styles_of(shown, {**styles, BASELINE: _GRAY_LINE})
            figure = ReportFigure(
                slugify(table.slug, title),
                f"{table.title}: {title}" if len(table.lines) > 1 else table.title,
                " ".join([what, *notes]),
                partial(draw_lines, shown, line, looks),
            )
            made.append(figure)
    return made


def _describe_bars(table: Table, line: Line) -> str:
    if line.is_logarithmic:
        return "Bars: quartiles of the rounds."
    shown = [column for column in table.columns if column.name in line.places]
    if all(entry.deviation is None for column in shown for entry in column.entries):
        return "Bars: 95 % intervals."
    return "Bars: standard deviations over seeds or, for a single seed, 95 % intervals."


def _series_of(table: Table, line: Line) -> dict[str, Series]:
    """Take the numbers that a line joins from a table; of rows beneath, trivial baselines alone."""
    columns = {column.name: column for column in table.columns}
    places = sorted(line.places.items(), key=lambda item: (isinstance(item[1], str), item[1]))
    found: dict[str, Series] = {}
    rows = {row: [i] for i, row in enumerate(table.columns[0].texts)}
    trivial = [i for row, (i,) in rows.items() if row.startswith("trivial baseline")]
    rows = {row: rows[row] for row in table.methods}
    if trivial:
        rows[BASELINE] = trivial
    for row, numbers in rows.items():
        cells = [(x, _best(columns[name], numbers)) for name, x in places if name in columns]
        points = [(x, entry.value, entry.interval) for x, entry in cells if entry.value is not None]
        if points:
            x, y, intervals = zip(*points, strict=True)
            known = [one for one in intervals if one is not None]
            law = ""
            if line.is_logarithmic and len(x) >= FEWEST and line.y.endswith("/s"):
                law = str(fit_power_law(x, y))
            found[row] = Series(x, y, known if len(known) == len(x) else (), law)
    return found


def _best(column: Column, rows: Sequence[int]) -> Entry:
    """Return the entry of one row, or the best of several."""
    entries = [column.entries[i] for i in rows]
    sign = -1 if column.lowest_is_best else 1
    return max(entries, key=lambda one: -math.inf if one.value is None else sign * one.value)


def draw_lines(series: Mapping[str, Series], line: Line, styles: RowStyles) -> Figure:
    """Draw series over an axis of lengths, or of names."""
    names = {row: f"{row}\n{one.detail}" if one.detail else row for row, one in series.items()}
    figure = new_figure(names.values())
    axes = figure.subplots()
    is_named = any(isinstance(x, str) for one in series.values() for x in one.x)
    for number, (row, one) in enumerate(series.items()):
        if is_named:
            # Side by side, so that intervals do not overlap.
            shift = (number - (len(series) - 1) / 2) * (0.6 / len(series))
            places = [float(list(line.places.values()).index(x)) + shift for x in one.x]
        else:
            places = [float(x) for x in one.x]
        look = {**styles[row], **({"linestyle": "none"} if is_named else {})}
        axes.plot(places, one.y, label=legend_name(names[row]), **look)
        if one.intervals:
            draw_intervals(axes, places, one.intervals, styles[row]["color"])
    if is_named:
        ticks = [str(x) for x in line.places.values()]
        axes.set_xticks(range(len(ticks)), ticks)
    else:
        set_length_scale(axes, [float(x) for one in series.values() for x in one.x])
    if line.is_logarithmic:
        set_log_scale(axes)
    for mark in line.marks:
        axes.axvline(mark, color=GRAY, linewidth=0.8, zorder=0)
    axes.set(xlabel=line.x, ylabel=line.y)
    add_legend(figure)
    return figure


def curve_figures(data: Data, board: Board, styles: RowStyles) -> list[ReportFigure]:
    """Draw the validations of each task over optimizer steps, in the mean over seeds."""
    made: list[ReportFigure] = []
    field = "val_loss" if board.of_positions else "val_accuracy"
    label = "validation loss, nats" if board.of_positions else "validation accuracy, %"
    for task in board.tasks:
        curves: dict[str, Series] = {}
        for row, cells in board.sorted_by(task).rows.items():
            runs = (
                [run for run in cells[task].runs if run.status == "done"] if task in cells else []
            )
            by_run = [
                {
                    line.step: y
                    for line in data.metrics(run)
                    if (y := getattr(line, field)) is not None
                }
                for run in runs
            ]
            by_run = [points for points in by_run if points]
            steps = sorted(set.intersection(*map(set, by_run))) if by_run else []
            if steps and len(curves) < MOST_ROWS:
                values = [[points[step] for points in by_run] for step in steps]
                bands = [(min(found), max(found)) for found in values] if len(by_run) > 1 else ()
                means = [statistics.mean(found) for found in values]
                curves[row] = Series(
                    [float(s) for s in steps],
                    means,
                    bands,
                    f" (n={len(by_run)})" * (len(by_run) > 1),
                )
        if curves:
            made.append(
                ReportFigure(
                    slugify("learning", task, board.slug),
                    f"Learning curves: {task}",
                    f"{board.name}; {board.conditions[task]}. Mean over the n seeds that have "
                    f"finished. Bands reach from the lowest to the highest seed.",
                    partial(_draw_curves, curves, label, styles_of(curves, styles)),
                )
            )
    return made


def _draw_curves(curves: Mapping[str, Series], label: str, styles: RowStyles) -> Figure:
    from matplotlib.ticker import StrMethodFormatter

    figure = new_figure(row + one.detail for row, one in curves.items())
    axes = figure.subplots()
    for row, one in curves.items():
        x = [float(step) for step in one.x]
        axes.plot(x, one.y, label=legend_name(row + one.detail), **styles[row])
        if one.intervals:
            low, high = zip(*one.intervals, strict=True)
            axes.fill_between(x, low, high, color=styles[row]["color"], alpha=0.15, linewidth=0)
    if has_outlier([float(one.x[-1]) for one in curves.values()]):
        set_log_scale(axes, "x")
    else:
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
    axes.set(xlabel="optimizer steps", ylabel=label)
    add_legend(figure)
    return figure
