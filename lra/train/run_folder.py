"""The folder of a run: its lock, settings, metrics, checkpoints, predictions and record."""

from __future__ import annotations

import csv
import importlib
import io
import json
import logging
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from lra.common.errors import HeldError, UserError
from lra.common.files import (
    is_locked,
    name_file_in_errors,
    open_to_append,
    remove_leftovers,
    write_atomically,
)
from lra.common.spreadsheets import guard
from lra.common.untrusted import read_regular, read_text
from lra.config.schema import RunConfig
from lra.record.run import RunRecord, load_record
from lra.tasks.base import Split
from lra.train.checkpoint import DAMAGED, Identity, RunState, load_newest, save_checkpoint

logger = logging.getLogger(__name__)

LOCK_SECONDS = 1.0
"""Time to wait for a lock, because others hold it for a moment to test whether it is free."""
CODE_FILES = {"task": "task.py", "mixer": "mixer.py"}
"""Names of the copies of plug-ins' files in the folder of a run."""
PRESET_FILE = "preset.yaml"
"""Name of the copy of a user's own preset in the folder of a run."""
FINISHED = ("done", "diverged")
"""How a run ended that is not resumed."""
LOGGERS = {"tensorboard": "torch.utils.tensorboard", "wandb": "wandb"}
"""Modules that write metrics for other programs, by their packages and the settings of `log`."""
WriteMetrics = Callable[[int, Mapping[str, float]], None]
"""Writes the numbers of a step."""


def choose_folder(results_dir: Path, config: RunConfig, seed: int, resume: str) -> RunFolder:
    """Choose the folder of a run: the newest of its attempts, or with `never` a new one."""
    parent = results_dir / "runs" / config.task_name / config.mixer_name
    name = f"{config.hash[:8]}-s{seed}"
    numbers = [path.name.removeprefix(f"{name}-r") for path in parent.glob(f"{name}-r*")]
    newest = max(
        [int(number) for number in numbers if number.isdecimal()],
        default=int((parent / name).exists()),
    )
    attempt = newest + 1 if resume == "never" else max(newest, 1)
    return RunFolder(parent / (name if attempt == 1 else f"{name}-r{attempt}"))


class RunFolder:
    """Files of one run, `results/runs/<task>/<mixer>/<run-id>/`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._logs = {name: path / f"{name}.jsonl" for name in ("metrics", "internals")}
        self.checkpoints = path / "checkpoints"
        self._lock: int | None = None
        self._identity: Mapping[str, object] = {}
        self._writers: list[WriteMetrics] = []

    def start(
        self, identity: Identity, label: str | None, held: ExitStack
    ) -> RunRecord | RunState | None:
        """Lock the folder, and read the record of a finished run, or the last state of another.

        A finished run is not locked, so that a folder without write access can be read.

        Args:
            identity: what a run must have in common with the one that it resumes.
            label: name that a finished run is given; None: the one that it has.
            held: keeps the lock.
        Raises: HeldError if another process works on the run, UserError if it is another run.
        """
        self._identity = identity
        record = self.record()
        if record is None or record.status not in FINISHED or label not in (None, record.label):
            self._take_lock(held)
            record = self.record()
        if record is None or record.status not in FINISHED:
            return self.resume(record)
        self._require_same({"data": record.data.fingerprint, "source": record.data.source})
        if label not in (None, record.label):
            record = record.model_copy(update={"label": label})
            record.save(self.path)
            logger.info(f"tables now call this run {record.method}")
        end = "diverged" if record.status == "diverged" else "is done"
        logger.info(f"this run {end} already; --resume never starts another one beside it")
        return record

    def _take_lock(self, held: ExitStack) -> None:
        """Make the folder if it is missing, and lock it."""
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            held.enter_context(FileLock(self.path / "lock").acquire(timeout=LOCK_SECONDS))
        except Timeout:
            raise HeldError(f"another process is at work on {self.path}") from None
        remove_leftovers(self.path)
        self._lock = (self.path / "lock").stat().st_ino

    def resume(self, record: RunRecord | None, fault: str | None = None) -> RunState | None:
        """Load the newest valid checkpoint by `load_newest`, and drop what was logged after it."""
        state = load_newest(self.checkpoints, fault)
        if state is not None:
            self._require_same(state["identity"])
        elif any(self.checkpoints.glob(f"*{DAMAGED}")):
            logger.warning("all checkpoints are damaged; the run starts again at step 0")
        elif record is not None and record.status == "stopped":
            raise UserError(
                f"{self.path} is a run that was stopped, without its checkpoints; use "
                f"--resume never to start a new one beside it"
            )
        sizes = (0, 0) if state is None else (state["metrics_bytes"], state["internals_bytes"])
        for path, size in zip(self._logs.values(), sizes, strict=True):
            if path.exists():
                with open_to_append(path) as file:
                    file.truncate(min(file.tell(), size))
        return state

    def _require_same(self, old: Mapping[str, object]) -> None:
        """Raise a UserError that lists what differs from the identity of this run, if anything."""
        differences = [
            f"{name} was {value!r}, is {self._identity[name]!r}"
            for name, value in old.items()
            if value != self._identity[name]
        ]
        if differences:
            raise UserError(
                f"{self.path} holds a run with other settings or data: {'; '.join(differences)}. "
                f"Use --resume never to start a new run beside it"
            )

    def require_held(self) -> None:
        """Make sure that the locked folder is still there before anything is written.

        Raises: UserError if it was removed, or replaced by another.
        """
        lock = self.path / "lock"
        if self._lock is not None and not (lock.exists() and lock.stat().st_ino == self._lock):
            raise UserError(
                f"{self.path} was removed while the run was at work; nothing more is written there"
            )

    def is_held(self) -> bool:
        """Whether another process works on the run now."""
        return is_locked(self.path / "lock")

    def has_checkpoint(self) -> bool:
        """Whether the run can be resumed."""
        return any(self.checkpoints.glob("step-*.pt"))

    def record(self) -> RunRecord | None:
        """Read result.json, if there is one."""
        path = self.path / "result.json"
        return load_record(path) if path.exists() else None

    def begin(self, config: RunConfig, seed: int, step: int, held: ExitStack) -> None:
        """Write the settings and copies of the user's files, and open what metrics are written to.

        Args:
            step: where the run goes on.
            held: closes what is opened.
        """
        files = {"config.yaml": config.show().encode()}
        for kind, source in config.plug_ins.items():
            files[CODE_FILES[kind]] = read_regular(Path(str(source.file)))
        if config.preset_from is not None:
            files[PRESET_FILE] = read_regular(Path(config.preset_from))
        self.require_held()
        for name, content in files.items():
            write_atomically(self.path / name, content)
        self._writers = list(_open_writers(config, seed, self.path, step, held))

    def log(self, step: int, seconds: float, numbers: Mapping[str, float]) -> None:
        """Write the metrics of a step."""
        self._append("metrics", {"step": step, "seconds": seconds, **numbers})
        grouped = {
            f"validation/{name[4:]}" if name.startswith("val_") else f"training/{name}": number
            for name, number in numbers.items()
        }
        for write in self._writers:
            write(step, grouped)

    def log_internals(self, step: int, numbers: Mapping[str, float]) -> None:
        """Write what `Internals` measured in a step."""
        self._append("internals", {"step": step, **numbers})

    def _append(self, log: str, line: Mapping[str, float]) -> None:
        self.require_held()
        with open_to_append(self._logs[log]) as file:
            file.write(json.dumps(line).encode() + b"\n")

    def save_predictions(self, split: Split, predictions: Mapping[str, np.ndarray]) -> None:
        """Write a line for every example: what was predicted, its length, and its metadata.

        Args:
            predictions: see `Score.predictions`.
        """
        columns = {**predictions, "length": split.lengths, **split.metadata()}
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(map(guard, columns))
        cells = (map(guard, column.tolist()) for column in columns.values())
        writer.writerows(zip(*cells, strict=True))
        self.require_held()
        write_atomically(self.path / "predictions.csv", text.getvalue().encode())

    def save(self, step: int, state: Mapping[str, Any]) -> None:
        """Write a checkpoint, with the run's identity and the sizes of its logs."""
        self.require_held()
        sizes = {
            f"{name}_bytes": path.stat().st_size if path.exists() else 0
            for name, path in self._logs.items()
        }
        save_checkpoint(self.checkpoints, step, {**state, "identity": self._identity, **sizes})


def _open_writers(
    config: RunConfig, seed: int, folder: Path, step: int, held: ExitStack
) -> Iterator[WriteMetrics]:
    """Open what the settings of `log` ask for: event files in a run's folder, or a run of wandb.

    Args:
        step: where the run goes on; what a killed session wrote to event files after it is dropped.
        held: closes the files, and ends the run of wandb.
    Raises: UserError without the package or an account.
    """
    if config.log.tensorboard:
        events = folder / "tensorboard"
        package = _load("tensorboard")
        writer = package.SummaryWriter(str(events), purge_step=step + 1)
        held.callback(name_file_in_errors(events)(writer.close))

        @name_file_in_errors(events)
        def write(step: int, numbers: Mapping[str, float]) -> None:
            for name, number in numbers.items():
                writer.add_scalar(name, number, step)

        yield write
    if config.log.wandb:
        wandb = _load("wandb")
        kept = folder / "wandb-id"  # by which the run resumes
        if not kept.exists():
            write_atomically(kept, secrets.token_hex(8).encode())
        try:
            run: Any = wandb.init(
                project="lra", id=read_text(kept), resume="allow", dir=str(folder),
                name=f"{config.task_name}-{config.mixer_name}-{folder.name}",
                config={**config.values(), "seed": seed},
            )  # fmt: skip
        except wandb.Error as error:
            raise UserError(f"log.wandb=true: {' '.join(str(error).split())}") from None
        held.callback(run.finish)
        yield lambda step, numbers: run.log(numbers, step=step)


def require_packages(config: RunConfig) -> None:
    """Raise a UserError if a package is missing that the settings of `log` need."""
    for package in LOGGERS:
        if getattr(config.log, package):
            _load(package)


def _load(package: str) -> Any:
    try:
        return importlib.import_module(LOGGERS[package])
    except ImportError:
        raise UserError(f"log.{package}=true needs the package: pip install {package}") from None
