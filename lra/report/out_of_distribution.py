"""Trained models out of distribution: longer or harder data than they were trained on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from lra.report.labels import LineEnd, label_ends
from lra.report.results import Results
from lra.report.table import Table, ranks
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


def evaluation_table(evaluated: EvaluationBoard, slug: str) -> Table:
    """Tabulate accuracies out of distribution beside those on the training's own test set."""
    trained = {method: evaluated.board.rows[method][evaluated.task] for method in evaluated.rows}
    lines: list[list[str]] = []
    facts: list[dict[str, object]] = []
    for method in evaluated.rows:
        cells = [evaluated.cell(method, column) for column in evaluated.columns]
        texts = [MISSING if cell is None else cell.text for cell in cells]
        lines.append([method, trained[method].text, *texts])
        facts += [_fact(method, one) for cell in cells if cell is not None for one in cell.runs]
    values = [[cell.value for cell in trained.values()]]
    for column in evaluated.columns:
        cells = [evaluated.cell(method, column) for method in evaluated.rows]
        values.append([None if cell is None else cell.value for cell in cells])
    return Table(
        slug=slugify("out-of-distribution", evaluated.task, slug),
        title=f"{evaluated.board.name}: {evaluated.task}, out of distribution",
        caption=f"Test accuracy in percent of models trained at up to {evaluated.trained_lengths} "
        f"positions, on other data of their task, which differs as named; they are not trained any "
        f"further. The best of a column in bold, the second underlined.",
        columns=["mixer", "as trained", *(column.label for column in evaluated.columns)],
        rows=[*lines, *_trivial_rows(evaluated)],
        marks={(i, j): m for j, row in enumerate(values, start=1) for i, m in ranks(row).items()},
        facts=facts,
    )


def _trivial_rows(evaluated: EvaluationBoard) -> list[list[str]]:
    own = {
        name: found.get(evaluated.task)
        for name, found in evaluated.board.trivial_baselines().items()
    }
    lines: list[list[str]] = []
    for name in dict.fromkeys(name for column in evaluated.columns for name in column.baselines):
        found = [own.get(name), *(column.baselines.get(name) for column in evaluated.columns)]
        texts = [MISSING if one is None else f"{one:.2f}" for one in found]
        lines.append([f"trivial baseline: {name}", *texts])
    return lines


def _fact(method: str, record: EvaluationRecord) -> dict[str, object]:
    fields = {"run_id", "seed", "trained_length", "test_accuracy", "test_total", "loss"}
    return {"method": method, "data": record.label, **record.model_dump(include=fields)}


def evaluation_figures(evaluated: EvaluationBoard, looks: Looks, slug: str) -> list[ReportFigure]:
    """Make a figure over length, and one over the values of each other option."""
    kinds: dict[tuple[bool, str], list[EvaluationRecord]] = {}
    for column in evaluated.columns:
        if column.length is not None:
            also = f" with {', '.join(column.changes)}" if column.changes else ""
            kinds.setdefault((True, f"length{also}"), []).append(column)
        else:
            names = [text.partition("=")[0].removeprefix("task.") for text in column.changes]
            kinds.setdefault((False, ", ".join(names)), []).append(column)
    return [
        ReportFigure(
            slugify("out-of-distribution", evaluated.task, "by", what, slug),
            f"{evaluated.task}: trained models by {what}",
            f"{evaluated.board.name}. Accuracy on other data of models trained at up to "
            f"{evaluated.trained_lengths} positions{' (vertical line)' if over_length else ''}. "
            f"Mean over seeds; bars: 95 % interval of a proportion of so many examples (Wilson). "
            f"The best trivial baseline in gray.",
            partial(_draw, evaluated, columns, what, looks),
        )
        for (over_length, what), columns in kinds.items()
        if len(columns) > 1
    ]


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
