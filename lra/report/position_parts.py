"""Where in their windows, and in which windows, models need more or fewer bits."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from lra.record.evaluation import EvaluationRecord
from lra.record.positions import PositionLoss
from lra.report.boards import Board
from lra.report.drawing import slugify
from lra.report.measures import Result
from lra.report.out_of_distribution import EvaluationBoard, lengths_of
from lra.report.table import Table, ranks
from lra.runtime.console import MISSING

IDEAL = "ideal predictor"
"""Name of what the best possible predictor needs."""
_DIGITS = 3

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


def position_tables(board: Board, windows: Sequence[Windows], slug: str) -> list[Table]:
    """Tabulate bits by position within the windows."""
    tables: list[Table] = []
    for one in windows:
        rows = {
            method: {_label(place): needed for place, needed in sorted(by_position(runs).items())}
            for method, runs in one.results.items()
        }
        tables += _tables(board, rows, f"by position, {one.name}", slug)
    return tables


def metadata_tables(board: Board, windows: Windows, slug: str) -> list[Table]:
    """Tabulate bits by each field of metadata of the windows."""
    tables: list[Table] = []
    parts = [part for runs in windows.results.values() for part in _losses(runs)]
    for field in dict.fromkeys(part.field for part in parts if part.field):
        rows = {
            method: dict(sorted(by_value(runs, field).items(), key=_by_size))
            for method, runs in windows.results.items()
        }
        tables += _tables(board, rows, f"by {field}", slug)
    return tables


def _by_size(item: tuple[str, Needed]) -> tuple[int, str]:
    """Return a sort key by which whole numbers are in order of their size."""
    return len(item[0]), item[0]


def _label(place: Range) -> str:
    first, last = place
    return f"{first:,}" if first == last else f"{first:,} to {last:,}"


def _tables(
    board: Board, rows: Mapping[str, Mapping[str, Needed]], by: str, slug: str
) -> list[Table]:
    """Tabulate bits by method and part, in one table or, if there are none, in none.

    Where the ideal predictor's are known for all, models have what they need above these.
    """
    rows = {method: found for method, found in rows.items() if found}
    parts = list(max(rows.values(), key=len, default={}))
    ideal = {part: needed.ideal for found in rows.values() for part, needed in found.items()}
    if not parts:
        return []
    has_ideal = None not in ideal.values()
    values = [
        [found[part].bits - (ideal[part] or 0.0) * has_ideal if part in found else None
         for part in parts]
        for found in rows.values()
    ]  # fmt: skip
    beneath = [[IDEAL, *(_text(ideal[part]) for part in parts)]] if has_ideal else []
    what = f"bits a token above the {IDEAL}" if has_ideal else "bits a token"
    table = Table(
        slug=slugify("bits", *board.tasks, by, slug),
        title=f"{board.name}: bits {by}",
        caption=f"{what.capitalize()}, in the mean over seeds"
        + (f"; beneath, all that the {IDEAL} needs" if has_ideal else "")
        + ". Positions count from 0. The best of a column in bold, the second underlined.",
        columns=["mixer", *parts],
        rows=[
            *([method, *map(_text, row)] for method, row in zip(rows, values, strict=True)),
            *beneath,
        ],
        marks={
            (i, j): mark
            for j, column in enumerate(zip(*values, strict=True), start=1)
            for i, mark in ranks(column, _DIGITS, lowest_is_best=True).items()
        },
        facts=[
            {"board": board.name, "by": by, "mixer": method, "part": part, "bits": needed.bits,
             "ideal_bits": needed.ideal}
            for method, found in rows.items()
            for part, needed in found.items()
        ],
    )  # fmt: skip
    return [table]


def _text(bits: float | None) -> str:
    return MISSING if bits is None else f"{bits:.{_DIGITS}f}"
