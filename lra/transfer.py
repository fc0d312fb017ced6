"""Trained models on other data of their task: longer, deeper, harder than in training."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, model_validator

from lra.config import RunConfig
from lra.environment import device_name, git_state, versions
from lra.errors import UserError
from lra.evaluate import evaluate
from lra.files import write_atomically
from lra.record import ROUNDING, Amount, DataRecord, Name, Percent, RunRecord, read_record
from lra.registry import TASKS
from lra.settings_file import plain
from lra.trained import best_model, config_of
from tasks.base import DataError, largest_class

SCHEMA_VERSION = 1
EXAMPLES = 2000
"""Of a fresh test set, unless another number is asked for."""
FILES = "transfer-*.json"
"""Names of these records in a run's folder."""


class TransferRecord(BaseModel):
    """What a trained model scores on data that it was not trained on."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    schema_version: Literal[1] = SCHEMA_VERSION
    run_id: Name
    task: Name
    mixer: Name
    seed: int
    config_hash: str
    """Of the run whose model it is."""
    length: PositiveInt | None
    """Positions that were asked for; null where none were."""
    changes: list[str]
    """Other options of the task that were changed: "task.key=value"."""
    trained_length: PositiveInt
    """Positions of the longest sequence that the training admitted."""
    status: Literal["done"] = "done"
    test_accuracy: Percent
    test_correct: NonNegativeInt
    test_total: PositiveInt
    loss: Annotated[float, Field(ge=0)] | None
    """Mean cross-entropy, in nats; null where logits are not finite."""
    baselines: dict[str, Percent]
    largest_class: Percent
    examples_per_second: Amount
    device: str
    precision: str
    versions: dict[str, str]
    git: dict[str, Any]
    data: DataRecord

    @model_validator(mode="after")
    def _consistent(self) -> TransferRecord:
        if abs(100.0 * self.test_correct / self.test_total - self.test_accuracy) > ROUNDING:
            raise ValueError(
                f"test_accuracy is {self.test_accuracy}, expected that of {self.test_correct} in "
                f"{self.test_total}"
            )
        return self

    @property
    def label(self) -> str:
        """What the data is, for a table."""
        parts = [] if self.length is None else [f"{self.length:,} positions"]
        return ", ".join([*parts, *(text.removeprefix("task.") for text in self.changes)])

    @property
    def path(self) -> str:
        """Its file in the run's folder: a newer one of the same takes its place."""
        text = "\n".join([str(self.length), *self.changes])
        return f"transfer-{hashlib.sha256(text.encode()).hexdigest()[:8]}.json"

    def save(self, folder: Path) -> Path:
        """Write the file into the run's folder, and return where."""
        path = folder / self.path
        write_atomically(path, (self.model_dump_json(indent=2) + "\n").encode())
        return path


def load_transfer(path: Path) -> TransferRecord:
    """Read and check a record.

    Raises: UserError naming the file and what is wrong with it.
    """
    return read_record(TransferRecord, path, SCHEMA_VERSION)


@dataclass(frozen=True, kw_only=True)
class Elsewhere:
    """Data to try a model on."""

    length: int | None
    """Positions of the longest sequence; None: as in training."""
    changes: tuple[str, ...]
    """Options of the task, "task.key=value"."""
    examples: int | None
    """Of a test set that is drawn anew; None: 2,000."""


def lay_up(folder: Path, record: RunRecord, elsewhere: Elsewhere) -> RunConfig:
    """Lay up the settings of a run for other data.

    Raises: UserError for changes of anything but the task, and for a task without such data.
    """
    for text in elsewhere.changes:
        if not text.startswith("task."):
            raise UserError(f"{text}: only options of the task can differ from the run's")
    task = TASKS.get(record.task, str(folder))
    if elsewhere.examples is not None and not task.draws_data:
        raise UserError(
            f"--examples {elsewhere.examples}: {task.name} data is read, and all of its test set "
            f"is used; leave it out"
        )
    options = config_of(folder, record, elsewhere.changes).task.model_dump()
    examples = elsewhere.examples or EXAMPLES
    try:
        fresh = task.fresh(options, length=elsewhere.length, examples=examples)
    except DataError as error:
        raise UserError(f"{folder}: {error}") from None
    for text in elsewhere.changes:
        key = text.partition("=")[0].removeprefix("task.")
        if key in fresh:
            raise UserError(f"{text}: a fresh test set comes with its own {key}; leave it out")
    drawn = [f"task.{key}={plain(value)}" for key, value in fresh.items()]
    return config_of(folder, record, [*elsewhere.changes, *drawn])


def is_measured(folder: Path, record: RunRecord, elsewhere: Elsewhere) -> bool:
    """Whether there is a record of this run on such data, of as many examples."""
    drawn = TASKS.get(record.task, str(folder)).draws_data
    examples = elsewhere.examples or EXAMPLES
    return any(
        (found.length, found.changes) == (elsewhere.length, sorted(elsewhere.changes))
        and (not drawn or found.test_total == examples)
        for found in transfers_of(folder)[0]
    )


def transfer(
    folder: Path,
    record: RunRecord,
    elsewhere: Elsewhere,
    *,
    data_dir: Path,
    device: torch.device,
    check: Callable[[], None],
) -> TransferRecord:
    """Evaluate the best model of a run on the test set of other data.

    Args:
        folder: of the run.
    Raises: UserError without a checkpoint, and as `lay_up` and `best_model`.
    """
    config = lay_up(folder, record, elsewhere)
    task = config.build_task()
    model = best_model(folder, config_of(folder, record), task.info)
    if model is None:
        raise UserError(f"{folder}: there is no checkpoint of this run to evaluate")
    dataset = task.prepare(data_dir)
    split = dataset.splits["test"]
    # As many positions a pass as in training.
    longer = max(1.0, task.info.max_length / record.length)
    batch_size = max(1, int((record.micro_batch or record.batch_size) / longer))
    start = time.perf_counter()
    score = evaluate(
        model.to(device),
        split,
        batch_size=batch_size,
        device=device,
        autocast=torch.autocast(
            device.type, dtype=torch.bfloat16, enabled=config.train.precision == "bf16"
        ),
        check=check,
        title=f"evaluating on {len(split)} examples",
    )
    seconds = time.perf_counter() - start
    return TransferRecord(
        run_id=record.run_id,
        task=record.task,
        mixer=record.mixer,
        seed=record.seed,
        config_hash=record.config_hash,
        length=elsewhere.length,
        changes=sorted(elsewhere.changes),
        trained_length=record.length,
        test_accuracy=score.accuracy,
        test_correct=score.correct,
        test_total=score.total,
        loss=score.loss if math.isfinite(score.loss) else None,
        baselines=dict(dataset.baselines),
        largest_class=largest_class(split.labels),
        examples_per_second=score.total / seconds,
        device=device_name(device),
        precision=config.train.precision,
        versions=versions(),
        git=git_state(),
        data=DataRecord.of(dataset),
    )


def transfers_of(folder: Path) -> tuple[list[TransferRecord], list[str]]:
    """Read what a run's model scored elsewhere, and list the faults of unreadable files."""
    found: list[TransferRecord] = []
    faults: list[str] = []
    for path in sorted(folder.glob(FILES)):
        try:
            record = load_transfer(path)
            if record.path != path.name:
                raise UserError(f"{path}: of other data; its name is to be {record.path}")
        except UserError as error:
            faults.append(str(error))
        else:
            found.append(record)
    return sorted(found, key=order), faults


def order(record: TransferRecord) -> tuple[int, int, Sequence[tuple[str, float, str]]]:
    """Sort by length, those without one first, then by what else was changed, 5 before 10."""
    return len(record.changes), record.length or 0, [_by_value(text) for text in record.changes]


def _by_value(change: str) -> tuple[str, float, str]:
    key, _, value = change.partition("=")
    try:
        return key, float(value), value
    except ValueError:
        return key, math.inf, value
