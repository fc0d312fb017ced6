"""The table of runs, and the metrics and predictions of each: files beside its record."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from common.errors import DataError
from common.spreadsheets import unguard
from common.strict_yaml import plain
from common.untrusted import explain_errors
from lra.record.packed import has_file, read_file
from lra.record.run import NO_PREDICTION, RunRecord
from lra.record.schema import Amount, Percent, is_shipped
from lra.statistics import wilson_interval
from tasks.base import LONGEST_WORD, MOST_CLASSES, OUTCOMES, is_word

if TYPE_CHECKING:
    import pandas as pd

LARGEST_METRICS = 2**30
"""Most bytes of metrics.jsonl."""
LARGEST_LOSS = 1e18
"""Loss in nats that no curve shows."""
LARGEST_PREDICTIONS = 2**28
"""Most bytes of predictions."""
LONGEST = 2**31
"""Limit of the lengths of examples with labels of positions."""


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
            and all(np.array_equal(v, other.metadata[name]) for name, v in self.metadata.items())
        )


def read_predictions(record: RunRecord, path: Path) -> Predictions:
    """Read the predictions of a run from its file.

    Raises: DataError, KeyError, OSError, OverflowError or ValueError if the file cannot be read, or
        contradicts the record.
    """
    import pandas as pd

    with explain_errors("its text"):
        content = read_file(path, largest=LARGEST_PREDICTIONS)
        frame = pd.read_csv(io.BytesIO(content), keep_default_na=False, na_values={})
    frame = frame.rename(columns=unguard).map(unguard)
    columns = {str(name): column.to_numpy() for name, column in frame.items()}
    is_of_tokens = record.tokens is not None
    limit = LONGEST if is_of_tokens else MOST_CLASSES
    for name in [*OUTCOMES, "length"] if is_of_tokens else ["label", "prediction"]:
        column = columns[name]
        if column.dtype.kind != "i" or not ((column >= NO_PREDICTION) & (column < limit)).all():
            raise ValueError(f"{name}: not only whole numbers from {NO_PREDICTION} to {limit}")
    if is_of_tokens:
        targets, correct, first_wrong = (columns.pop(name) for name in OUTCOMES)
        found, lengths = Predictions(targets, correct, columns, first_wrong), columns["length"]
        if (targets > lengths).any() or (correct > targets).any() or (first_wrong >= lengths).any():
            raise ValueError("an example has more labels than positions, or than right ones")
        total, right = int(targets.sum()), int(correct.sum())
    else:
        found = Predictions(columns.pop("label"), columns.pop("prediction"), columns)
        total, right = len(found.labels), int((found.labels == found.predictions).sum())
    if (total, right) != (record.test_total, record.test_correct):
        raise ValueError(
            f"{right} of {total} right, its record says "
            f"{record.test_correct} of {record.test_total}"
        )
    for name, column in columns.items():
        words = [name] if column.dtype.kind == "i" else [name, *set(column)]
        if not all(map(is_word, words)):
            raise ValueError(
                f"a metadata field is neither whole numbers nor words of up to {LONGEST_WORD} "
                f"letters"
            )
    return found


def _drop_absurd(value: object) -> object:
    is_sane = isinstance(value, (int, float)) and 0 <= value < LARGEST_LOSS
    return value if is_sane else None


class MetricsLine(BaseModel):
    """A line of metrics.jsonl, about training or about a validation; None: not on this line."""

    model_config = ConfigDict(allow_inf_nan=False)

    step: Annotated[int, Field(ge=0, lt=2**53)]
    seconds: Amount
    """Seconds of training and evaluation since the start of the run, before and after resuming."""
    accuracy: Annotated[Percent | None, BeforeValidator(_drop_absurd)] = None
    """Accuracy on the training examples since the line before in percent."""
    val_accuracy: Percent | None = None
    """Accuracy on the validation split in percent."""
    val_loss: Annotated[float | None, BeforeValidator(_drop_absurd)] = None
    """Mean loss on the validation split in nats; None also if it is not finite, or absurd."""


def read_metrics(path: Path) -> tuple[list[MetricsLine], list[str]]:
    """Read a metrics.jsonl, in order of steps, and list its faults; nothing if there is none."""
    if not has_file(path):
        return [], []
    found: list[MetricsLine] = []
    faults: list[str] = []
    try:
        lines = read_file(path, largest=LARGEST_METRICS).splitlines()
    except (DataError, OSError) as error:
        return [], [f"{path}: {error}"]
    for number, line in enumerate(lines, start=1):
        try:
            found.append(MetricsLine.model_validate_json(line))
        except ValidationError as error:
            text = f"line {number} is no line of metrics: {error.errors()[0]['msg']}"
            faults = faults or [f"{path}: {text}"]
    return sorted(found, key=lambda line: line.step), faults


def to_frame(found: Iterable[tuple[Path, RunRecord]], folder: Path) -> pd.DataFrame:
    """Make a frame with a row for each run of a results folder, or shown with it.

    It has a column for each field and setting. Lists are joined by semicolons; settings that are
    lists are written as `--set` takes them.
    """
    import pandas as pd

    rows = [_row_of(place, record, folder) for place, record in found]
    frame = pd.json_normalize(rows).drop(columns=["positions", "pretraining"], errors="ignore")
    return frame.map(lambda value: "; ".join(map(str, value)) if isinstance(value, list) else value)


def _row_of(place: Path, record: RunRecord, folder: Path) -> dict[str, Any]:
    hidden = {"settings": True, "origins": True, "changed": True, "positions": {"by_position"}}
    row = record.model_dump(mode="json", exclude=hidden)
    row["is_own"] = not is_shipped(place, folder)
    row["overrides"] = "; ".join(record.overrides)
    if record.test_accuracy is not None and record.test_examples:
        interval = wilson_interval(record.test_accuracy / 100, record.test_examples)
        row["test_low"], row["test_high"] = interval
    row["path"] = str(place)
    is_plain = (bool, int, float, str, type(None))
    settings = record.settings.items()
    return row | {name: v if isinstance(v, is_plain) else plain(v) for name, v in settings}
