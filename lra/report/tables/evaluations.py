"""Results out of distribution, and by length of the test examples."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from lra.record.evaluation import EvaluationRecord, evaluation_order
from lra.record.intervals import wilson_interval
from lra.record.predictions import Predictions
from lra.record.run import NO_PREDICTION, RunRecord
from lra.report.boards import Board
from lra.report.data import Data
from lra.report.names import slugify
from lra.report.scores import ACCURACY, Cell, Measure, Result
from lra.report.tables.results import RANKS
from lra.report.tables.table import (
    Column,
    Entry,
    Line,
    Table,
    name_column,
    number_entry,
    result_column,
    result_entry,
)

AS_TRAINED = "as trained"
BINS = 8
"""Most groups of lengths, of about equal size, that accuracy is shown for."""
FEWEST = 10
"""Fewest examples of such a group."""

Evaluated = Mapping[str, Mapping[str, Sequence[EvaluationRecord]]]
"""Evaluations of all seeds, by method and then by the label of their data."""


def evaluations_of(data: Data, board: Board, task: str) -> tuple[Evaluated, list[EvaluationRecord]]:
    """Group what the models of a column scored out of distribution; return a record of each label.

    Models are compared on the same examples. Where data of one label has several fingerprints,
    the one of most records counts; records on the others are named as faults.
    """
    found = [
        (method, run, one)
        for method, cells in board.rows.items()
        for run in (cells[task].runs if task in cells else ())
        for one in data.evaluations(run)
    ]
    counts = Counter((one.label, one.data.fingerprint) for _, _, one in found)
    main = {label: print_ for (label, print_), _ in reversed(counts.most_common())}
    columns: dict[str, EvaluationRecord] = {}
    rows: dict[str, dict[str, list[EvaluationRecord]]] = {}
    for method, run, one in found:
        if one.data.fingerprint == main[one.label]:
            columns.setdefault(one.label, one)
            rows.setdefault(method, {}).setdefault(one.label, []).append(one)
        else:
            path = data.path(run) / one.path
            data.add_fault(f"{path}: of other examples than most models of the table")
    return rows, sorted(columns.values(), key=evaluation_order)


def evaluation_tables(data: Data, board: Board) -> list[Table]:
    """Tabulate what the models of a board scored out of distribution, by each measure."""
    tables: list[Table] = []
    for task in board.tasks:
        evaluated, columns = evaluations_of(data, board, task)
        if columns:
            of_task = board.with_rows({row: {task: board.rows[row][task]} for row in evaluated})
            measures = of_task.measures
            tables += [_evaluation_table(of_task, task, evaluated, columns, m) for m in measures]
    return tables


def _evaluation_table(
    board: Board,
    task: str,
    evaluated: Evaluated,
    labels: Sequence[EvaluationRecord],
    measure: Measure,
) -> Table:
    """Tabulate results out of distribution beside those on the training's own test set."""
    runs = sorted((run for run in board.records if run.task == task), key=lambda run: run.run_id)
    beneath = {AS_TRAINED: measure.rows_beneath(runs)}
    beneath |= {one.label: measure.beneath(one) for one in labels}
    below = list(dict.fromkeys(name for found in beneath.values() for name in found))
    trained = [_trained(board.rows[row][task], found) for row, found in evaluated.items()]
    columns = [name_column("mixer", [*evaluated, *below], board.own_rows)]
    for name in beneath:
        cells = [
            Cell(tuple(found.get(name, ())), has_own=board.rows[row][task].has_own)
            for row, found in evaluated.items()
        ]
        entries = [
            result_entry(cell, measure) for cell in (trained if name == AS_TRAINED else cells)
        ]
        numbers = [beneath[name].get(row) for row in below]
        columns.append(result_column(name, measure, entries, numbers))
    named = [] if measure is ACCURACY else [measure.name]
    lengths = " and ".join(f"{n:,}" for n in sorted({one.trained_length for one in labels}))
    return Table(
        slug=slugify("out-of-distribution", task, *named, board.slug),
        title=f"{board.name}: {', '.join(named) or task}, out of distribution",
        caption=f"{measure.name.capitalize()} of models trained at up to {lengths} positions, on "
        f"other data of the same task. Each column names how its data differs from the training "
        f"data. The models are not trained any further. {RANKS}",
        columns=columns,
        beneath=len(below),
        lines=_evaluation_lines(labels, measure),
    )


def _trained(cell: Cell[RunRecord], found: Mapping[str, Sequence[Result]]) -> Cell[RunRecord]:
    """Return the results of the evaluated models on the test set of their training."""
    evaluated = {one.run_id for group in found.values() for one in group}
    runs = tuple(run for run in cell.runs if run.run_id in evaluated)
    return Cell(runs, has_own=cell.has_own)


def _evaluation_lines(labels: Sequence[EvaluationRecord], measure: Measure) -> dict[str, Line]:
    """Join data that differs in length, or in the values of the same options."""
    places: dict[str, dict[str, float | str]] = {}
    for one in labels:
        options = ", ".join(name.partition(".")[2] for name in one.changes)
        values = ", ".join(str(value) for value in one.changes.values())
        if one.length is None:
            places.setdefault(options, {})[one.label] = values
        else:
            what = "length" + (f" with {options} {values}" if options else "")
            places.setdefault(what, {})[one.label] = float(one.length)
    marks = sorted({float(one.trained_length) for one in labels})
    return {
        what: Line(found, y=measure.name, marks=marks)
        if what.startswith("length")
        else Line(found, x=what, y=measure.name)
        for what, found in places.items()
        if len(found) > 1
    }


def length_tables(data: Data, board: Board) -> list[Table]:
    """Tabulate accuracy by the length of the test examples, for each task with predictions."""
    tables: list[Table] = []
    for task in board.tasks:
        found: dict[str, list[Predictions]] = {}
        for row, cells in board.rows.items():
            predictions = data.predictions_on_same(cells[task].runs if task in cells else ())
            if predictions:
                found[row] = [*predictions.values()]
        if not found:
            continue
        first = next(iter(found.values()))[0]
        for row in [row for row, group in found.items() if not group[0].same_examples(first)]:
            data.add_fault(f"{board.name}: {row} has predictions of other examples of {task}")
            del found[row]
        parts = _lengths_of(first.metadata["length"])
        if len(parts) > 1:
            own = board.own_rows
            columns = [name_column("mixer", found, own)]
            for name, _, inside in parts:
                entries = [_accuracy_of(group, inside) for group in found.values()]
                columns.append(Column(name, entries))
            line = Line({name: x for name, x, _ in parts}, y="test accuracy, %")
            tables.append(
                Table(
                    slugify("accuracy-by-length", task, board.slug),
                    f"{board.name}: {task}, accuracy by length",
                    f"Test accuracy in percent on examples of these lengths, in groups of at least "
                    f"{FEWEST}, as the mean over seeds. {RANKS}",
                    columns,
                    lines={"length": line},
                )
            )
        if first.are_all_positions_scored:
            tables.append(_prefix_table(board, task, found))
    return tables


def _lengths_of(lengths: np.ndarray) -> list[tuple[str, float, np.ndarray]]:
    """Divide examples by length: the name of each group, its mean length, and which are inside."""
    values, groups = np.unique(lengths, return_inverse=True)
    if len(values) > 2 * BINS:
        edges = np.unique(np.quantile(lengths, np.linspace(0, 1, BINS + 1)))
        groups = np.clip(np.searchsorted(edges, lengths, side="right") - 1, 0, len(edges) - 2)
    found: list[tuple[str, float, np.ndarray]] = []
    for group in range(int(groups.max()) + 1):
        inside = groups == group
        if inside.sum() >= FEWEST:
            low, high = int(lengths[inside].min()), int(lengths[inside].max())
            name = f"{low:,}" if low == high else f"{low:,} to {high:,}"
            found.append((name, float(lengths[inside].mean()), inside))
    return found


def _accuracy_of(group: Sequence[Predictions], inside: np.ndarray) -> Entry:
    rate = float(np.mean([one.right[inside].mean() for one in group]))
    entry = number_entry(100 * rate, is_ranked=True)
    interval = wilson_interval(rate, int(inside.sum()))
    return dataclasses.replace(entry, interval=interval, seeds=len(group))


def _prefix_table(board: Board, task: str, found: Mapping[str, Sequence[Predictions]]) -> Table:
    """Tabulate the share of the examples whose labels are all right up to a length.

    Lengths double, up to that of the longest example; an example shorter than one counts whole.
    """
    longest = int(next(iter(found.values()))[0].metadata["length"].max())
    lengths = [*(2**k for k in range(longest.bit_length()) if 2**k < longest), longest]
    columns = [name_column("mixer", found, board.own_rows)]
    for length in lengths:
        rates = [
            [
                np.mean((first == NO_PREDICTION) | (first >= length))
                for one in group
                if (first := one.first_wrong) is not None
            ]
            for group in found.values()
        ]
        entries = [number_entry(100 * float(np.mean(one)), is_ranked=True) for one in rates]
        columns.append(Column(f"{length:,}", entries))
    places = {f"{length:,}": float(length) for length in lengths}
    return Table(
        slugify("sequence-accuracy", task, board.slug),
        f"{board.name}: {task}, sequence accuracy over length",
        f"Percent of the test examples whose labels are all predicted right up to a position, as "
        f"the mean over seeds. {RANKS}",
        columns,
        lines={"length": Line(places, "positions that must be right", "sequence accuracy, %")},
    )
