"""Results out of distribution, and by length of the test examples."""

import dataclasses
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from lra.goals.distances import DistanceResult
from lra.goals.measure import ACCURACY, Measure
from lra.goals.result import NO_PREDICTION, Predictions
from lra.record.evaluation import EvaluationRecord, evaluation_order
from lra.record.run import TestedRecord
from lra.report.boards import Board
from lra.report.data import Data
from lra.report.names import slugify
from lra.report.scores import Entry, group_by, measures_of, score
from lra.report.tables.results import RANKS
from lra.report.tables.table import Column, Line, Table, fill_columns, number_entry, turn
from lra.statistics import wilson_interval

AS_TRAINED = "as trained"
BINS = 8
"""Most groups of lengths, of about equal size, that accuracy is shown for."""
FEWEST = 10
"""Fewest examples of such a group."""


def evaluation_tables(data: Data, board: Board) -> Iterator[Table]:
    """Tabulate what the models of a board scored out of distribution, by each measure.

    The results on the training's own test set stand beside them.
    """
    for task in board.tasks:
        evaluated, labels = _evaluations_of(data, board, task)
        if not labels:
            continue
        trained = [run for by_label in evaluated.values() for run in by_label[AS_TRAINED].values()]
        lengths = " and ".join(f"{n:,}" for n in sorted({r.trained_length for r in labels}))
        for measure in measures_of(trained):
            rows = {
                row: {
                    label: score([*same.values()], measure, is_own=board.rows[row][task].has_own)
                    for label, same in by_label.items()
                }
                for row, by_label in evaluated.items()
            }
            below = {AS_TRAINED: measure.rows_beneath(record.result for record in trained)}
            below |= {record.label: measure.beneath(record.result) for record in labels}
            columns = [Column(n, (), measure.digits, measure.lowest_is_best) for n in below]
            beneath = turn(below)
            named = [] if measure is ACCURACY else [measure.name]
            yield Table(
                slug=slugify("out-of-distribution", task, *named, board.slug),
                title=f"{board.name}: {', '.join(named) or task}, out of distribution",
                caption=f"{measure.name.capitalize()} of models trained at up to {lengths} "
                f"positions, on other data of the same task. Each column names how its data "
                f"differs from the training data. The models are not trained any further. {RANKS}",
                columns=fill_columns(columns, rows, beneath),
                beneath=len(beneath),
                lines=_evaluation_lines(labels, measure),
            )


def _evaluations_of(
    data: Data, board: Board, task: str
) -> tuple[dict[str, dict[str, dict[str, TestedRecord]]], list[EvaluationRecord]]:
    """Group what the models of a column scored out of distribution, and as they were trained.

    Models are compared on the same examples. Where data of one label has several fingerprints,
    the one of most records counts; records on the others are named as faults.

    Returns: results by row, label of the data and run, and a record of each label.
    """
    evaluations = [
        (row, run, record)
        for row, cells in board.rows.items()
        for run in (cells[task].runs if task in cells else ())
        for record in data.evaluations(run)
    ]
    same_label = group_by((record for _, _, record in evaluations), lambda record: record.label)
    main = {
        label: statistics.mode(record.data.fingerprint for record in same)
        for label, same in same_label.items()
    }
    rows: dict[str, dict[str, dict[str, TestedRecord]]] = {}
    labels: dict[str, EvaluationRecord] = {}
    for row, run, record in evaluations:
        if record.data.fingerprint == main[record.label]:
            of_row = rows.setdefault(row, {AS_TRAINED: {}})
            of_row[AS_TRAINED][run.run_id] = run
            of_row.setdefault(record.label, {})[run.run_id] = record
            labels.setdefault(record.label, record)
        else:
            path = data.path(run) / record.path
            data.add_fault(f"{path}: of other examples than most models of the table")
    return rows, sorted(labels.values(), key=evaluation_order)


def _evaluation_lines(labels: Sequence[EvaluationRecord], measure: Measure) -> list[Line]:
    """Join data that differs in length, or in the number that is the value of an option."""
    lines: dict[tuple[str, str], dict[str, float]] = {}
    for record in labels:
        options = ", ".join(name.partition(".")[2] for name in record.changes)
        values = [*record.changes.values()]
        if record.length is not None:
            what = f"length with {options} {values}" if options else "length"
            lines.setdefault((what, "length, positions"), {})[record.label] = float(record.length)
        elif len(values) == 1 and isinstance(values[0], (int, float)):
            lines.setdefault((options, options), {})[record.label] = float(values[0])
    return [
        Line(panel, columns, measure.name, x)
        for (panel, x), columns in lines.items()
        if len(columns) > 1
    ]


def length_tables(data: Data, board: Board) -> Iterator[Table]:
    """Tabulate accuracy by the length of the test examples, for each task with predictions.

    Where every position has a label, another table has the share of the examples whose labels are
    all right up to a position.
    """
    for task in board.tasks:
        predictions = _predictions_of(data, board, task)
        kinds = [
            ("accuracy by length", "test accuracy, %", "length, positions", _group_lengths,
             f"Test accuracy in percent on examples of these lengths, in groups of at least "
             f"{FEWEST}, as the mean over seeds."),
            ("sequence accuracy over length", "sequence accuracy, %",
             "positions that must be right", _list_prefixes,
             "Percent of the test examples whose labels are all predicted right up to a position, "
             "as the mean over seeds."),
        ]  # fmt: skip
        for title, y, x, group, caption in kinds if predictions else ():
            groups = group(next(iter(predictions.values()))[0])
            if len(groups) > 1:
                rows = {
                    row: {
                        name: _share_of(
                            [float(is_right(seed).mean()) for seed in seeds],
                            len(is_right(seeds[0])),
                            is_own=row in board.own_rows,
                        )
                        for name, (_, is_right) in groups.items()
                    }
                    for row, seeds in predictions.items()
                }
                yield Table(
                    slugify(title.partition(" over ")[0], task, board.slug),
                    f"{board.name}: {task}, {title}",
                    f"{caption} {RANKS}",
                    fill_columns([*map(Column, groups)], rows),
                    lines=[Line("length", {n: length for n, (length, _) in groups.items()}, y, x)],
                )


def _predictions_of(data: Data, board: Board, task: str) -> dict[str, list[Predictions]]:
    """Read the predictions of each row's seeds, all on the same test examples."""
    by_row: dict[str, list[Predictions]] = {}
    for row, cells in board.rows.items():
        first = next((seeds[0] for seeds in by_row.values()), None)
        seeds = data.predictions_on_same(cells[task].runs if task in cells else (), first)
        if seeds:
            by_row[row] = [*seeds.values()]
    return by_row


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
            float(inside.mean()), lambda seed, examples=inside.index: seed.merits[examples]
        )
        for _, inside in lengths.groupby(groups) if len(inside) >= FEWEST
    }  # fmt: skip


def _list_prefixes(first: Predictions) -> Groups:
    """List lengths that double; an example that is shorter than one counts whole."""
    if first.first_wrong is None:
        return {}
    longest = int(first.metadata["length"].max())

    def is_right(predictions: Predictions, end: int) -> np.ndarray:
        assert predictions.first_wrong is not None
        return (predictions.first_wrong == NO_PREDICTION) | (predictions.first_wrong >= end)

    ends = [*(2**k for k in range(longest.bit_length()) if 2**k < longest), longest]
    return {f"{end:,}": (float(end), partial(is_right, end=end)) for end in ends}


def _share_of(shares: Sequence[float], examples: int, *, is_own: bool) -> Entry:
    """Write the share of examples that are right, in the mean over seeds."""
    rate = statistics.mean(shares)
    return dataclasses.replace(
        number_entry(100 * rate, is_ranked=True),
        interval=wilson_interval(rate, examples), examples=examples, seeds=len(shares),
        is_own=is_own,
    )  # fmt: skip


def distance_tables(board: Board) -> Iterator[Table]:
    """Tabulate the accuracy at each distance, of a board of effective windows."""
    rows: dict[str, dict[str, Entry]] = {}
    for row, cells in board.rows.items():
        results = [run.result for cell in cells.values() for run in cell.runs]
        tested = [r.distances for r in results if isinstance(r, DistanceResult) and r.distances]
        for same in zip(*tested, strict=True):
            rows.setdefault(row, {})[f"{same[0].distance:,}"] = _share_of(
                [one.right / one.asked for one in same], same[0].asked, is_own=row in board.own_rows
            )
    if rows:
        places = {name: float(name.replace(",", "")) for row in rows.values() for name in row}
        yield Table(
            slugify("accuracy-by-distance", board.slug),
            f"{board.name}, accuracy by distance",
            f"Test accuracy in percent at each distance, in positions from a value to the read "
            f"that asks for it, as the mean over seeds. {RANKS}",
            fill_columns([*map(Column, places)], rows),
            lines=[Line("distance", places, "test accuracy, %", "distance, positions")],
        )
