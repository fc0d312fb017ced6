"""A run among other runs: seeds of the same settings, and its place in its preset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lra.config.request import DEFAULT_PROTOCOL
from lra.record.changes import select_sections
from lra.record.run import RunRecord, folder_of, with_shipped
from lra.record.schema import is_shipped
from lra.report.boards.board import Board, boards, position_boards
from lra.report.boards.cells import Cell
from lra.report.boards.measures import Measure
from lra.report.boards.ranking import rounded
from lra.report.boards.row_names import RowNames

NEIGHBOURS = 2
"""Rows that are shown on either side of a run's own row."""


@dataclass(frozen=True)
class Standing:
    """A run and the rows that it compares with."""

    record: RunRecord
    name: str
    """The run's row."""
    board: Board
    """The table of its preset, protocol and data."""
    shipped: Sequence[RunRecord]

    @classmethod
    def read(cls, results_dir: Path, record: RunRecord) -> Standing:
        """Read the records of a results folder and its shipped ones that a run compares with."""
        own = folder_of(results_dir, record)
        pairs = [
            (folder, run)
            for folder, run in with_shipped(results_dir)[0]
            if (run.task, run.preset) == (record.task, record.preset) and folder != own
        ]
        runs = [*(run for _, run in pairs), record]
        shipped = [run for folder, run in pairs if is_shipped(folder, results_dir)]
        names = RowNames(runs)
        find = boards if record.positions is None else position_boards
        name = names.of(record)
        found = find([run for run in runs if _compares(run, record)], names)
        return cls(record, name, next(board for board in found if name in board.rows), shipped)

    @property
    def measure(self) -> Measure:
        """What rows are ranked by."""
        return self.board.measures[0]

    @property
    def cell(self) -> Cell[RunRecord]:
        """All seeds of the run's row."""
        return self.board.rows[self.name][self.record.task]

    def describe_seeds(self, unit: str) -> str:
        """Describe the mean over the seeds of the same settings; empty without other seeds.

        Args:
            unit: of the measure, as it follows a number.
        """
        has_result = [run for run in self.cell.runs if self.measure.of(run) is not None]
        others = [run for run in has_result if run is not self.record]
        if not others:
            return ""
        shipped = sum(any(run is one for one in self.shipped) for run in others)
        counts = [
            f"{count} {kind} seed{'s' * (count != 1)}"
            for count, kind in ((len(others) - shipped, "other"), (shipped, "shipped"))
            if count
        ]
        start = f"with {' and '.join(counts)}"
        if len(others) == len(has_result):
            start = f"{' and '.join(counts)} of these settings"
        mean = f"{self.cell.spread_of(self.measure)} {unit}"
        several = " (mean ± standard deviation)" if len(has_result) > 1 else ""
        remarks = [word for word in self.cell.remarks_of(self.measure) if word != "at chance"]
        return f"{start}: {', '.join([mean + several, *remarks])}"

    def describe_rank(self) -> tuple[str, list[str]]:
        """Describe the place of the run's row: a sentence, and rows with their numbers.

        Rows that failed or are at chance have no place. Equal numbers share one.
        """
        texts = {
            name: rounded(value, self.measure.digits)
            for name, cells in self.board.rows.items()
            if (value := cells[self.record.task].value_of(self.measure)) is not None
        }
        sign = 1 if self.measure.lowest_is_best else -1
        order = sorted(texts, key=lambda name: (sign * float(texts[name]), name))
        where = self._describe_board()
        if self.name not in texts:
            reason = self._reason_without_rank()
            kept = order[: 2 * NEIGHBOURS + 1]
            if not kept:
                return f"not ranked ({reason})", []
            return f"not ranked ({reason}); best of {_count(order)} {where}:", _listed(kept, texts)
        place = order.index(self.name)
        values = [texts[name] for name in order]
        rank = values.index(texts[self.name]) + 1
        if len(order) == 1:
            return f"no rank yet: no other mixer or variant has a result {where}", []
        start = max(0, place - NEIGHBOURS)
        kept = order[start : place + NEIGHBOURS + 1]
        verb = "shares rank" if values.count(texts[self.name]) > 1 else "rank"
        if self.measure.of(self.record) is None:
            verb = f"its other seeds have {verb}"
        return f"{verb} {rank} of {_count(order)} {where}:", _listed(kept, texts, self.name)

    def _reason_without_rank(self) -> str:
        if self.cell.is_at_chance:
            return "at chance"
        is_other_seed = self.measure.of(self.record) is not None
        return "a seed diverged or ran out of memory" if is_other_seed else "no result"

    def _describe_board(self) -> str:
        record = self.record
        where = "at this preset"
        if record.protocol != DEFAULT_PROTOCOL:
            where += f" and protocol {record.protocol}"
        has_changed_data = bool(select_sections(record.changes, "task"))
        return f"{where} with the same data" if has_changed_data else where


def _compares(run: RunRecord, record: RunRecord) -> bool:
    """Whether a run of the same task and preset has the protocol, data and selection of another."""
    same_data = run.data.source, run.data.fingerprint
    same_rule = (
        None in (run.selected_on, record.selected_on) or run.selected_on == record.selected_on
    )
    return (
        same_rule
        and run.protocol == record.protocol
        and same_data == (record.data.source, record.data.fingerprint)
    )


def _count(rows: Sequence[str]) -> str:
    """Write how many rows there are; a variant is a mixer with changed settings."""
    return f"{len(rows)} mixers and variants" if len(rows) > 1 else "1 mixer or variant"


def _listed(names: Sequence[str], texts: dict[str, str], own: str | None = None) -> list[str]:
    """Write rows with their numbers, and mark a run's own."""
    return [
        f"> {name} {texts[name]} <" if name == own else f"{name} {texts[name]}" for name in names
    ]
