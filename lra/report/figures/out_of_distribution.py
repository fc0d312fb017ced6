"""Trained models out of distribution: longer or harder data than they were trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from common.strict_yaml import plain
from lra.record.evaluation import EvaluationRecord
from lra.record.intervals import wilson_interval
from lra.report.boards.evaluations import EvaluationBoard, lengths_of
from lra.report.boards.slugs import slugify
from lra.report.figures.best_rows import choose_rows, rank_by_result
from lra.report.figures.breakdown import GroupAccuracy, plot_group_accuracies
from lra.report.figures.drawing import (
    ReportFigure,
    add_legend,
    mark_lengths,
    new_figure,
    plot_line,
    set_length_scale,
)
from lra.report.figures.styles import GRAY, MethodStyles, styles_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TRIVIAL = "best trivial baseline"


def evaluation_figures(
    evaluated: EvaluationBoard, styles: MethodStyles, slug: str
) -> list[ReportFigure]:
    """Make a figure over length, and one over the values of each other option."""
    kinds = {(True, what): columns for what, columns in lengths_of(evaluated).items()}
    for column in evaluated.columns:
        if column.length is None:
            names = [name.removeprefix("task.") for name in column.changes]
            kinds.setdefault((False, ", ".join(names)), []).append(column)
    ranking = rank_by_result(evaluated.board, evaluated.task)
    trained = sorted({column.trained_length for column in evaluated.columns})
    made: list[ReportFigure] = []
    for (over_length, what), columns in kinds.items():
        if len(columns) == 1:
            continue
        labels = {column.label for column in columns}
        rows = {name: cells for name, cells in evaluated.rows.items() if labels & cells.keys()}
        chosen, note = choose_rows(rows, ranking)
        groups = {method: _group_accuracies(evaluated, method, columns) for method in chosen}
        trivial = [
            (_x_of(column, place), max([column.largest_class, *column.baselines.values()]))
            for place, column in enumerate(columns)
        ]
        figure = ReportFigure(
            slugify("out-of-distribution", evaluated.task, "by", what, slug),
            f"{evaluated.task}: trained models by {what}",
            f"{evaluated.board.name}. Accuracy of models on data that differs from their training "
            f"data, which has up to {evaluated.trained_lengths} positions"
            f"{' (vertical line)' if over_length else ''}. "
            f"Mean over seeds. Vertical bars show the 95 % binomial interval (Wilson) for the "
            f"number of test examples. The best trivial baseline is gray.{note}",
            partial(
                _draw,
                groups,
                trivial,
                what,
                trained if over_length else [],
                styles_of(groups, styles),
            ),
        )
        made.append(figure)
    return made


def _draw(
    groups: Mapping[str, Sequence[GroupAccuracy]],
    trivial: Sequence[tuple[float, float]],
    what: str,
    trained_lengths: Sequence[int],
    styles: MethodStyles,
) -> Figure:
    """Draw accuracies over an option, or over length where the lengths in training are given."""
    over_length = bool(trained_lengths)
    figure = new_figure([*groups, _TRIVIAL])
    axes = figure.subplots()
    plot_group_accuracies(axes, groups, over_length, styles)
    line = {"linestyle": ":"} if over_length else {"linestyle": "none", "marker": "_"}
    plot_line(axes, _TRIVIAL, trivial, {"color": GRAY, "zorder": 0, "markersize": 24, **line})
    axes.set_xlabel(what)
    if over_length:
        set_length_scale(axes, [round(x) for x, _ in trivial])
        mark_lengths(axes, trained_lengths)
    add_legend(figure)
    return figure


def _x_of(column: EvaluationRecord, index: int) -> float:
    """Return where a column is on the x axis: at its length, or at its index if it has none."""
    return float(index if column.length is None else column.length)


def _group_accuracies(
    evaluated: EvaluationBoard, method: str, columns: Sequence[EvaluationRecord]
) -> list[GroupAccuracy]:
    """Return a method's accuracies, each at its column's place on the x axis."""
    found: list[GroupAccuracy] = []
    for index, column in enumerate(columns):
        cell = evaluated.cell(method, column)
        if cell is None or cell.mean is None:
            continue
        name = ", ".join(map(plain, column.changes.values()))
        interval = wilson_interval(cell.mean / 100, column.test_examples)
        x = _x_of(column, index)
        seeds = len(cell.accuracies)
        found.append(GroupAccuracy(name, x, cell.mean, *interval, column.test_examples, seeds))
    return found
