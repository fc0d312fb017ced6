"""A results folder: its records, and the other files of the runs."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from lra.record.benchmark import BenchRecord, all_bench_records
from lra.record.evaluation import EvaluationRecord, evaluations_of
from lra.record.run import LARGEST_METRICS, NO_PREDICTION, RunRecord, with_shipped
from lra.record.schema import Amount, Percent, is_shipped, shipped_dir
from lra.runtime.console import without_apostrophe
from lra.runtime.errors import UserError
from tasks.base import LONGEST_WORD, MOST_CLASSES, OUTCOMES, is_word
from tasks.errors import DataError
from tasks.untrusted import explain_errors, read_regular

MOST_VALIDATIONS = 10_000
"""Most validations of a run whose curve is drawn."""

LARGEST_LOSS = 1e18
"""Loss in nats that no curve shows."""

LARGEST_PREDICTIONS = 2**28
"""Most bytes of predictions."""
LONGEST = 2**31
"""Limit of the lengths of examples with labels of positions."""


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


@dataclass(frozen=True)
class Predictions:
    """Predictions of a model for every test example, in the order of the data."""

    labels: np.ndarray
    """(examples,) true classes; or, where some positions have labels, how many have."""
    predictions: np.ndarray
    """(examples,) predicted classes; NO_PREDICTION where the model gave none. Where some positions
    have labels, how many were predicted right."""
    metadata: dict[str, np.ndarray]
    """Metadata fields by name, (examples,) numbers or strings each; length is among them."""
    first_wrong: np.ndarray | None = None
    """Where some positions have labels, (examples,) the first whose label was not predicted, or
    NO_PREDICTION if there is none. Otherwise None."""

    @property
    def right(self) -> np.ndarray:
        """Share of the labels of each example that were predicted: (examples,)."""
        if self.first_wrong is None:
            return self.labels == self.predictions
        return self.predictions / self.labels

    @property
    def are_all_positions_scored(self) -> bool:
        """Whether every position of every example has a label."""
        is_scored = self.first_wrong is not None
        return is_scored and np.array_equal(self.labels, self.metadata["length"])

    def same_examples(self, other: Predictions) -> bool:
        """Whether labels and metadata equal those of other predictions."""
        return (
            (self.first_wrong is None) == (other.first_wrong is None)
            and np.array_equal(self.labels, other.labels)
            and self.metadata.keys() == other.metadata.keys()
            and all(
                np.array_equal(self.metadata[name], other.metadata[name]) for name in self.metadata
            )
        )


def _read_cells(column: np.ndarray) -> np.ndarray:
    """Read a column of CSV, in which texts are as `as_text` writes them."""
    if column.dtype.kind != "O":
        return column
    cells = [without_apostrophe(cell) if isinstance(cell, str) else cell for cell in column]
    return np.array(cells, dtype=object)


def _check_metadata(name: str, column: np.ndarray) -> None:
    """Refuse metadata that is neither whole numbers nor words, or that no figure can show.

    Raises: ValueError saying so.
    """
    if column.dtype.kind == "i":
        words = [name]
    elif all(isinstance(value, str) for value in column):
        words = [name, *set(column)]
    else:
        raise ValueError("a metadata field is neither whole numbers nor words")
    if not all(map(is_word, words)):
        raise ValueError(f"a metadata field has words of over {LONGEST_WORD} letters, or odd ones")


def _take_classes(columns: dict[str, np.ndarray]) -> tuple[Predictions, int, int]:
    """Take the predicted classes of examples; return how many are right, and of how many.

    Raises: ValueError for what is no class.
    """
    found = Predictions(columns.pop("label"), columns.pop("prediction"), columns)
    _require_numbers("labels", found.labels, 0, MOST_CLASSES)
    _require_numbers("predictions", found.predictions, NO_PREDICTION, MOST_CLASSES)
    return found, int((found.labels == found.predictions).sum()), len(found.labels)


def _take_labels(columns: dict[str, np.ndarray]) -> tuple[Predictions, int, int]:
    """Take how many labels of each example were predicted; return their sum, and that of labels.

    Raises: ValueError for numbers that contradict each other.
    """
    targets, correct, first_wrong = (columns.pop(name) for name in OUTCOMES)
    lengths = columns["length"]
    _require_numbers("targets", targets, 1, LONGEST)
    _require_numbers("correct", correct, 0, LONGEST)
    _require_numbers("first_wrong", first_wrong, NO_PREDICTION, LONGEST)
    _require_numbers("length", lengths, 1, LONGEST)
    is_whole = correct == targets
    if (targets > lengths).any() or (correct > targets).any() or (first_wrong >= lengths).any():
        raise ValueError("an example has more labels than positions, or than right ones")
    if not np.array_equal(is_whole, first_wrong == NO_PREDICTION):
        raise ValueError("an example has a first wrong position and no wrong label, or none")
    found = Predictions(targets, correct, columns, first_wrong)
    return found, int(correct.sum()), int(targets.sum())


def _require_numbers(name: str, column: np.ndarray, least: int, limit: int) -> None:
    """Raise ValueError unless a column has whole numbers from `least` on, below `limit`."""
    if column.dtype.kind != "i" or not ((column >= least) & (column < limit)).all():
        raise ValueError(f"{name} are not all whole numbers from {max(0, least)} to {limit}")


def _key(record: RunRecord) -> tuple[str, str, str, str]:
    """Tell runs apart, a shipped one also from the unfinished one of the user's own beside it."""
    return record.task, record.mixer, record.run_id, record.status


class Results:
    """The records and other files under a results folder, one's own and the shipped ones.

    Files that cannot be read are left out and named in `faults`.

    Raises: UserError if there is no such folder.
    """

    def __init__(self, folder: Path) -> None:
        shipped = shipped_dir(folder)
        if not (folder.is_dir() or shipped.is_dir()):
            raise UserError(f"--results-dir: there is no folder {folder}")
        self.folder = folder
        found, self.faults = with_shipped(folder)
        self.records = [record for _, record in found]
        self._folders = {_key(record): place for place, record in found}
        self.bench: list[BenchRecord] = []
        self._bench_roots: dict[Path, Path] = {}
        for root in (shipped, folder):
            measured, more = all_bench_records(root)
            self.faults += more
            self._bench_roots |= {record.path(Path()): root for record in measured}
            new = {record.path(Path()) for record in measured}
            self.bench = [r for r in self.bench if r.path(Path()) not in new] + measured
        self._predictions: dict[Path, Predictions | None] = {}
        self._evaluations: dict[Path, list[EvaluationRecord]] = {}
        self._metrics: dict[Path, list[MetricsLine]] = {}

    def keep(self, is_kept: Callable[[RunRecord | BenchRecord], bool]) -> None:
        """Drop the records for which `is_kept` is false."""
        self.records = [record for record in self.records if is_kept(record)]
        self.bench = [record for record in self.bench if is_kept(record)]

    def path(self, record: RunRecord) -> Path:
        """Return the folder of a run."""
        return self._folders[_key(record)]

    def bench_path(self, record: BenchRecord) -> Path:
        """Return the file of a measurement."""
        return record.path(self._bench_roots[record.path(Path())])

    def is_own(self, record: RunRecord | BenchRecord) -> bool:
        """Whether a record is the user's own: whether it is not in the folder of shipped ones."""
        is_run = isinstance(record, RunRecord)
        place = self.path(record) if is_run else self.bench_path(record)
        return not is_shipped(place, self.folder)

    def add_fault(self, text: str) -> None:
        """Note a fault: something that cannot be read or shown."""
        if text not in self.faults:
            self.faults.append(text)

    def validations(self, record: RunRecord) -> list[MetricsLine]:
        """Read the lines of a run's metrics that have a validation accuracy, in order of steps."""
        return [line for line in self.metrics(record) if line.val_accuracy is not None]

    def metrics(self, record: RunRecord) -> list[MetricsLine]:
        """Read the metrics of a run, in order of steps."""
        path = self.path(record) / "metrics.jsonl"
        if path not in self._metrics:
            self._metrics[path] = self._read_metrics(path) if path.is_file() else []
        return self._metrics[path]

    def _read_metrics(self, path: Path) -> list[MetricsLine]:
        found: list[MetricsLine] = []
        wrong: list[str] = []
        try:
            content = read_regular(path, largest=LARGEST_METRICS)
        except (DataError, OSError) as error:
            self.add_fault(f"{path}: {error}")
            return []
        for number, line in enumerate(content.splitlines(), start=1):
            try:
                found.append(MetricsLine.model_validate_json(line))
            except ValidationError as error:
                wrong.append(f"line {number} is no line of metrics: {error.errors()[0]['msg']}")
        if wrong:
            more = f" (and {len(wrong) - 1:,} others)" if len(wrong) > 1 else ""
            self.add_fault(f"{path}: {wrong[0]}{more}")
        validations = sum(line.val_accuracy is not None for line in found)
        if validations > MOST_VALIDATIONS:
            self.add_fault(f"{path}: {validations:,} validations, more than can be shown")
            return []
        return sorted(found, key=lambda line: line.step)

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
        return record.status == "done" and (self.path(record) / "predictions.csv").is_file()

    def predictions(self, record: RunRecord) -> Predictions | None:
        """Read the predictions of a finished run.

        Returns: the predictions; None if there is no such file, or if it contradicts the record.
        """
        path = self.path(record) / "predictions.csv"
        if path not in self._predictions:
            self._predictions[path] = self._read_predictions(record, path)
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
            first = next(iter(found.values()), predictions)
            if predictions.same_examples(first):
                found[run.seed] = predictions
            else:
                self.add_fault(f"{self.path(run)}: its predictions are of other examples")
        return found

    def _read_predictions(self, record: RunRecord, path: Path) -> Predictions | None:
        import pandas as pd

        if not self.has_predictions(record):
            return None
        try:
            with explain_errors("its text"):
                content = read_regular(path, largest=LARGEST_PREDICTIONS)
                frame = pd.read_csv(io.BytesIO(content), keep_default_na=False, na_values={})
            columns = {
                without_apostrophe(str(name)): _read_cells(column.to_numpy())
                for name, column in frame.items()
            }
            take = _take_classes if record.tokens is None else _take_labels
            found, right, total = take(columns)
            if (total, right) != (record.test_total, record.test_correct):
                raise ValueError(
                    f"{right} of {total} right, its record says "
                    f"{record.test_correct} of {record.test_total}"
                )
            for name, column in columns.items():
                _check_metadata(name, column)
        except (DataError, ValueError, KeyError, OSError, OverflowError) as error:
            self.add_fault(f"{path}: not the predictions of its run: {error}")
            return None
        return found
