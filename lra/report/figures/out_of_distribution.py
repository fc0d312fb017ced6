"""Trained models out of distribution: longer or harder data than they were trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from lra.record.evaluation import EvaluationRecord
from lra.report.boards.evaluations import EvaluationBoard, lengths_of
from lra.report.boards.slugs import slugify
from lra.report.figures.breakdown import GroupAccuracy, plot_group_accuracies, wilson
from lra.report.figures.drawing import (
    Looks,
    ReportFigure,
    figure_with_labels,
    legend_below,
    legend_name,
    length_scale,
    new_figure,
)
from lra.report.figures.drawn_rows import choose_rows, rank_by_result
from lra.report.figures.labels import LineEnd, label_ends

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TRIVIAL = "best trivial baseline"
_GRAY = "0.5"


def evaluation_figures(evaluated: EvaluationBoard, looks: Looks, slug: str) -> list[ReportFigure]:
    """Make a figure over length, and one over the values of each other option."""
    kinds = {(True, what): columns for what, columns in lengths_of(evaluated).items()}
    for column in evaluated.columns:
        if column.length is None:
            names = [text.partition("=")[0].removeprefix("task.") for text in column.changes]
            kinds.setdefault((False, ", ".join(names)), []).append(column)
    ranking = rank_by_result(evaluated.board, evaluated.task)
    made: list[ReportFigure] = []
    for (over_length, what), columns in kinds.items():
        if len(columns) == 1:
            continue
        labels = {column.label for column in columns}
        rows = {name: cells for name, cells in evaluated.rows.items() if labels & cells.keys()}
        chosen, note = choose_rows(rows, ranking)
        drawn = replace(evaluated, rows=chosen)
        figure = ReportFigure(
            slugify("out-of-distribution", evaluated.task, "by", what, slug),
            f"{evaluated.task}: trained models by {what}",
            f"{evaluated.board.name}. Accuracy on other data of models trained at up to "
            f"{evaluated.trained_lengths} positions{' (vertical line)' if over_length else ''}. "
            f"Mean over seeds; bars: 95 % interval of a proportion of so many examples (Wilson). "
            f"The best trivial baseline in gray.{note}",
            partial(_draw, drawn, columns, what, looks),
        )
        made.append(figure)
    return made


def _draw(
    evaluated: EvaluationBoard, columns: Sequence[EvaluationRecord], what: str, looks: Looks
) -> Figure:
    groups = _group_accuracies(evaluated, columns)
    over_length = columns[0].length is not None
    names = [*groups, _TRIVIAL]
    figure = figure_with_labels(names) if over_length else new_figure(names)
    axes = figure.subplots()
    ends = plot_group_accuracies(axes, groups, over_length, looks)
    places = [_place(columns, k) for k in range(len(columns))]
    trivial = [max([c.largest_class, *c.baselines.values()]) for c in columns]
    axes.plot(
        places, trivial, color=_GRAY, zorder=0, label=legend_name(_TRIVIAL), markersize=24,
        linestyle=":" if over_length else "none", marker="" if over_length else "_",
    )  # fmt: skip
    axes.set_xlabel(what)
    if over_length:
        length_scale(axes, [round(place) for place in places])
        for length in {column.trained_length for column in evaluated.columns}:
            axes.axvline(length, color=_GRAY, linewidth=0.8, zorder=0)
        label_ends(axes, [*ends, LineEnd(places[-1], trivial[-1], _TRIVIAL, _GRAY)])
    else:
        legend_below(axes)
    return figure


def _place(columns: Sequence[EvaluationRecord], index: int) -> float:
    """Return the place of a column on the x axis: its length, or its index if it has no length."""
    length = columns[index].length
    return float(index if length is None else length)


def _group_accuracies(
    evaluated: EvaluationBoard, columns: Sequence[EvaluationRecord]
) -> dict[str, list[GroupAccuracy]]:
    """Return accuracies by method, each at its column's place on the x axis."""
    found: dict[str, list[GroupAccuracy]] = {}
    for method in evaluated.rows:
        for place, column in enumerate(columns):
            cell = evaluated.cell(method, column)
            if cell is None or cell.mean is None:
                continue
            x = _place(columns, place)
            name = ", ".join(text.partition("=")[2] for text in column.changes)
            interval = wilson(cell.mean / 100, column.test_total)
            group = GroupAccuracy(name, x, cell.mean, *interval, column.test_total)
            found.setdefault(method, []).append(group)
    return found
