"""What a report is made from: the records and other files of a results folder."""

import functools
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from lra.common.errors import DataError
from lra.record.benchmark import BenchRecord, all_bench_records
from lra.record.community import read_every_run
from lra.record.evaluation import EvaluationRecord, evaluations_of
from lra.record.packed import file_on_disk, has_file
from lra.record.run import RunRecord
from lra.record.run_files import MetricsLine, Predictions, read_metrics, read_predictions
from lra.record.schema import is_shipped, shipped_dir
from lra.report.boards import Board, boards, is_probe, leading_board
from lra.report.names import RowNames, complete

DEFAULT_RELATIVE_TO = "tnn"

AnyRecord = RunRecord | BenchRecord

Content = TypeVar("Content")


class Data:
    """The records under a results folder, one's own and the shipped ones, and what they make.

    Files that cannot be read are left out and named in `faults`. Speeds are relative to a mixer.

    Raises: UserError if there is no such folder.
    """

    def __init__(
        self,
        folder: Path,
        is_kept: Callable[[AnyRecord], bool] = lambda _: True,
        relative_to: str | None = None,
    ) -> None:
        self.folder = folder
        runs, self.faults = read_every_run(folder, "--results-dir")
        by_key: dict[object, tuple[Path, AnyRecord]]
        by_key = {_key(record): (path, record) for path, record in runs}
        for root in (shipped_dir(folder), folder):
            measured, more = all_bench_records(root)
            self.faults += more
            by_key |= {_key(record): (record.path(root), record) for record in measured}
        self._paths = {key: path for key, (path, _) in by_key.items()}
        self.every = [record for _, record in by_key.values()]
        """All records, those that are not kept included."""
        kept = [*filter(is_kept, self.every)]
        self.records = [record for record in kept if isinstance(record, RunRecord)]
        self.bench = [record for record in kept if isinstance(record, BenchRecord)]
        self.names = RowNames(self.records, self.bench)
        self._relative_to = relative_to
        self._contents: dict[Path, Any] = {}

    @cached_property
    def boards(self) -> list[Board]:
        """The results on other tasks than probes; those of next tokens come last."""
        others = [record for record in self.records if not is_probe(record)]
        return boards(others, self.names, self.is_own)

    @cached_property
    def leading_board(self) -> Board | None:
        """The board that the leaderboard is of."""
        return leading_board([board for board in self.boards if board.is_of_accuracy])

    @cached_property
    def relative_to(self) -> str:
        """The mixer that speeds are divided by; raises UserError if none has the name asked for."""
        if self._relative_to is None:
            return DEFAULT_RELATIVE_TO
        rows = {*map(self.names.of, self.records), *map(self.names.of_mixer, self.bench)}
        return complete(self._relative_to, rows, "mixer among the runs", "--relative-to")

    def path(self, record: AnyRecord) -> Path:
        """Return the folder of a run, or the file of a measurement."""
        return self._paths[_key(record)]

    def is_own(self, record: AnyRecord) -> bool:
        """Whether a record is the user's own: whether it is not in the folder of shipped ones."""
        is_contributed = isinstance(record, RunRecord) and record.contribution is not None
        return not (is_contributed or is_shipped(self.path(record), self.folder))

    def time(self, record: RunRecord) -> float:
        """Return when the record of a run was written, in seconds since 1970."""
        return file_on_disk(self.path(record) / "result.json").stat().st_mtime

    def add_fault(self, text: str) -> None:
        """Note a fault: something that cannot be read or shown."""
        if text not in self.faults:
            self.faults.append(text)

    def _read_once(self, path: Path, read: Callable[[Path], tuple[Content, list[str]]]) -> Content:
        if path not in self._contents:
            self._contents[path], faults = read(path)
            for fault in faults:
                self.add_fault(fault)
        return self._contents[path]

    def metrics(self, record: RunRecord) -> list[MetricsLine]:
        """Read the metrics of a run, in order of steps."""
        return self._read_once(self.path(record) / "metrics.jsonl", read_metrics)

    def evaluations(self, record: RunRecord) -> list[EvaluationRecord]:
        """Read the records of evaluations of a run's model out of distribution."""
        return self._read_once(self.path(record), evaluations_of)

    def predictions(self, record: RunRecord) -> Predictions | None:
        """Read the predictions of a finished run; None without a file that fits its record."""
        path = self.path(record) / "predictions.csv"
        return self._read_once(path, functools.partial(_read_predictions, record))

    def predictions_on_same(
        self, runs: Sequence[RunRecord], first: Predictions | None = None
    ) -> dict[int, Predictions]:
        """Read predictions by seed; those of other examples than the first are faults."""
        by_seed: dict[int, Predictions] = {}
        for run in runs:
            if (predictions := self.predictions(run)) is not None:
                first = first or predictions
                if predictions.same_examples(first):
                    by_seed[run.seed] = predictions
                else:
                    self.add_fault(f"{self.path(run)}: its predictions are of other examples")
        return by_seed


def _key(record: AnyRecord) -> object:
    """Tell records apart, also a shipped run from one's own unfinished one beside it."""
    if isinstance(record, BenchRecord):
        return record.path(Path())
    name = record.contribution and record.contribution.name
    return record.task, record.mixer, record.run_id, record.status, name


def _read_predictions(record: RunRecord, path: Path) -> tuple[Predictions | None, list[str]]:
    if record.status != "done" or not has_file(path):
        return None, []
    try:
        return read_predictions(record, path), []
    except (DataError, ValueError, KeyError, OSError, OverflowError) as error:
        return None, [f"{path}: not the predictions of its run: {error}"]
