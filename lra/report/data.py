"""What a report is made from: the records and other files of a results folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from common.errors import DataError
from lra.record.benchmark import BenchRecord, all_bench_records
from lra.record.evaluation import EvaluationRecord, evaluations_of
from lra.record.packed import file_on_disk, has_file, read_file
from lra.record.run import LARGEST_METRICS, RunRecord
from lra.record.schema import Amount, Percent, is_shipped, shipped_dir
from lra.record.table import read_runs
from lra.report.boards import Board, boards, leading_board
from lra.report.names import RowNames, complete
from lra.report.predictions import Predictions, read_predictions
from tasks.base import PROBES

MOST_VALIDATIONS = 10_000
"""Most validations of a run whose curve is drawn."""
LARGEST_LOSS = 1e18
"""Loss in nats that no curve shows."""
DEFAULT_RELATIVE_TO = "tnn"


def _that_can_be_drawn(value: object) -> object:
    is_sane = isinstance(value, (int, float)) and 0 <= value < LARGEST_LOSS
    return value if is_sane else None


class MetricsLine(BaseModel):
    """A line of metrics.jsonl."""

    model_config = ConfigDict(allow_inf_nan=False)

    step: Annotated[int, Field(ge=0, lt=2**53)]
    seconds: Amount
    """Seconds of training and evaluation since the start of the run, before and after resuming."""
    accuracy: Annotated[Percent | None, BeforeValidator(_that_can_be_drawn)] = None
    """Accuracy on the training examples since the line before in percent; None on other lines."""
    val_accuracy: Percent | None = None
    """Accuracy on the validation split in percent; None on a line about training."""
    val_loss: Annotated[float | None, BeforeValidator(_that_can_be_drawn)] = None
    """Mean loss on the validation split in nats; None also if it is not finite, or absurd."""


def read_metrics(path: Path) -> tuple[list[MetricsLine], list[str]]:
    """Read a metrics.jsonl, in order of steps, and list its faults; nothing if there is none."""
    if not has_file(path):
        return [], []
    found: list[MetricsLine] = []
    wrong: list[str] = []
    try:
        content = read_file(path, largest=LARGEST_METRICS)
    except (DataError, OSError) as error:
        return [], [f"{path}: {error}"]
    for number, line in enumerate(content.splitlines(), start=1):
        try:
            found.append(MetricsLine.model_validate_json(line))
        except ValidationError as error:
            wrong.append(f"line {number} is no line of metrics: {error.errors()[0]['msg']}")
    more = f" (and {len(wrong) - 1:,} others)" if len(wrong) > 1 else ""
    faults = [f"{path}: {wrong[0]}{more}"] if wrong else []
    validations = sum(line.val_accuracy is not None for line in found)
    if validations > MOST_VALIDATIONS:
        return [], [*faults, f"{path}: {validations:,} validations, more than can be shown"]
    return sorted(found, key=lambda line: line.step), faults


def _key(record: RunRecord) -> tuple[str, str, str, str]:
    """Tell runs apart, a shipped one also from the unfinished one of the user's own beside it."""
    return record.task, record.mixer, record.run_id, record.status


class Data:
    """The records under a results folder, one's own and the shipped ones, and what they make.

    Files that cannot be read are left out and named in `faults`.

    Args:
        folder: the results folder.
        is_kept: says which records are used; None: all.
        relative_to: mixer that speeds are divided by; None: tnn.
    Raises: UserError if there is no such folder.
    """

    def __init__(
        self,
        folder: Path,
        is_kept: Callable[[RunRecord | BenchRecord], bool] | None = None,
        relative_to: str | None = None,
    ) -> None:
        self.folder = folder
        runs, self.faults = read_runs(folder, "--results-dir", shipped=True)
        bench: dict[Path, tuple[Path, BenchRecord]] = {}
        for root in (shipped_dir(folder), folder):
            measured, more = all_bench_records(root)
            self.faults += more
            bench |= {record.path(Path()): (root, record) for record in measured}
        self._folders = {_key(record): place for place, record in runs}
        self._bench_roots = {name: root for name, (root, _) in bench.items()}
        self.every: list[RunRecord | BenchRecord] = [
            *(record for _, record in runs), *(record for _, record in bench.values()),
        ]  # fmt: skip
        """All records, those that are not kept included."""
        kept = [record for record in self.every if is_kept is None or is_kept(record)]
        self.records = [record for record in kept if isinstance(record, RunRecord)]
        self.bench = [record for record in kept if isinstance(record, BenchRecord)]
        self.names = RowNames(self.records, self.bench)
        self._relative_to = relative_to
        self._predictions: dict[Path, Predictions | None] = {}
        self._evaluations: dict[Path, list[EvaluationRecord]] = {}
        self._metrics: dict[Path, list[MetricsLine]] = {}

    @cached_property
    def boards(self) -> list[Board]:
        """The results on other tasks than probes; those of next tokens come last."""
        others = [record for record in self.records if record.task not in PROBES]
        return boards(others, self.names, self.is_own)

    @cached_property
    def leading_board(self) -> Board | None:
        """The board that the leaderboard is of."""
        return leading_board([board for board in self.boards if not board.of_positions])

    @cached_property
    def relative_to(self) -> str:
        """The mixer that speeds are divided by.

        Raises: UserError if no mixer has the name that was asked for.
        """
        if self._relative_to is None:
            return DEFAULT_RELATIVE_TO
        rows = {*map(self.names.of, self.records), *map(self.names.of_mixer, self.bench)}
        return complete(self._relative_to, rows, "mixer among the runs", "--relative-to")

    def path(self, record: RunRecord | BenchRecord) -> Path:
        """Return the folder of a run, or the file of a measurement."""
        if isinstance(record, RunRecord):
            return self._folders[_key(record)]
        return record.path(self._bench_roots[record.path(Path())])

    def is_own(self, record: RunRecord | BenchRecord) -> bool:
        """Whether a record is the user's own: whether it is not in the folder of shipped ones."""
        return not is_shipped(self.path(record), self.folder)

    def time(self, record: RunRecord) -> float:
        """Return when the record of a run was written, in seconds since 1970."""
        return file_on_disk(self.path(record) / "result.json").stat().st_mtime

    def add_fault(self, text: str) -> None:
        """Note a fault: something that cannot be read or shown."""
        if text not in self.faults:
            self.faults.append(text)

    def metrics(self, record: RunRecord) -> list[MetricsLine]:
        """Read the metrics of a run, in order of steps."""
        path = self.path(record) / "metrics.jsonl"
        if path not in self._metrics:
            self._metrics[path], faults = read_metrics(path)
            for fault in faults:
                self.add_fault(fault)
        return self._metrics[path]

    def evaluations(self, record: RunRecord) -> list[EvaluationRecord]:
        """Read the records of evaluations of a run's model out of distribution."""
        folder = self.path(record)
        if folder not in self._evaluations:
            self._evaluations[folder], faults = evaluations_of(folder)
            for fault in faults:
                self.add_fault(fault)
        return self._evaluations[folder]

    def has_predictions(self, record: RunRecord) -> bool:
        """Whether a run is finished and has a file of predictions."""
        return record.status == "done" and has_file(self.path(record) / "predictions.csv")

    def predictions(self, record: RunRecord) -> Predictions | None:
        """Read the predictions of a finished run.

        Returns: the predictions; None if there is no such file, or if it contradicts the record.
        """
        path = self.path(record) / "predictions.csv"
        if path not in self._predictions:
            self._predictions[path] = None
            if self.has_predictions(record):
                try:
                    self._predictions[path] = read_predictions(record, path)
                except (DataError, ValueError, KeyError, OSError, OverflowError) as error:
                    self.add_fault(f"{path}: not the predictions of its run: {error}")
        return self._predictions[path]

    def predictions_on_same(self, runs: Sequence[RunRecord]) -> dict[int, Predictions]:
        """Read the predictions of runs on the same examples, by seed.

        A run whose examples differ from those of the first run is left out and noted as a fault.
        """
        found: dict[int, Predictions] = {}
        for run in runs:
            predictions = self.predictions(run)
            if predictions is None:
                continue
            if predictions.same_examples(next(iter(found.values()), predictions)):
                found[run.seed] = predictions
            else:
                self.add_fault(f"{self.path(run)}: its predictions are of other examples")
        return found
