"""Results out of distribution, and by length of the test examples."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import numpy as np

from lra.record.evaluation import EvaluationRecord, evaluation_order
from lra.record.run import NO_PREDICTION, RunRecord
from lra.record.run_files import Predictions
from lra.record.scores import wilson_interval
from lra.report.boards import Board
from lra.report.data import Data
from lra.report.names import slugify
from lra.report.scores import ACCURACY, Cell, Measure, measures_of
from lra.report.tables.results import RANKS
from lra.report.tables.table import (
    Column,
    Entry,
    Line,
    Table,
    name_column,
    number_entry,
    result_columns,
)

AS_TRAINED = "as trained"
BINS = 8
"""Most groups of lengths, of about equal size, that accuracy is shown for."""
FEWEST = 10
"""Fewest examples of such a group."""

Evaluated = Mapping[str, Mapping[str, Sequence[EvaluationRecord]]]
"""Evaluations of all seeds, by method and then by the label of their data."""


def evaluation_tables(data: Data, board: Board) -> list[Table]:
    """Tabulate what the models of a board scored out of distribution, by each measure.

    The results on the training's own test set stand beside them.
    """
    tables: list[Table] = []
    for task in board.tasks:
        evaluated, labels = evaluations_of(data, board, task)
        if not labels:
            continue
        rows = {row: {AS_TRAINED: board.rows[row][task]} for row in evaluated}
        trained = sorted(board.with_rows(rows).records, key=lambda run: run.run_id)
        cells = {row: _cells_of(rows[row][AS_TRAINED], found) for row, found in evaluated.items()}
        names = [AS_TRAINED, *(one.label for one in labels)]
        lengths = " and ".join(f"{n:,}" for n in sorted({one.trained_length for one in labels}))
        for measure in measures_of(trained):
            by_column = {AS_TRAINED: measure.rows_beneath(trained)}
            by_column |= {one.label: measure.beneath(one) for one in labels}
            beneath: dict[str, dict[str, float]] = {}
            for name, numbers in by_column.items():
                for row, number in numbers.items():
                    beneath.setdefault(row, {})[name] = number
            named = [] if measure is ACCURACY else [measure.name]
            table = Table(
                slug=slugify("out-of-distribution", task, *named, board.slug),
                title=f"{board.name}: {', '.join(named) or task}, out of distribution",
                caption=f"{measure.name.capitalize()} of models trained at up to {lengths} "
                f"positions, on other data of the same task. Each column names how its data "
                f"differs from the training data. The models are not trained any further. {RANKS}",
                columns=result_columns(cells, names, measure, beneath),
                beneath=len(beneath),
                lines=_evaluation_lines(labels, measure),
            )
            tables.append(table)
    return tables


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


def _cells_of(
    trained: Cell[RunRecord], found: Mapping[str, Sequence[EvaluationRecord]]
) -> dict[str, Cell[RunRecord] | Cell[EvaluationRecord]]:
    """Make the cells of a row: of the evaluated models as they were trained, and of each label."""
    evaluated = {one.run_id for group in found.values() for one in group}
    runs = tuple(run for run in trained.runs if run.run_id in evaluated)
    cells = {label: Cell(tuple(group), has_own=trained.has_own) for label, group in found.items()}
    return {AS_TRAINED: Cell(runs, has_own=trained.has_own), **cells}


def _evaluation_lines(labels: Sequence[EvaluationRecord], measure: Measure) -> list[Line]:
    """Join data that differs in length, or in the number that is the value of an option."""
    places: dict[tuple[str, str], dict[str, float]] = {}
    for one in labels:
        options = ", ".join(name.partition(".")[2] for name in one.changes)
        values = [*one.changes.values()]
        if one.length is not None:
            what = f"length with {options} {values}" if options else "length"
            places.setdefault((what, "length, positions"), {})[one.label] = float(one.length)
        elif len(values) == 1 and isinstance(values[0], (int, float)):
            places.setdefault((options, options), {})[one.label] = float(values[0])
    return [
        Line(panel, found, measure.name, x)
        for (panel, x), found in places.items()
        if len(found) > 1
    ]


def length_tables(data: Data, board: Board) -> list[Table]:
    """Tabulate accuracy by the length of the test examples, for each task with predictions.

    Where every position has a label, another table has the share of the examples whose labels are
    all right up to a position.
    """
    tables: list[Table] = []
    for task in board.tasks:
        found = _predictions_of(data, board, task)
        kinds = [
            ("accuracy by length", "test accuracy, %", "length, positions", _group_lengths,
             f"Test accuracy in percent on examples of these lengths, in groups of at least "
             f"{FEWEST}, as the mean over seeds."),
            ("sequence accuracy over length", "sequence accuracy, %",
             "positions that must be right", _list_prefixes,
             "Percent of the test examples whose labels are all predicted right up to a position, "
             "as the mean over seeds."),
        ]  # fmt: skip
        for title, y, x, group, caption in kinds if found else ():
            groups = group(next(iter(found.values()))[0])
            if len(groups) > 1:
                columns = [
                    Column(name, [_share_of(map(is_right, row)) for row in found.values()])
                    for name, (_, is_right) in groups.items()
                ]
                places = {name: place for name, (place, _) in groups.items()}
                table = Table(
                    slugify(title.partition(" over ")[0], task, board.slug),
                    f"{board.name}: {task}, {title}",
                    f"{caption} {RANKS}",
                    [name_column("mixer", found, board.own_rows), *columns],
                    lines=[Line("length", places, y, x)],
                )
                tables.append(table)
    return tables


def _predictions_of(data: Data, board: Board, task: str) -> dict[str, list[Predictions]]:
    """Read the predictions of each row's seeds on the same test examples."""
    found: dict[str, list[Predictions]] = {}
    for row, cells in board.rows.items():
        of_row = [*data.predictions_on_same(cells[task].runs if task in cells else ()).values()]
        first = next(iter(found.values()), of_row)
        if of_row and of_row[0].same_examples(first[0]):
            found[row] = of_row
        elif of_row:
            data.add_fault(f"{board.name}: {row} has predictions of other examples of {task}")
    return found


Groups = Mapping[str, tuple[float, Callable[[Predictions], np.ndarray]]]
"""By name, a length, and a function that says which of the examples there are right."""


def _group_lengths(first: Predictions) -> Groups:
    """Divide examples by their length; a group's length is the mean."""
    import pandas as pd

    lengths = pd.Series(first.metadata["length"])
    has_many = lengths.nunique() > 2 * BINS
    groups = pd.qcut(lengths, BINS, labels=False, duplicates="drop") if has_many else lengths
    return {
        " to ".join(dict.fromkeys(f"{end:,}" for end in (inside.min(), inside.max()))): (
            float(inside.mean()), lambda one, places=inside.index: one.right[places]
        )
        for _, inside in lengths.groupby(groups) if len(inside) >= FEWEST
    }  # fmt: skip


def _list_prefixes(first: Predictions) -> Groups:
    """List lengths that double; an example that is shorter than one counts whole."""
    if not first.are_all_positions_scored:
        return {}
    longest = int(first.metadata["length"].max())

    def is_right(one: Predictions, end: int) -> np.ndarray:
        assert one.first_wrong is not None
        return (one.first_wrong == NO_PREDICTION) | (one.first_wrong >= end)

    ends = [*(2**k for k in range(longest.bit_length()) if 2**k < longest), longest]
    return {f"{end:,}": (float(end), partial(is_right, end=end)) for end in ends}


def _share_of(seeds: Iterable[np.ndarray]) -> Entry:
    """Write the share of examples that are right, in the mean over seeds."""
    found = [*seeds]
    rate = float(np.mean([right.mean() for right in found]))
    entry = number_entry(100 * rate, is_ranked=True)
    interval = wilson_interval(rate, len(found[0]))
    return dataclasses.replace(entry, interval=interval, seeds=len(found))
