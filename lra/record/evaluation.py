"""The record of a trained model's evaluation out of distribution."""

import hashlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from lra.common.strict_yaml import plain
from lra.record.run import RUNS, TestedRecord
from lra.record.schema import read_all, write_changes
from lra.schema import Amount, PositiveCount, Settings


class EvaluationRecord(TestedRecord):
    """What a trained model scores out of distribution."""

    has_changed_code: bool = False
    """Whether a plug-in's code was no longer that of the run."""
    length: PositiveCount | None
    """Length that was asked for, in positions; null if none was."""
    changes: Settings
    """Other options of the task that were changed, in the order of their names."""
    trained_length: PositiveCount
    """Positions of the longest sequence that the task admitted in training."""
    status: Literal["done"] = "done"
    loss: Annotated[float, Field(ge=0)] | None
    """Mean over targets in nats; null if it is not finite."""
    examples_per_second: Amount

    @property
    def label(self) -> str:
        """Name of the data in tables."""
        parts = [] if self.length is None else [f"{self.length:,} positions"]
        marks = ["code changed since training"] if self.has_changed_code else []
        changes = [text.removeprefix("task.") for text in write_changes(self.changes)]
        return ", ".join([*parts, *changes, *marks])

    @property
    def path(self) -> str:
        """The file in the run's folder; repeating the evaluation replaces it."""
        marks = ["changed code"] if self.has_changed_code else []
        text = "\n".join([str(self.length), *write_changes(self.changes), *marks])
        return f"evaluation-{hashlib.sha256(text.encode()).hexdigest()[:8]}.json"

    def save(self, folder: Path) -> Path:
        """Write the file into the run's folder; return its path."""
        return self.write(folder / self.path)


def evaluations_of(folder: Path) -> tuple[list[EvaluationRecord], list[str]]:
    """Read what a run's model scored out of distribution; list the faults of unreadable files."""
    files = "evaluation-*.json"
    records, faults = read_all(EvaluationRecord, folder, files, lambda record: Path(record.path))
    return sorted(records, key=evaluation_order), faults


def evaluation_order(record: EvaluationRecord) -> tuple[int, int, Sequence[tuple[str, float, str]]]:
    """Return a sort key: fewer changes first, then shorter data, then changes with 5 before 10."""
    return (
        len(record.changes),
        record.length or 0,
        [
            (name, float(value) if isinstance(value, (int, float)) else math.inf, plain(value))
            for name, value in record.changes.items()
        ],
    )


def results_dir_of(folder: Path) -> Path | None:
    """Return the results folder that the folder of a run is in; None for any other folder."""
    parents = folder.parents
    return parents[3] if len(parents) > 3 and parents[2].name == RUNS else None  # noqa: PLR2004
