"""The metrics of a run, line by line; lines that cannot be read are named and left out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from common.errors import DataError
from lra.record.packed import has_file, read_file
from lra.record.run import LARGEST_METRICS
from lra.record.schema import Amount, Percent

LARGEST_LOSS = 1e18
"""Loss in nats that no curve shows."""


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
