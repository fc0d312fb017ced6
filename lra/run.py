"""One run from its folder to its record: resuming, training, selecting, testing."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

from lra.checkpoint import load_newest, save_checkpoint
from lra.config import RunConfig
from lra.environment import device_name, git_state, peak_memory_mib, versions
from lra.errors import UserError
from lra.evaluate import Score
from lra.files import write_atomically
from lra.optimizer import schedule_warning
from lra.progress import Progress, duration, say
from lra.record import DataRecord, RunRecord, load_record
from lra.stopping import Stopped, StopRequest
from lra.trainer import Diverged, Trainer
from tasks.base import Dataset, TaskInfo

ESTIMATE_AT_STEP = 8
LONG_RUN_SECONDS = 3600


def run_folder(results_dir: Path, config: RunConfig, seed: int, resume: str) -> Path:
    """Choose the folder of a run: the newest of its attempts, or with `never` a new one."""
    parent = results_dir / "runs" / config.task_name / config.mixer_name
    first = parent / f"{config.hash[:8]}-s{seed}"
    attempts = [first]
    while attempts[-1].exists():
        attempts.append(parent / f"{first.name}-r{len(attempts) + 1}")
    return attempts[-1] if resume == "never" or len(attempts) == 1 else attempts[-2]


@dataclass
class Run:
    """A run in its folder: the trainer, its files, and what its record needs."""

    config: RunConfig
    info: TaskInfo
    dataset: Dataset
    seed: int
    device: torch.device
    folder: Path
    stop: StopRequest

    def execute(self) -> RunRecord:
        """Train, or go on training, to the end or to a stop; return the record.

        Raises: UserError if the folder is in use or holds a run of other settings or data.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.folder / "lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise UserError(f"another process is at work on {self.folder}") from None
        with lock:
            ended = self._ended()
            return ended or self._train()

    def _ended(self) -> RunRecord | None:
        path = self.folder / "result.json"
        if not path.exists():
            return None
        record = load_record(path)
        if record.status in ("done", "diverged"):
            say(f"this run is {record.status}: {path} (--resume never makes it again beside it)")
            return record
        return None

    def _train(self) -> RunRecord:
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        self.trainer = Trainer(self.config, self.info, self.dataset, self.seed, self.device)
        self.wall_before, self.peak_before = 0.0, 0.0
        self._resume()
        self.session_start = self.last_checkpoint = time.monotonic()
        write_atomically(self.folder / "config.yaml", self.config.show().encode())
        for warning in self._warnings():
            say(f"warning: {warning}")
        try:
            self._loop()
            test = self._test()
        except Stopped as reason:
            self._checkpoint()
            say(
                f"stopped by {reason} at step {self.trainer.step} of {self.trainer.total_steps}; "
                f"everything is saved, the same command goes on"
            )
            return self._finish("stopped", f"stopped by {reason}")
        except Diverged as error:
            say(f"diverged: {error}")
            return self._finish("diverged", str(error))
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            if not _is_out_of_memory(error):
                raise
            return self._finish("oom", self._oom_message())
        return self._finish("done", None, test)

    def _warnings(self) -> list[str]:
        train = self.config.train
        found = [schedule_warning(self.trainer.total_steps, train)]
        if train.bucketing and self.config.model.norm == "batch":
            found.append(
                "train.bucketing with model.norm=batch: batches of like length have statistics "
                "of their own, which the running ones fit badly; use --set train.bucketing=false"
            )
        return [warning for warning in found if warning]

    def _resume(self) -> None:
        state = load_newest(self.folder / "checkpoints", say)
        if state is None:
            _drop_later_lines(self.folder / "metrics.jsonl", 0, 0)
            return
        self._refuse_other(state)
        self.trainer.restore(state["trainer"])
        self.wall_before = state["wall_seconds"]
        self.peak_before = state["peak_memory_mib"]
        trainer = self.trainer
        _drop_later_lines(self.folder / "metrics.jsonl", trainer.step, trainer.validated_step)
        say(f"resumed at step {self.trainer.step} of {self.trainer.total_steps}: {self.folder}")

    def _refuse_other(self, state: dict[str, Any]) -> None:
        old, new = _flat(state["config"]), _flat(self._identity())
        differences = [
            f"{key} was {old.get(key)!r}, is {new.get(key)!r}"
            for key in sorted(old.keys() | new.keys())
            if old.get(key) != new.get(key)
        ]
        if differences:
            raise UserError(
                f"{self.folder} holds a run with other settings or data: {'; '.join(differences)}. "
                f"Use --resume never to start a new run beside it"
            )

    def _identity(self) -> dict[str, Any]:
        """Everything that a checkpoint must share with a run that goes on from it."""
        data = {"source": self.dataset.source, "fingerprint": self.dataset.fingerprint}
        return {**self.config.values(), "seed": self.seed, "data": data}

    def _loop(self) -> None:
        trainer = self.trainer
        progress = Progress(trainer.step, trainer.total_steps)
        try:
            while True:
                if trainer.validation_is_due():
                    self._validate()
                if trainer.step >= trainer.total_steps:
                    return
                self.stop.check(trainer.step)
                facts = trainer.train_step()
                means = trainer.interval_means()
                progress.step(trainer.step, means["loss"], means["accuracy"])
                if trainer.step % self.config.log.every_steps == 0:
                    self._log({"step": trainer.step, **means, **facts})
                    trainer.end_interval()
                if trainer.step - progress.start_step == ESTIMATE_AT_STEP:
                    self._estimate()
                if (
                    time.monotonic() - self.last_checkpoint
                    > 60 * self.config.log.checkpoint_minutes
                ):
                    self._checkpoint()
        finally:
            progress.close()

    def _validate(self) -> None:
        score = self.trainer.validate(self.stop.check)
        step = self.trainer.step
        self._log({"step": step, "val_accuracy": score.accuracy, "val_loss": score.loss})
        say(f"step {step}: validation accuracy {score.accuracy:.2f} %, loss {score.loss:.3f}")
        self._checkpoint()

    def _test(self) -> Score:
        last = {k: v.clone() for k, v in self.trainer.model.state_dict().items()}
        self.trainer.load_best()
        try:
            return self.trainer.score("test", self.stop.check)
        finally:
            self.trainer.model.load_state_dict(last)

    def _estimate(self) -> None:
        """Say how long the run will take, and name the quick preset if it is long on a CPU."""
        rate = self.trainer.steps_per_second
        left = self.trainer.total_steps - self.trainer.step
        if rate is None or left / rate < LONG_RUN_SECONDS:
            return
        message = f"at {rate:.2f} steps/s this run takes about {duration(left / rate)} more"
        if self.device.type == "cpu" and self.config.preset != "quick":
            message += "; --preset quick trains a small model in minutes"
        say(message)

    def _log(self, line: dict[str, Any]) -> None:
        with (self.folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _checkpoint(self) -> None:
        state = {
            "config": self._identity(),
            "config_hash": self.config.hash,
            "trainer": self.trainer.state(),
            "wall_seconds": self._wall_seconds(),
            "peak_memory_mib": self._peak_memory(),
        }
        save_checkpoint(self.folder / "checkpoints", self.trainer.step, state)
        self.last_checkpoint = time.monotonic()

    def _wall_seconds(self) -> float:
        return self.wall_before + time.monotonic() - self.session_start

    def _peak_memory(self) -> float:
        return max(self.peak_before, peak_memory_mib(self.device))

    def _oom_message(self) -> str:
        size = self.config.train.micro_batch or self.config.train.batch_size
        advice = (
            f"try --set train.micro_batch={size // 2}, which keeps the batch of "
            f"{self.config.train.batch_size}"
            if size > 1
            else "one example at a time does not fit"
        )
        message = f"out of memory on {self.device} at {size} examples a pass; {advice}"
        say(message)
        return message

    def _finish(self, status: Any, message: str | None, test: Score | None = None) -> RunRecord:
        trainer, best = self.trainer, self.trainer.best
        record = RunRecord(
            run_id=self.folder.name,
            task=self.config.task_name,
            mixer=self.config.mixer_name,
            preset=self.config.preset,
            protocol=self.config.protocol,
            overrides=list(self.config.overrides),
            seed=self.seed,
            status=status,
            message=message,
            test_accuracy=test.accuracy if test else None,
            test_correct=test.correct if test else None,
            test_total=test.total if test else None,
            val_accuracy=best["val_accuracy"] if best else None,
            selected_on="val" if best else None,
            best_step=best["step"] if best else None,
            steps=trainer.step,
            total_steps=trainer.total_steps,
            epochs=trainer.step / trainer.order.batches_per_epoch,
            steps_per_second=trainer.steps_per_second,
            peak_memory_mib=self._peak_memory(),
            params=trainer.num_parameters,
            wall_seconds=self._wall_seconds(),
            device=device_name(self.device),
            precision=self.config.train.precision,
            versions=versions(),
            git=git_state(),
            config_hash=self.config.hash,
            baselines=dict(self.dataset.baselines),
            data=DataRecord(
                source=self.dataset.source,
                fingerprint=self.dataset.fingerprint,
                sizes=self.dataset.sizes,
            ),
        )
        record.save(self.folder)
        return record


def _is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return "not enough memory" in str(error) or "can't allocate memory" in str(error)


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def _drop_later_lines(path: Path, step: int, validated_step: int) -> None:
    """Remove metrics that a killed session wrote after its last checkpoint."""
    if not path.exists():
        return
    kept: list[str] = []
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            continue  # the line that the kill cut short
        if line["step"] <= (validated_step if "val_accuracy" in line else step):
            kept.append(text + "\n")
    write_atomically(path, "".join(kept).encode())
