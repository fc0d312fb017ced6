"""Trained models out of distribution: longer or harder data than they were trained on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from lra.record.evaluation import EvaluationRecord, evaluation_order
from lra.report.boards import Board
from lra.report.breakdown import GroupAccuracy, plot_group_accuracies, wilson
from lra.report.cells import Cell
from lra.report.drawing import (
    Looks,
    ReportFigure,
    figure_with_labels,
    legend_below,
    legend_name,
    length_scale,
    new_figure,
    slugify,
)
from lra.report.drawn_rows import choose_rows, rank_by_result
from lra.report.labels import LineEnd, label_ends
from lra.report.measures import ACCURACY, Measure
from lra.report.results import Results
from lra.report.table import Table
from lra.runtime.console import MISSING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TRIVIAL = "best trivial baseline"
_GRAY = "0.5"


@dataclass(frozen=True)
class EvaluationBoard:
    """What the models of one column of a board scored out of distribution."""

    board: Board
    task: str
    rows: Mapping[str, Mapping[str, Cell[EvaluationRecord]]]
    """Cells, by method and then by the label of their data."""
    columns: Sequence[EvaluationRecord]
    """One record for each label, in the order of the columns."""

    @property
    def trained_lengths(self) -> str:
        """The lengths that the models were trained at, as text."""
        return " and ".join(f"{n:,}" for n in sorted({c.trained_length for c in self.columns}))

    def cell(self, method: str, column: EvaluationRecord) -> Cell[EvaluationRecord] | None:
        """Return what a method scored on the data of a column; None without a record."""
        return self.rows[method].get(column.label)


def evaluation_boards(results: Results, board: Board) -> list[EvaluationBoard]:
    """Group what the models of a board scored out of distribution, by task.

    Models are compared on the same examples. Where data of one label has several fingerprints,
    the one of most records counts; records on the others are named as faults.
    """
    made: list[EvaluationBoard] = []
    for task in board.tasks:
        found = [
            (method, run, one)
            for method, cells in board.rows.items()
            for run in (cells[task].runs if task in cells else ())
            for one in results.evaluations(run)
        ]
        counts = Counter((one.label, one.data.fingerprint) for _, _, one in found)
        main = {label: data for (label, data), _ in reversed(counts.most_common())}
        columns: dict[str, EvaluationRecord] = {}
        groups: dict[str, dict[str, list[EvaluationRecord]]] = {}
        for method, run, one in found:
            if one.data.fingerprint != main[one.label]:
                path = results.path(run) / one.path
                results.add_fault(f"{path}: of other examples than most models of the table")
                continue
            columns.setdefault(one.label, one)
            groups.setdefault(method, {}).setdefault(one.label, []).append(one)
        rows = {
            method: {label: Cell(tuple(group)) for label, group in by_label.items()}
            for method, by_label in groups.items()
        }
        if rows:
            made.append(
                EvaluationBoard(board, task, rows, sorted(columns.values(), key=evaluation_order))
            )
    return made


def evaluation_tables(results: Results, board: Board, slug: str) -> list[Table]:
    """Tabulate what the models of a board scored out of distribution, by each measure."""
    return [
        _table(evaluated, measure, slug)
        for evaluated in evaluation_boards(results, board)
        for measure in board.measures
    ]


def _table(evaluated: EvaluationBoard, measure: Measure, slug: str) -> Table:
    """Tabulate results out of distribution beside those on the training's own test set."""
    trained = {method: evaluated.board.rows[method][evaluated.task] for method in evaluated.rows}
    lines: list[list[str]] = []
    facts: list[dict[str, object]] = []
    for method in evaluated.rows:
        cells = [evaluated.cell(method, column) for column in evaluated.columns]
        texts = [MISSING if cell is None else cell.text_of(measure) for cell in cells]
        lines.append([method, trained[method].text_of(measure), *texts])
        facts += [_fact(method, one, measure) for cell in cells if cell for one in cell.runs]
    values = [[cell.value_of(measure) for cell in trained.values()]]
    for column in evaluated.columns:
        cells = [evaluated.cell(method, column) for method in evaluated.rows]
        values.append([None if cell is None else cell.value_of(measure) for cell in cells])
    named = [] if measure is ACCURACY else [measure.name]
    return Table(
        slug=slugify("out-of-distribution", evaluated.task, *named, slug),
        title=f"{evaluated.board.name}: {', '.join(named) or evaluated.task}, out of distribution",
        caption=f"{measure.name.capitalize()} of models trained at up to "
        f"{evaluated.trained_lengths} positions, on other data of their task, which differs as "
        f"named; they are not trained any further. The best of a column in bold, the second "
        f"underlined.",
        columns=["mixer", "as trained", *(column.label for column in evaluated.columns)],
        rows=[*lines, *_rows_beneath(evaluated, measure)],
        marks={
            (i, j): mark
            for j, row in enumerate(values, start=1)
            for i, mark in measure.ranks(row).items()
        },
        facts=facts,
    )


def _rows_beneath(evaluated: EvaluationBoard, measure: Measure) -> list[list[str]]:
    trained = sorted(evaluated.board.records, key=lambda run: run.run_id)
    own = measure.rows_beneath([run for run in trained if run.task == evaluated.task])
    columns = [measure.beneath(column) for column in evaluated.columns]
    return [
        [name, *(measure.text(found.get(name)) for found in (own, *columns))]
        for name in dict.fromkeys(name for found in columns for name in found)
    ]


def _fact(method: str, record: EvaluationRecord, measure: Measure) -> dict[str, object]:
    fields = {"run_id", "seed", "trained_length", "test_accuracy", "test_total",
              "test_non_finite", "loss"}  # fmt: skip
    found = {"method": method, "data": record.label, **record.model_dump(include=fields)}
    return found if measure is ACCURACY else {**found, measure.name: measure.of(record)}


def lengths_of(evaluated: EvaluationBoard) -> dict[str, list[EvaluationRecord]]:
    """Group columns that differ in length, by what else is changed."""
    found: dict[str, list[EvaluationRecord]] = {}
    for column in evaluated.columns:
        if column.length is not None:
            also = f" with {', '.join(column.changes)}" if column.changes else ""
            found.setdefault(f"length{also}", []).append(column)
    return found


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
