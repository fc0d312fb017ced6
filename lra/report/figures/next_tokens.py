"""Figures of tasks whose targets are positions: perplexity over length, bits over position."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from lra.record.evaluation import EvaluationRecord
from lra.report.boards.board import Board
from lra.report.boards.evaluations import EvaluationBoard, lengths_of
from lra.report.boards.measures import PERPLEXITY
from lra.report.boards.position_bits import IDEAL, Needed, Range, Windows, by_position
from lra.report.boards.slugs import slugify
from lra.report.figures.drawing import (
    Looks,
    ReportFigure,
    figure_with_labels,
    length_scale,
    log_scale,
)
from lra.report.figures.drawn_rows import choose_rows, rank_by_result
from lra.report.figures.labels import LineEnd, label_ends

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_GRAY = "0.5"
_STRETCHED = 5
"""How often the lowest perplexity the highest one is, from which on the axis is logarithmic."""
Lines = Mapping[str, Sequence[tuple[float, float]]]
"""Points (x, y) in order of x, by name."""


def perplexity_figures(evaluated: EvaluationBoard, looks: Looks, slug: str) -> list[ReportFigure]:
    """Make figures of perplexity over length, one for each set of other changes."""
    made: list[ReportFigure] = []
    for what, columns in lengths_of(evaluated).items():
        lines = {method: _perplexities(evaluated, method, columns) for method in evaluated.rows}
        several = {method: points for method, points in lines.items() if len(points) > 1}
        ranking = rank_by_result(evaluated.board, evaluated.task)
        shown, note = choose_rows(several, ranking)
        if shown:
            made.append(
                ReportFigure(
                    slugify("perplexity", evaluated.task, "over", what, slug),
                    f"{evaluated.task}: perplexity over {what}",
                    f"{evaluated.board.name}. Test perplexity in windows of these lengths, of "
                    f"models trained at {evaluated.trained_lengths} positions (vertical line); "
                    f"mean over seeds.{note}",
                    partial(_draw_perplexities, shown, evaluated, looks),
                )
            )
    return made


def _perplexities(
    evaluated: EvaluationBoard, method: str, columns: Sequence[EvaluationRecord]
) -> list[tuple[float, float]]:
    points: list[tuple[float, float]] = []
    for column in columns:
        cell = evaluated.cell(method, column)
        mean = None if cell is None else cell.mean_of(PERPLEXITY)
        if mean is not None and column.length is not None:
            points.append((column.length, mean))
    return points


def _draw_perplexities(lines: Lines, evaluated: EvaluationBoard, looks: Looks) -> Figure:
    figure = figure_with_labels(lines)
    axes = figure.subplots()
    ends = _plot(axes, lines, looks)
    trained = {column.trained_length for column in evaluated.columns}
    length_scale(axes, trained | {round(x) for points in lines.values() for x, _ in points})
    perplexities = [y for points in lines.values() for _, y in points]
    if max(perplexities) > _STRETCHED * min(perplexities):
        log_scale(axes)
    axes.set_ylabel("perplexity (lower is better)")
    _mark_lengths(axes, trained)
    label_ends(axes, ends)
    return figure


def _plot(axes: Axes, lines: Lines, looks: Looks) -> list[LineEnd]:
    """Draw lines in the colours of their methods; return their ends."""
    for method, points in lines.items():
        axes.plot(*zip(*points, strict=True), markersize=4, **looks.line(method))
    return [LineEnd(*points[-1], method, looks.colour(method)) for method, points in lines.items()]


def _mark_lengths(axes: Axes, lengths: set[int]) -> None:
    for length in lengths:
        axes.axvline(length, color=_GRAY, linewidth=0.8, zorder=0)


def by_position_figures(
    board: Board, windows: Sequence[Windows], looks: Looks, slug: str
) -> list[ReportFigure]:
    """Make a figure of bits over the position within each kind of windows."""
    (task,) = board.tasks
    made: list[ReportFigure] = []
    for one in windows:
        found = {method: by_position(runs) for method, runs in one.results.items()}
        several = {method: needed for method, needed in found.items() if len(needed) > 1}
        shown, note = choose_rows(several, rank_by_result(board, task))
        if shown:
            made.append(
                ReportFigure(
                    slugify("bits-over-position", task, one.name, slug),
                    f"{task}: bits by position within the window, {one.name}",
                    f"{board.name}. Bits a token over the number of tokens that the model has "
                    f"seen of its window, in ranges that double; mean over seeds. Vertical line: "
                    f"longest window in training.{note}",
                    partial(_draw_positions, shown, one.trained_length, looks),
                )
            )
    return made


def _draw_positions(
    found: Mapping[str, Mapping[Range, Needed]], trained_length: int, looks: Looks
) -> Figure:
    lines = {
        method: [(_seen(place), needed.bits) for place, needed in sorted(ranges.items())]
        for method, ranges in found.items()
    }
    ideal = {
        _seen(place): needed.ideal
        for ranges in found.values()
        for place, needed in sorted(ranges.items())
        if needed.ideal is not None
    }
    figure = figure_with_labels([*lines, *([IDEAL] if ideal else [])])
    axes = figure.subplots()
    ends = _plot(axes, lines, looks)
    if ideal:
        points = sorted(ideal.items())
        axes.plot(*zip(*points, strict=True), color=_GRAY, linestyle=":", zorder=0)
        ends.append(LineEnd(*points[-1], IDEAL, _GRAY))
    furthest = max(last for ranges in found.values() for _, last in ranges) + 1
    length_scale(axes, {4**power for power in range(math.ceil(math.log(furthest, 4)) + 1)})
    axes.set_xlim(right=max(furthest, trained_length) * 1.1)
    axes.set_xlabel("tokens seen of the window")
    axes.set_ylabel("bits a token (lower is better)")
    _mark_lengths(axes, {trained_length})
    label_ends(axes, ends)
    return figure


def _seen(place: Range) -> float:
    """Return the tokens that were seen at a range of positions: the geometric mean."""
    first, last = place
    return math.sqrt((first + 1) * (last + 1))
