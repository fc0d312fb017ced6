"""Trained models out of distribution, beside the test set of their training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lra.record.evaluation import EvaluationRecord
from lra.report.boards.board import Board
from lra.report.boards.evaluations import EvaluationBoard, evaluation_boards
from lra.report.boards.measures import ACCURACY, Measure
from lra.report.boards.results import Results
from lra.report.boards.slugs import slugify
from lra.report.tables.table import Table
from lra.runtime.console import MISSING

if TYPE_CHECKING:
    pass


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
