"""What trained models score on longer or harder data than they were trained on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lra.record.changes import write_changes
from lra.record.evaluation import EvaluationRecord, evaluation_order
from lra.record.run import RunRecord
from lra.report.boards.board import Board
from lra.report.boards.cells import Cell
from lra.report.boards.results import Results


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

    def trained(self, method: str) -> Cell[RunRecord]:
        """Return the results of a method's evaluated models on the test set of their training."""
        evaluated = {one.run_id for cell in self.rows[method].values() for one in cell.runs}
        runs = self.board.rows[method][self.task].runs
        return Cell(tuple(run for run in runs if run.run_id in evaluated))

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


def lengths_of(evaluated: EvaluationBoard) -> dict[str, list[EvaluationRecord]]:
    """Group columns that differ in length, by what else is changed."""
    found: dict[str, list[EvaluationRecord]] = {}
    for column in evaluated.columns:
        if column.length is not None:
            also = f" with {', '.join(write_changes(column.changes))}" if column.changes else ""
            found.setdefault(f"length{also}", []).append(column)
    return found
