"""The table of runs, and the metrics and predictions of each: files beside its record."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from lra.common.errors import DataError
from lra.common.spreadsheets import unguard
from lra.common.strict_yaml import plain
from lra.common.untrusted import explain_errors
from lra.goals.result import Predictions
from lra.record.packed import has_file, read_file
from lra.record.run import RunRecord
from lra.record.schema import is_shipped
from lra.schema import Amount, Percent
from lra.tasks.base import LONGEST_WORD, is_word

if TYPE_CHECKING:
    import pandas as pd

LARGEST_METRICS = 2**30
"""Most bytes of metrics.jsonl."""
LARGEST_LOSS = 1e18
"""Loss in nats that no curve shows."""
LARGEST_PREDICTIONS = 2**28
"""Most bytes of predictions."""


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
    predictions = record.result.read_predictions(columns)
    for name, column in predictions.metadata.items():
        words = [name] if column.dtype.kind == "i" else [name, *set(column)]
        if not all(map(is_word, words)):
            raise ValueError(
                f"a metadata field is neither whole numbers nor words of up to {LONGEST_WORD} "
                f"letters"
            )
    return predictions


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
    metrics: list[MetricsLine] = []
    faults: list[str] = []
    try:
        lines = read_file(path, largest=LARGEST_METRICS).splitlines()
    except (DataError, OSError) as error:
        return [], [f"{path}: {error}"]
    for number, line in enumerate(lines, start=1):
        try:
            metrics.append(MetricsLine.model_validate_json(line))
        except ValidationError as error:
            text = f"line {number} is no line of metrics: {error.errors()[0]['msg']}"
            faults = faults or [f"{path}: {text}"]
    return sorted(metrics, key=lambda line: line.step), faults


def to_frame(runs: Iterable[tuple[Path, RunRecord]], folder: Path) -> pd.DataFrame:
    """Make a frame with a row for each run of a results folder, or shown with it.

    It has a column for each field and setting. Lists are joined by semicolons; settings that are
    lists are written as `--set` takes them.
    """
    import pandas as pd

    rows = [_row_of(run_folder, record, folder) for run_folder, record in runs]
    frame = pd.json_normalize(rows).drop(columns=["pretraining"], errors="ignore")
    return frame.map(lambda value: "; ".join(map(str, value)) if isinstance(value, list) else value)


def _row_of(run_folder: Path, record: RunRecord, folder: Path) -> dict[str, Any]:
    hidden = {"settings", "origins", "changed", "result"}
    row = record.model_dump(mode="json", exclude=hidden) | record.result.list_fields()
    of = record.contribution
    row["is_own"] = of is None and not is_shipped(run_folder, folder)
    row |= {"contribution": of and of.shown_name, "division": of and of.division}
    row["marks"] = " ".join(record.marks)
    row["overrides"] = "; ".join(record.overrides)
    if (interval := record.result.interval) is not None:
        row["test_low"], row["test_high"] = interval
    row["path"] = str(run_folder)
    is_plain = (bool, int, float, str, type(None))
    settings = record.settings.items()
    return row | {name: v if isinstance(v, is_plain) else plain(v) for name, v in settings}
