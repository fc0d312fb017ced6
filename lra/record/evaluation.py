"""The record of a trained model's evaluation out of distribution."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from common.strict_yaml import plain
from lra.record.changes import Settings, write_changes
from lra.record.packed import list_files_of
from lra.record.schema import (
    SCHEMA_VERSION,
    Amount,
    Count,
    DataRecord,
    FileName,
    GitFacts,
    Percent,
    PositiveCount,
    Record,
    ShortText,
    ThreadsRecord,
    read_all,
    refuse_excess,
)
from lra.record.scores import PositionScores, TokenScores, refuse_other_accuracy

FILES = "evaluation-*.json"
"""Pattern of the names of these records' files in a run's folder."""


class EvaluationRecord(Record):
    """What a trained model scores out of distribution."""

    schema_version: Literal[2] = SCHEMA_VERSION
    run_id: FileName
    task: FileName
    mixer: FileName
    seed: Count
    config_hash: ShortText
    """Hash of the settings of the run whose model was evaluated."""
    has_changed_code: bool = False
    """Whether a plug-in's code was no longer that of the run."""
    length: PositiveCount | None
    """Length that was asked for, in positions; null if none was."""
    changes: Settings
    """Other options of the task that were changed, in the order of their names."""
    trained_length: PositiveCount
    """Positions of the longest sequence that the task admitted in training."""
    status: Literal["done"] = "done"
    test_accuracy: Percent
    test_correct: Count
    test_total: PositiveCount
    test_non_finite: Count | None = None
    """Targets among them whose logits are not finite, which count as wrong; null in records older
    than this field."""
    loss: Annotated[float, Field(ge=0)] | None
    """Mean over targets in nats; null if it is not finite."""
    baselines: dict[ShortText, Percent]
    largest_class: Percent
    positions: PositionScores | None = None
    """What is measured where targets are positions; null where they are examples."""
    tokens: TokenScores | None = None
    """See `RunRecord.tokens`."""
    examples_per_second: Amount
    device: ShortText
    threads: ThreadsRecord | None = None
    """What it was computed with; null on a GPU, and in records older than this field."""
    precision: ShortText
    versions: dict[ShortText, ShortText]
    git: GitFacts
    data: DataRecord

    @model_validator(mode="after")
    def _consistent(self) -> EvaluationRecord:
        refuse_other_accuracy(self.test_accuracy, self.test_correct, self.test_total, self.tokens)
        refuse_excess(self.test_correct, self.test_non_finite, self.test_total)
        return self

    @property
    def test_examples(self) -> int:
        """See `RunRecord.test_examples`."""
        return self.test_total if self.tokens is None else self.tokens.examples

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
    found, faults = read_all(
        EvaluationRecord, list_files_of(folder, FILES), lambda record: folder / record.path
    )
    return sorted(found, key=evaluation_order), faults


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
