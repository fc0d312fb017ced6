"""Where in their windows, and in which windows, models need more or fewer bits."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from lra.record.evaluation import EvaluationRecord
from lra.record.scores import PositionLoss
from lra.report.boards.board import Board
from lra.report.boards.evaluations import EvaluationBoard, lengths_of
from lra.report.boards.measures import Result

IDEAL = "ideal predictor"
"""Name of what the best possible predictor needs."""


Range = tuple[int, int]
"""First and last position of a range, 0-based."""


AnyPart = TypeVar("AnyPart", Range, str)


@dataclass(frozen=True)
class Needed:
    """Bits a token that targets take in a part of the data."""

    bits: float
    ideal: float | None
    """Bits of the ideal predictor there; None where the law of the data is not known."""


@dataclass(frozen=True)
class Windows:
    """The results of a board's methods on windows of one data set."""

    results: Mapping[str, Sequence[Result]]
    """Results of all seeds, by method."""
    name: str
    """What the windows are, for titles."""
    trained_length: int
    """Positions of the longest window of the training."""


def windows_of(board: Board, evaluated: Sequence[EvaluationBoard]) -> list[Windows]:
    """Return the test set of a board, and the longest windows that its models were evaluated on."""
    (task,) = board.tasks
    own = {method: cells[task].runs for method, cells in board.rows.items()}
    trained = max(run.length for run in board.records)
    found = [Windows(own, "test set", trained)]
    for one in evaluated:
        columns: list[EvaluationRecord] = lengths_of(one).get("length", [])
        if columns:
            cells = {method: one.cell(method, columns[-1]) for method in one.rows}
            results = {method: cell.runs for method, cell in cells.items() if cell is not None}
            found.append(Windows(results, columns[-1].label, trained))
    return found


def by_position(results: Sequence[Result]) -> dict[Range, Needed]:
    """Return the bits at ranges of positions, in the mean over results."""
    return _needed(results, "", lambda part: (part.first, part.last))


def by_value(results: Sequence[Result], field: str) -> dict[str, Needed]:
    """Return the bits in windows of each value of a field of metadata, in the mean over results."""
    return _needed(results, field, lambda part: part.value)


def _needed(
    results: Sequence[Result], field: str, part_of: Callable[[PositionLoss], AnyPart]
) -> dict[AnyPart, Needed]:
    groups: dict[AnyPart, list[PositionLoss]] = {}
    for one in _losses(results):
        if one.field == field:
            groups.setdefault(part_of(one), []).append(one)
    found: dict[AnyPart, Needed] = {}
    for part, group in groups.items():
        bits = _mean_bits(group, [one.loss for one in group])
        if bits is not None:
            found[part] = Needed(bits, _mean_bits(group, [one.ideal for one in group]))
    return found


def _losses(results: Sequence[Result]) -> list[PositionLoss]:
    return [one for r in results if r.positions is not None for one in r.positions.by_position]


def _mean_bits(group: Sequence[PositionLoss], nats: Sequence[float | None]) -> float | None:
    """Average losses over targets, as bits; None if one is not known."""
    known = [loss for loss in nats if loss is not None]
    if len(known) < len(nats):
        return None
    return statistics.fmean(known, [one.targets for one in group]) / math.log(2)
