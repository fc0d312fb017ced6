"""Figures of tasks whose targets are positions: perplexity over length, bits over position."""

from __future__ import annotations

import itertools
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
from lra.report.figures.best_rows import choose_rows, rank_by_result
from lra.report.figures.drawing import (
    ReportFigure,
    add_legend,
    mark_lengths,
    new_figure,
    plot_line,
    set_length_scale,
    set_log_scale,
)
from lra.report.figures.styles import GRAY, MethodStyles, styles_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PERPLEXITY, _BITS = "perplexity (lower is better)", "bits per token (lower is better)"
"""Labels of the y axes."""
_LOGARITHMIC_FROM = 5
"""How often the lowest perplexity the highest one is, from which on the axis is logarithmic."""


def perplexity_figures(
    evaluated: EvaluationBoard, styles: MethodStyles, slug: str
) -> list[ReportFigure]:
    """Make figures of perplexity over length, one for each set of other changes."""
    trained = {column.trained_length for column in evaluated.columns}
    made: list[ReportFigure] = []
    for what, columns in lengths_of(evaluated).items():
        found = {method: _perplexities(evaluated, method, columns) for method in evaluated.rows}
        several = {method: points for method, points in found.items() if len(points) > 1}
        ranking = rank_by_result(evaluated.board, evaluated.task)
        chosen, note = choose_rows(several, ranking)
        if chosen:
            made.append(
                ReportFigure(
                    slugify("perplexity", evaluated.task, "over", what, slug),
                    f"{evaluated.task}: perplexity over {what}",
                    f"{evaluated.board.name}. Test perplexity in windows of each length, as the "
                    f"mean over seeds. The models were trained on windows of "
                    f"{evaluated.trained_lengths} positions (vertical line).{note}",
                    partial(_draw_perplexities, chosen, sorted(trained), styles_of(chosen, styles)),
                )
            )
    return made


def _perplexities(
    evaluated: EvaluationBoard, method: str, columns: Sequence[EvaluationRecord]
) -> list[tuple[int, float]]:
    points: list[tuple[int, float]] = []
    for column in columns:
        cell = evaluated.cell(method, column)
        mean = None if cell is None else cell.mean_of(PERPLEXITY)
        if mean is not None and column.length is not None:
            points.append((column.length, mean))
    return points


def _draw_perplexities(
    chosen: Mapping[str, Sequence[tuple[int, float]]],
    trained_lengths: Sequence[int],
    styles: MethodStyles,
) -> Figure:
    figure = new_figure(chosen)
    axes = figure.subplots()
    for method, points in chosen.items():
        plot_line(axes, method, points, styles[method])
    lengths, perplexities = zip(*itertools.chain(*chosen.values()), strict=True)
    set_length_scale(axes, {*trained_lengths, *lengths})
    if max(perplexities) > _LOGARITHMIC_FROM * min(perplexities):
        set_log_scale(axes)
    axes.set_ylabel(_PERPLEXITY)
    mark_lengths(axes, trained_lengths)
    add_legend(figure)
    return figure


def by_position_figures(
    board: Board, windows: Sequence[Windows], styles: MethodStyles, slug: str
) -> list[ReportFigure]:
    """Make a figure of bits over the position within each kind of windows."""
    (task,) = board.tasks
    made: list[ReportFigure] = []
    for one in windows:
        found = {method: by_position(runs) for method, runs in one.results.items()}
        several = {method: needed for method, needed in found.items() if len(needed) > 1}
        chosen, note = choose_rows(several, rank_by_result(board, task))
        if chosen:
            made.append(
                ReportFigure(
                    slugify("bits-over-position", task, one.name, slug),
                    f"{task}: bits by position within the window, {one.name}",
                    f"{board.name}. Bits per token over the number of tokens of the window that "
                    f"the model has seen, as the mean over seeds. Each range of positions is twice "
                    f"as long as the one before. The vertical line is the longest window in "
                    f"training.{note}",
                    partial(_draw_positions, chosen, one.trained_length, styles_of(chosen, styles)),
                )
            )
    return made


def _draw_positions(
    chosen: Mapping[str, Mapping[Range, Needed]], trained_length: int, styles: MethodStyles
) -> Figure:
    ideal = {
        place: needed.ideal
        for ranges in chosen.values()
        for place, needed in ranges.items()
        if needed.ideal is not None
    }
    figure = new_figure([*chosen, *([IDEAL] if ideal else [])])
    axes = figure.subplots()
    for method, ranges in chosen.items():
        bits = {place: needed.bits for place, needed in ranges.items()}
        plot_line(axes, method, _over_tokens_seen(bits), styles[method])
    if ideal:
        ideal_style = {"color": GRAY, "linestyle": ":", "zorder": 0}
        plot_line(axes, IDEAL, _over_tokens_seen(ideal), ideal_style)
    longest = max(last for ranges in chosen.values() for _, last in ranges) + 1
    set_length_scale(axes, {4**power for power in range(math.ceil(math.log(longest, 4)) + 1)})
    axes.set_xlim(right=max(longest, trained_length) * 1.1)
    axes.set_xlabel("tokens seen of the window")
    axes.set_ylabel(_BITS)
    mark_lengths(axes, [trained_length])
    add_legend(figure)
    return figure


def _over_tokens_seen(bits: Mapping[Range, float]) -> list[tuple[float, float]]:
    """Return points of bits over the tokens seen at a range of positions: their geometric mean."""
    return [
        (math.sqrt((first + 1) * (last + 1)), bits[first, last]) for first, last in sorted(bits)
    ]
