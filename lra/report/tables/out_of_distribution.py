"""Trained models out of distribution, beside the test set of their training."""

from __future__ import annotations

from lra.record.evaluation import EvaluationRecord
from lra.report.boards.board import Board
from lra.report.boards.evaluations import EvaluationBoard, evaluation_boards
from lra.report.boards.measures import ACCURACY, Measure
from lra.report.boards.results import Results
from lra.report.boards.slugs import slugify
from lra.report.tables.accuracy import RANKS
from lra.report.tables.result_columns import result_column, result_entry
from lra.report.tables.table import Table, name_column


def evaluation_tables(results: Results, board: Board, slug: str) -> list[Table]:
    """Tabulate what the models of a board scored out of distribution, by each measure."""
    return [
        _table(evaluated, measure, slug)
        for evaluated in evaluation_boards(results, board)
        for measure in board.measures
    ]


def _table(evaluated: EvaluationBoard, measure: Measure, slug: str) -> Table:
    """Tabulate results out of distribution beside those on the training's own test set."""
    beneath = _numbers_beneath(evaluated, measure)
    trained = [evaluated.trained(method) for method in evaluated.rows]
    by_column = {"as trained": trained} | {
        column.label: [evaluated.cell(method, column) for method in evaluated.rows]
        for column in evaluated.columns
    }
    columns = [name_column("mixer", [*evaluated.rows, *beneath], evaluated.board.own_rows)]
    for name, cells in by_column.items():
        entries = [result_entry(cell, measure) for cell in cells]
        below = [numbers.get(name) for numbers in beneath.values()]
        columns.append(result_column(name, measure, entries, below))
    named = [] if measure is ACCURACY else [measure.name]
    return Table(
        slug=slugify("out-of-distribution", evaluated.task, *named, slug),
        title=f"{evaluated.board.name}: {', '.join(named) or evaluated.task}, out of distribution",
        caption=f"{measure.name.capitalize()} of models trained at up to "
        f"{evaluated.trained_lengths} positions, on other data of the same task. Each column names "
        f"how its data differs from the training data. The models are not trained any further. "
        f"{RANKS}",
        columns=columns,
        facts=[
            _fact(method, one, measure)
            for method in evaluated.rows
            for column in evaluated.columns
            if (cell := evaluated.cell(method, column)) is not None
            for one in cell.runs
        ],
    )


def _numbers_beneath(evaluated: EvaluationBoard, measure: Measure) -> dict[str, dict[str, float]]:
    """Return the numbers of trivial baselines and bounds, by their name and then by column."""
    runs = sorted(evaluated.board.records, key=lambda run: run.run_id)
    by_column = {column.label: measure.beneath(column) for column in evaluated.columns}
    names = dict.fromkeys(name for found in by_column.values() for name in found)
    trained = measure.rows_beneath([run for run in runs if run.task == evaluated.task])
    by_column = {"as trained": trained, **by_column}
    return {
        name: {column: found[name] for column, found in by_column.items() if name in found}
        for name in names
    }


def _fact(method: str, record: EvaluationRecord, measure: Measure) -> dict[str, object]:
    fields = {"run_id", "seed", "trained_length", "test_accuracy", "test_total",
              "test_non_finite", "loss"}  # fmt: skip
    found = {"method": method, "data": record.label, **record.model_dump(include=fields)}
    return found if measure is ACCURACY else {**found, measure.name: measure.of(record)}
