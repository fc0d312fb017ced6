"""Trained models on data of other lengths and difficulty than they were trained on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from lra.record.evaluation import EvaluationRecord, evaluation_order
from lra.report.boards import Board
from lra.report.breakdown import Share, plot_shares, wilson
from lra.report.cells import MISSING, Cell
from lra.report.drawing import (
    Looks,
    Picture,
    legend_below,
    legend_name,
    length_scale,
    new_figure,
    slugify,
)
from lra.report.results import Results
from lra.report.table import Table, ranks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TRIVIAL = "best trivial baseline"
_GRAY = "0.5"


@dataclass(frozen=True)
class Tried:
    """What the runs of one column of a board scored elsewhere."""

    board: Board
    task: str
    rows: Mapping[str, Mapping[str, Cell[EvaluationRecord]]]
    """Cells by label of the data, by method."""
    columns: Sequence[EvaluationRecord]
    """A record of each label, in order."""

    @property
    def trained_lengths(self) -> str:
        """Name the positions that the models were trained at."""
        return " and ".join(f"{n:,}" for n in sorted({c.trained_length for c in self.columns}))

    def cell(self, method: str, column: EvaluationRecord) -> Cell[EvaluationRecord] | None:
        """Return what a method scored on the data of a column; None if it was not tried."""
        return self.rows[method].get(column.label)


def tried_elsewhere(results: Results, board: Board) -> list[Tried]:
    """Group what the models of a board scored elsewhere, by task.

    Models are compared on the same examples: of data of one label, those that most were tried on;
    the others are named as faults.
    """
    made: list[Tried] = []
    for task in board.tasks:
        found = [
            (method, run, one)
            for method, cells in board.rows.items()
            for run in (cells[task].runs if task in cells else ())
            for one in results.transfers(run)
        ]
        counts = Counter((one.label, one.data.fingerprint) for _, _, one in found)
        main = {label: data for (label, data), _ in reversed(counts.most_common())}
        columns: dict[str, EvaluationRecord] = {}
        groups: dict[str, dict[str, list[EvaluationRecord]]] = {}
        for method, run, one in found:
            if one.data.fingerprint != main[one.label]:
                path = results.path(run) / one.path
                results.add_fault(f"{path}: of other examples than most models were tried on")
                continue
            columns.setdefault(one.label, one)
            groups.setdefault(method, {}).setdefault(one.label, []).append(one)
        rows = {
            method: {label: Cell(tuple(group)) for label, group in by_label.items()}
            for method, by_label in groups.items()
        }
        if rows:
            made.append(Tried(board, task, rows, sorted(columns.values(), key=evaluation_order)))
    return made


def transfer_table(tried: Tried, slug: str) -> Table:
    """Tabulate accuracies elsewhere beside those of the test set of the training's own data."""
    trained = {method: tried.board.rows[method][tried.task] for method in tried.rows}
    lines: list[list[str]] = []
    facts: list[dict[str, object]] = []
    for method in tried.rows:
        cells = [tried.cell(method, column) for column in tried.columns]
        texts = [MISSING if cell is None else cell.text for cell in cells]
        lines.append([method, trained[method].text, *texts])
        facts += [_fact(method, one) for cell in cells if cell is not None for one in cell.runs]
    values = [[cell.value for cell in trained.values()]]
    for column in tried.columns:
        cells = [tried.cell(method, column) for method in tried.rows]
        values.append([None if cell is None else cell.value for cell in cells])
    return Table(
        slug=f"transfer-{slug}-{tried.task}",
        title=f"{tried.board.name}: {tried.task} elsewhere",
        caption=f"Test accuracy in percent of models trained at up to {tried.trained_lengths} "
        f"positions, on other data of their task, which differs as named; they are not trained any "
        f"further. The best of a column in bold, the second underlined.",
        columns=["mixer", "as trained", *(column.label for column in tried.columns)],
        rows=[*lines, *_trivial_rows(tried)],
        marks={(i, j): m for j, row in enumerate(values, start=1) for i, m in ranks(row).items()},
        facts=facts,
    )


def _trivial_rows(tried: Tried) -> list[list[str]]:
    own = {name: found.get(tried.task) for name, found in tried.board.trivial_baselines().items()}
    lines: list[list[str]] = []
    for name in dict.fromkeys(name for column in tried.columns for name in column.baselines):
        found = [own.get(name), *(column.baselines.get(name) for column in tried.columns)]
        texts = [MISSING if one is None else f"{one:.2f}" for one in found]
        lines.append([f"trivial baseline: {name}", *texts])
    return lines


def _fact(method: str, record: EvaluationRecord) -> dict[str, object]:
    fields = {"run_id", "seed", "trained_length", "test_accuracy", "test_total", "loss"}
    return {"method": method, "data": record.label, **record.model_dump(include=fields)}


def transfer_pictures(tried: Tried, looks: Looks, slug: str) -> list[Picture]:
    """Make a figure over length, and one over the values of each other option."""
    kinds: dict[tuple[bool, str], list[EvaluationRecord]] = {}
    for column in tried.columns:
        if column.length is not None:
            also = f" with {', '.join(column.changes)}" if column.changes else ""
            kinds.setdefault((True, f"length{also}"), []).append(column)
        else:
            names = [text.partition("=")[0].removeprefix("task.") for text in column.changes]
            kinds.setdefault((False, ", ".join(names)), []).append(column)
    return [
        Picture(
            f"{slug}-{tried.task}-elsewhere-{slugify(what)}",
            f"{tried.task}: trained models by {what}",
            f"{tried.board.name}. Accuracy on other data of models trained at up to "
            f"{tried.trained_lengths} positions{' (vertical line)' if over_length else ''}. Mean "
            f"over seeds; bars: 95 % interval of a share of so many examples (Wilson). The best "
            f"prediction without a model in gray.",
            partial(_draw, tried, columns, what, looks),
        )
        for (over_length, what), columns in kinds.items()
        if len(columns) > 1
    ]


def _draw(tried: Tried, columns: Sequence[EvaluationRecord], what: str, looks: Looks) -> Figure:
    shares = _shares(tried, columns)
    figure = new_figure([*shares, _TRIVIAL])
    axes = figure.subplots()
    over_length = columns[0].length is not None
    plot_shares(axes, shares, over_length, looks)
    places = [_place(columns, k) for k in range(len(columns))]
    predictions = [max([c.largest_class, *c.baselines.values()]) for c in columns]
    axes.plot(
        places, predictions, color=_GRAY, zorder=0, label=legend_name(_TRIVIAL), markersize=24,
        linestyle=":" if over_length else "none", marker="" if over_length else "_",
    )  # fmt: skip
    axes.set_xlabel(what)
    if over_length:
        length_scale(axes, [round(place) for place in places])
        for length in {column.trained_length for column in tried.columns}:
            axes.axvline(length, color=_GRAY, linewidth=0.8, zorder=0)
    legend_below(axes)
    return figure


def _place(columns: Sequence[EvaluationRecord], index: int) -> float:
    """Return where the data of a column is drawn: at its length, or at its number."""
    length = columns[index].length
    return float(index if length is None else length)


def _shares(tried: Tried, columns: Sequence[EvaluationRecord]) -> dict[str, list[Share]]:
    """Place accuracies by method: at lengths, or at the number of what else was changed."""
    found: dict[str, list[Share]] = {}
    for method in tried.rows:
        for place, column in enumerate(columns):
            cell = tried.cell(method, column)
            if cell is None or cell.mean is None:
                continue
            x = _place(columns, place)
            name = ", ".join(text.partition("=")[2] for text in column.changes)
            interval = wilson(cell.mean / 100, column.test_total)
            share = Share(name, x, cell.mean, *interval, column.test_total)
            found.setdefault(method, []).append(share)
    return found
