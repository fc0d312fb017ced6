"""What the report is made from: the records, sorted into what compares with each other."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from lra.report.boards.benchmarks import bench_boards
from lra.report.boards.board import Board, boards, leading_board, position_boards
from lra.report.boards.comparison import find_method
from lra.report.boards.preset_speeds import PresetSpeeds, preset_speeds
from lra.report.boards.probes import probes
from lra.report.boards.results import Results
from lra.report.boards.row_names import RowNames
from lra.report.boards.speeds import SpeedBoard, speed_boards
from lra.report.figures.styles import assign_styles
from lra.report.published.rows import choose_published
from tasks.base import PROBES

DEFAULT_RELATIVE_TO = "tnn"


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """What a report is to show."""

    relative_to: str | None = None
    """Mixer that speeds are relative to; None: tnn, if it has run."""
    published: str | None = None


class ReportData:
    """What the tables and figures of one report are made from.

    Raises: UserError for a mixer or a published method that is not there.
    """

    def __init__(self, results: Results, options: ReportOptions) -> None:
        self.results = results
        self.options = options
        self.names = RowNames(results.records, results.bench)
        others = [record for record in results.records if record.task not in PROBES]
        self.boards = boards(others, self.names, results.is_own)
        self.position_boards = position_boards(others, self.names, results.is_own)
        self.speed_boards = speed_boards(others, self.names, results.is_own)
        self.bench_boards = bench_boards(results.bench, self.names, results.is_own)
        self.probes = probes(results)
        shown = [*self.boards, *self.position_boards, *self.speed_boards, *self.bench_boards]
        rows = [row for board in shown for row in board.rows]
        of_probes = [
            row for probe in self.probes for row in {*probe.rows, *probe.families.values()}
        ]
        self.styles = assign_styles([*rows, *of_probes])
        self.relative_to = DEFAULT_RELATIVE_TO
        if options.relative_to is not None:
            self.relative_to = find_method(shown, options.relative_to, "--relative-to")
        self.published = choose_published(options.published)

    @cached_property
    def leading_board(self) -> Board | None:
        """The board that the leaderboard is of."""
        return leading_board(self.boards)

    def speeds_at_preset(self, board: Board) -> PresetSpeeds:
        """Return the measured training speeds at the preset of a board."""
        return preset_speeds(self.results.bench, board.preset, board.protocol, self.relative_to)

    @property
    def mixing_board(self) -> SpeedBoard | None:
        """The measurements of mixing alone that reach over most lengths."""
        found = [b for b in self.bench_boards if any(p.task == "mixing" for p in b.workloads)]
        return max(found, key=lambda board: len(board.workloads), default=None)
