"""A results folder: its records, and what the runs wrote beside them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import BaseModel, NonNegativeInt, ValidationError

from lra.bench_record import BenchRecord, all_bench_records
from lra.errors import UserError
from lra.record import RunRecord, all_records, folder_of


class MetricsLine(BaseModel):
    """A line of metrics.jsonl."""

    step: NonNegativeInt
    seconds: float
    """Since the start of the run, all its sessions, evaluation included."""
    val_accuracy: float | None = None
    """Percent; None on a line about training."""


@dataclass(frozen=True)
class Guesses:
    """What a model made of every test example, in the order of the data."""

    labels: np.ndarray
    """(examples,) true classes."""
    guesses: np.ndarray
    """(examples,) classes the model gave."""
    traits: dict[str, np.ndarray]
    """(examples,) numbers or strings by name, length among them."""

    @property
    def is_right(self) -> np.ndarray:
        """(examples,) bool."""
        return self.labels == self.guesses


class Results:
    """What lies under a results folder. What cannot be read is left out and named in `faults`.

    Raises: UserError if there is no such folder.
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise UserError(f"--results-dir: there is no folder {folder}")
        self.folder = folder
        self.records, self.faults = all_records(folder)
        self.bench, more = all_bench_records(folder)
        self.faults += more
        self._guesses: dict[Path, Guesses | None] = {}

    def keep(self, wanted: Callable[[RunRecord | BenchRecord], bool]) -> None:
        """Drop the records that are not wanted."""
        self.records = [record for record in self.records if wanted(record)]
        self.bench = [record for record in self.bench if wanted(record)]

    def path(self, record: RunRecord) -> Path:
        """Return the folder of a run."""
        return folder_of(self.folder, record)

    def _fault(self, text: str) -> None:
        if text not in self.faults:
            self.faults.append(text)

    def validations(self, record: RunRecord) -> list[MetricsLine]:
        """Read the lines on validations of a run, in order of steps."""
        path = self.path(record) / "metrics.jsonl"
        if not path.is_file():
            return []
        found = []
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            try:
                found.append(MetricsLine.model_validate_json(line))
            except ValidationError as error:
                self._fault(
                    f"{path}: line {number} is no line of metrics: {error.errors()[0]['msg']}"
                )
        validations = [line for line in found if line.val_accuracy is not None]
        return sorted(validations, key=lambda line: line.step)

    def guesses(self, record: RunRecord) -> Guesses | None:
        """Read the guesses of a finished run.

        Returns: None where there is no such file, or one that its record contradicts.
        """
        path = self.path(record) / "guesses.csv"
        if path not in self._guesses:
            self._guesses[path] = self._read_guesses(record, path)
        return self._guesses[path]

    def _read_guesses(self, record: RunRecord, path: Path) -> Guesses | None:
        import pandas as pd

        if record.status != "done" or not path.is_file():
            return None
        try:
            columns = {str(name): column.to_numpy() for name, column in pd.read_csv(path).items()}
            found = Guesses(columns.pop("label"), columns.pop("guess"), columns)
            for name, column in (("label", found.labels), ("guess", found.guesses)):
                if column.dtype.kind != "i" or (column < 0).any():
                    raise ValueError(f"{name}s are not all whole numbers of at least 0")
            right = int(found.is_right.sum())
            if (len(found.labels), right) != (record.test_total, record.test_correct):
                raise ValueError(
                    f"{right} of {len(found.labels)} right, its record says "
                    f"{record.test_correct} of {record.test_total}"
                )
        except (ValueError, KeyError, OSError) as error:
            self._fault(f"{path}: not the guesses of its run: {error}")
            return None
        return found
