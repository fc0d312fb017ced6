"""The record of a run: everything that tables are made from, and reading all of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from lra.common.errors import UserError
from lra.config.request import DEFAULT_PROTOCOL, PAPER, SPEED_ALONE
from lra.goals.registry import AnyResult
from lra.goals.result import AccuracyResult, upgrade
from lra.record.contribution import Contribution, Mark
from lra.record.packed import pack_faults
from lra.record.schema import (
    DataRecord,
    MeasuredRecord,
    Status,
    read_all,
    read_record,
    shipped_dir,
    write_changes,
)
from lra.schema import (
    Amount,
    Count,
    FileName,
    Positive,
    PositiveCount,
    PrintableText,
    Record,
    RowLabel,
    SettingName,
    Settings,
    ShortText,
)

RUNS = "runs"
"""Folder of the runs, in a results folder."""


class PretrainingRecord(Record):
    """What a model learned of its task's inputs before it learned labels."""

    objective: ShortText
    """masked or next."""
    masked_share: Annotated[float, Field(gt=0, lt=1)] | None
    steps: Count
    """Optimizer steps made, which those of the run include."""
    epochs: Amount
    """Number of passes over the training set that these steps amount to."""
    seconds: Amount
    """Seconds of these steps, which those of the run include."""
    flops_per_step: Amount | None = None
    """Mean FLOPs of its first steps."""
    val_loss: Amount | None
    """Mean loss of hidden or next inputs of the validation set, at its best: in nats, or of real
    numbers their mean absolute error; null before the first validation."""


class TestedRecord(MeasuredRecord):
    """A record of a model's test."""

    run_id: FileName
    task: FileName
    mixer: FileName
    seed: Count
    config_hash: ShortText
    """Hash of the settings of the run whose model it is."""
    result: AnyResult
    data: DataRecord

    @classmethod
    def upgrade(cls, content: Mapping[str, Any]) -> dict[str, Any]:
        """See `MeasuredRecord.upgrade`."""
        return upgrade(content)

    @property
    def test_accuracy(self) -> float | None:
        """Accuracy on the test set in percent; None where it was not measured."""
        return self.result.test_accuracy if isinstance(self.result, AccuracyResult) else None


class RunRecord(TestedRecord):
    """Everything that tables need to know of a run; null stands for what was not measured."""

    mixer_code: ShortText | None = None
    """Start of the SHA-256 of the file of the user's own mixer; null for a mixer of the suite."""
    mixer_from: PrintableText | None = None
    """Argument of --mixer for the user's own mixer."""
    task_code: ShortText | None = None
    task_from: PrintableText | None = None
    preset: FileName
    preset_code: ShortText | None = None
    """Start of the SHA-256 of the user's own preset; null for a preset of the suite."""
    preset_from: PrintableText | None = None
    """Argument of --preset for the user's own preset."""
    protocol: FileName
    settings: Settings
    """Every setting of the run, by full name: "train.lr"."""
    origins: dict[SettingName, PrintableText]
    """Where each setting that is not a default comes from, and what it replaced."""
    changed: list[SettingName]
    """Names of the settings that flags changed; a run with any of them differs from its preset."""
    label: RowLabel | None = None
    """Name in tables that the user gave, in the place of changed settings and a plug-in's code."""
    status: Status
    message: PrintableText | None
    """Why the run ended, if it is not done."""
    selected_on: Literal["val", "test"] | None
    """Split that the best step was chosen on: test only if the published results select on it."""
    best_step: Count | None
    """Step of the checkpoint that was tested, and that validation results belong to."""
    steps: Count
    """Optimizer steps made, a pretraining's included."""
    total_steps: PositiveCount
    epochs: Amount
    """Number of passes over the training set that these steps amount to, a pretraining's apart."""
    steps_per_second: Positive | None
    """One over the median duration of a training step, without warm-up and evaluation."""
    flops_per_step: Amount | None = None
    """Mean FLOPs of the first steps; see `lra.runtime.flops` for what counts."""
    peak_memory_mib: Positive
    params: Count
    state_size: Count | None = None
    """Real numbers that a sequence carries from one position to the next, in all layers; null
    without a recurrence, and in older records."""
    length: PositiveCount
    """Positions of the longest sequence that the task admits."""
    batch_size: PositiveCount
    micro_batch: PositiveCount | None = None
    """Examples per forward pass; null in older records."""
    train_seconds: Amount | None = None
    """Seconds of training steps alone; null in older records."""
    wall_seconds: Amount
    """Seconds of training and evaluation, resumed runs included, without preparation of data."""
    pretraining: PretrainingRecord | None = None
    contribution: Annotated[Contribution | None, Field(exclude=True)] = None
    """The contribution to the open leaderboard that the run came with; in no file."""
    marks: Annotated[dict[str, Mark], Field(exclude=True)] = {}  # noqa: RUF012 (pydantic copies it)
    """The marks of the open leaderboard that the run has, by name; in no file."""

    @model_validator(mode="after")
    def _check_status(self) -> RunRecord:
        if unknown := set(self.changed) - self.settings.keys():
            raise ValueError(f"changed settings without a value: {', '.join(sorted(unknown))}")
        if (self.result.test_total is not None) != (self.status == "done"):
            raise ValueError(f"status {self.status}, and {self.result.test_total} targets tested")
        return self

    @property
    def name(self) -> str:
        """Name of the run, as commands take it: TASK/MIXER/RUN."""
        return f"{self.task}/{self.mixer}/{self.run_id}"

    @property
    def changes(self) -> dict[str, Any]:
        """The settings that flags changed, by name."""
        return {name: self.settings[name] for name in self.changed}

    @property
    def overrides(self) -> tuple[str, ...]:
        """The settings that flags changed, as `--set` takes them."""
        return write_changes(self.changes)

    @property
    def has_own_code(self) -> bool:
        """Whether task or mixer is a plug-in, whose code nothing runs unasked."""
        return self.mixer_code is not None or self.task_code is not None

    @property
    def row_changes(self) -> tuple[str, ...]:
        """The changed settings as `--set` takes them, sorted, without those of the task and those
        that cannot change a result.
        """
        names = {name for name in self.changed if not name.startswith("task.")} - SPEED_ALONE
        return tuple(sorted(write_changes({name: self.settings[name] for name in names})))

    @property
    def method(self) -> str:
        """The name of the run's row: its mixer with its label or, without one, what it changes.

        Contributed runs whose learning rates differ share a row, in which validation chooses.
        """
        of = self.contribution
        changes = [text for text in self.row_changes if not (of and text.startswith("train.lr="))]
        name = f"{self.mixer} ({', '.join(changes)})" if changes else self.mixer
        name = name if self.label is None else f"{self.mixer}: {self.label}"
        return name if of is None else f"{name} by {of.shown_name}"

    @property
    def has_failed(self) -> bool:
        """Whether the run diverged or ran out of memory."""
        return self.status in ("diverged", "oom")

    @property
    def val_accuracy(self) -> float | None:
        """Accuracy in percent at the best step; None before the first validation."""
        return self.result.val_accuracy if isinstance(self.result, AccuracyResult) else None

    def flags(self, changes: Mapping[str, Any] | None = None) -> list[str]:
        """Write the flags of run_task.py that repeat the run, with changes of its settings."""
        words = ["--task", self.task_from or self.task, "--mixer", self.mixer_from or self.mixer]
        for name, default in {"preset": PAPER, "protocol": DEFAULT_PROTOCOL, "seed": 0}.items():
            value = getattr(self, f"{name}_from", None) or getattr(self, name)
            words += [f"--{name}", str(value)] if value != default else []
        for text in write_changes({**self.changes, **(changes or {})}):
            words += ["--set", text]
        return words if self.label is None else [*words, "--label", self.label]

    def save(self, folder: Path) -> None:
        """Write result.json into a run's folder."""
        self.write(folder / "result.json")


load_record = partial(read_record, RunRecord)
"""Reads and checks a result.json; see `read_record`."""


def choose_attempts(records: Iterable[RunRecord]) -> list[RunRecord]:
    """Choose a run of each seed: the newest finished attempt or, if none has finished, the newest.

    The id of an attempt that is not the first ends with its number: -r2.
    """

    def order(run: RunRecord) -> tuple[int, bool, int]:
        attempt = re.search(r"-r(\d+)$", run.run_id)
        return run.seed, run.status == "done", int(attempt[1]) if attempt else 1

    return [*{run.seed: run for run in sorted(records, key=order)}.values()]


def folder_of(results_dir: Path, record: RunRecord) -> Path:
    """Return the folder that a run's files are in."""
    return results_dir / RUNS / record.name


Runs = list[tuple[Path, RunRecord]]
"""Records, each with the folder of its run; a packed run has the folder that it would have."""


def read_runs(
    results_dir: Path, flag: str | None = None, *, shipped: bool = False, task: str = "*"
) -> tuple[Runs, list[str]]:
    """Read the records of runs; list the faults of unreadable files.

    A run of one's own replaces the shipped one of the same name; one without a result stands beside
    a shipped one that has one.

    Args:
        flag: what gave it, for the error; None: a missing folder has no runs.
        shipped: whether the runs that come with the suite are read, too.
        task: the only one, or * for all of them.
    Raises: UserError if there is no such folder, except for ./results, which the first run makes.
    """
    if flag is not None and not results_dir.is_dir():
        is_default = shipped and results_dir.absolute() == Path("results").absolute()
        if not (is_default and shipped_dir(results_dir).is_dir()):
            raise UserError(f"{flag}: there is no folder {results_dir}")
    runs: Runs = []
    faults: list[str] = []
    for folder in [shipped_dir(results_dir), results_dir] if shipped else [results_dir]:
        files = f"{RUNS}/{task}/*/*/result.json"
        records, more = read_all(
            RunRecord, folder, files, lambda record: folder_of(Path(), record) / "result.json"
        )
        statuses = {folder_of(results_dir, record): record.status for record in records}
        runs = [
            (path, run)
            for path, run in runs
            if statuses.get(folder_of(results_dir, run)) not in ("done", run.status)
        ]
        runs += [(folder_of(folder, record), record) for record in records]
        faults += [*more, *pack_faults(folder)]
    return runs, faults
