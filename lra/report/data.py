"""What the report is made from: the records, sorted into what compares with each other."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from lra.record.run import RunRecord
from lra.report.boards.benchmarks import bench_boards
from lra.report.boards.board import Board, boards, leading_board, position_boards
from lra.report.boards.comparison import find_method
from lra.report.boards.preset_speeds import PresetSpeeds, preset_speeds
from lra.report.boards.probes import Probe, probes
from lra.report.boards.results import Results
from lra.report.boards.row_names import RowNames
from lra.report.boards.speeds import SpeedBoard, speed_boards
from lra.report.figures.styles import MethodStyles, assign_styles
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
        self.published = choose_published(options.published)

    @cached_property
    def _others(self) -> list[RunRecord]:
        """The runs on other tasks than probes."""
        return [record for record in self.results.records if record.task not in PROBES]

    @cached_property
    def boards(self) -> list[Board]:
        """Results whose targets are examples."""
        return boards(self._others, self.names, self.results.is_own)

    @cached_property
    def position_boards(self) -> list[Board]:
        """Results whose targets are positions."""
        return position_boards(self._others, self.names, self.results.is_own)

    @cached_property
    def speed_boards(self) -> list[SpeedBoard]:
        """Speeds of runs."""
        return speed_boards(self._others, self.names, self.results.is_own)

    @cached_property
    def bench_boards(self) -> list[SpeedBoard]:
        """Speeds that were measured in interleaved rounds."""
        return bench_boards(self.results.bench, self.names, self.results.is_own)

    @cached_property
    def probes(self) -> list[Probe]:
        """Results on probes."""
        return probes(self.results)

    @property
    def _shown(self) -> list[Board | SpeedBoard]:
        return [*self.boards, *self.position_boards, *self.speed_boards, *self.bench_boards]

    @cached_property
    def styles(self) -> MethodStyles:
        """The style of each row in figures."""
        rows = [row for board in self._shown for row in board.rows]
        of_probes = [
            row for probe in self.probes for row in {*probe.rows, *probe.families.values()}
        ]
        return assign_styles([*rows, *of_probes])

    @cached_property
    def relative_to(self) -> str:
        """The mixer that speeds are divided by.

        Raises: UserError if no mixer has the name that was asked for.
        """
        given = self.options.relative_to
        if given is None:
            return DEFAULT_RELATIVE_TO
        return find_method(self._shown, given, "--relative-to")

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
