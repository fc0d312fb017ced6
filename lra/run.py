"""One run from start to record: training, selecting, testing, and every way to end."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch

from lra.config import RunConfig
from lra.environment import (
    device_name,
    git_state,
    is_out_of_memory,
    peak_memory_mib,
    reset_peak_memory,
)
from lra.evaluate import Score
from lra.files import write_atomically
from lra.optimizer import schedule_warning
from lra.outcome import make_record
from lra.progress import Progress, duration
from lra.record import RunRecord, Status
from lra.run_folder import RunFolder
from lra.scalars import Scalars, open_scalars
from lra.stopping import Stopped, StopRequest
from lra.trainer import Diverged, Trainer
from lra.world import ALONE, World
from tasks.base import Dataset, TaskInfo
from tasks.progress import say

ESTIMATE_AT_STEP = 5
LONG_RUN_SECONDS = 3600


@dataclass(kw_only=True)
class Run:
    """A run: what it is to do, and what one process does of it."""

    config: RunConfig
    info: TaskInfo
    dataset: Dataset
    seed: int
    device: torch.device
    folder: RunFolder
    stop: StopRequest
    world: World = ALONE
    trainer: Trainer = field(init=False)
    seconds_before: float = field(init=False, default=0.0)
    peak_before: float = field(init=False, default=0.0)
    git: dict[str, Any] = field(init=False)
    earlier_commits: list[str] = field(init=False, default_factory=list)
    scalars: list[Scalars] = field(init=False, default_factory=list)
    start: float = field(init=False)
    last_checkpoint: float = field(init=False)

    def execute(self) -> RunRecord:
        """Make the run, or go on with it, to its end or to a stop; a finished one is only read.

        Raises: UserError if the folder is in use or holds a run of other settings or data.
        """
        with ExitStack() as held:
            found = self.world.from_first(lambda: self._open(held))
            if found["finished"] is not None:
                return RunRecord.model_validate_json(found["finished"])
            reset_peak_memory(self.device)
            self.git = git_state()
            self.start = self.last_checkpoint = time.monotonic()
            self.trainer = Trainer(
                self.config, self.info, self.dataset, self.seed, self.device, world=self.world
            )
            self._resume(found["state"])
            self.world.from_first(lambda: self._open_scalars(held))
            return self._train()

    def _open(self, held: ExitStack) -> dict[str, Any]:
        """Hold the folder, and read from it the record of a finished run, or the last state."""
        held.enter_context(self.folder.locked())
        record = self.folder.record()
        if record is None or record.status not in ("done", "diverged"):
            return {"finished": None, "state": self.folder.resume(self._identity())}
        old = {"data": record.data.model_dump(include={"source", "fingerprint"})}
        self.folder.refuse_other(old, {"data": self._identity()["data"]})
        say(f"this run is {record.status} (--resume never makes it again beside it)")
        return {"finished": record.model_dump_json(), "state": None}

    def _open_scalars(self, held: ExitStack) -> None:
        path, step = self.folder.path, self.trainer.step
        self.scalars = open_scalars(self.config, self.seed, path, step)
        for scalars in self.scalars:
            held.callback(scalars.close)

    def _train(self) -> RunRecord:
        """Go on to the end or to a stop."""
        if self.world.is_first:
            write_atomically(self.folder.path / "config.yaml", self.config.show().encode())
        for warning in self._warnings():
            say(f"warning: {warning}")
        try:
            self._loop()
            return self._finish("done", None, self._test())
        except Stopped as reason:
            self._checkpoint()
            say(self._how_to_go_on(str(reason)))
            return self._finish("stopped", f"stopped by {reason}")
        except Diverged as error:
            say(f"diverged: {error}")
            return self._finish("diverged", str(error))
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error) or self.world.size > 1:
                raise  # other processes wait for this one: they cannot write a record together
            message = self._out_of_memory()
            say(message)
            return self._finish("oom", message)

    def _resume(self, state: dict[str, Any] | None) -> None:
        trainer = self.trainer
        if state is not None:
            trainer.restore(state["trainer"])
            self.seconds_before = state["wall_seconds"]
            self.earlier_commits = state["commits"]
            say(f"resumed at step {trainer.step} of {trainer.total_steps}")
            if state["device"] == self.hardware():
                self.peak_before = state["peak_memory_mib"]
            else:
                trainer.step_seconds.clear()
                say(f"until now on {state['device']}: speed and memory are measured anew")
        if self.world.is_first:
            self.folder.drop_later_metrics(trainer.step, trainer.validated_step)

    def _how_to_go_on(self, reason: str) -> str:
        how = "with a higher limit or none goes on" if reason == "--max-steps" else "goes on"
        if self.folder.is_repeat:
            how = f"without --resume never {how}"
        done = f"at step {self.trainer.step} of {self.trainer.total_steps}"
        return f"stopped by {reason} {done}; everything is saved, the same command {how}"

    def _identity(self) -> dict[str, Any]:
        data = {"source": self.dataset.source, "fingerprint": self.dataset.fingerprint}
        return {**self.config.values(), "seed": self.seed, "data": data, "hash": self.config.hash}

    def _warnings(self) -> list[str]:
        train = self.config.train
        found: list[str | None] = []
        if train.minutes is None:
            found.append(schedule_warning(self.trainer.total_steps, train))
        if train.bucketing and self.config.model.norm == "batch":
            found.append(
                "train.bucketing with model.norm=batch: batches of like length have statistics "
                "of their own, which the running ones fit badly; use --set train.bucketing=false"
            )
        if self.dataset.selected_on == "test":
            found.append("the best model is selected on the test set, as published results are")
        return [warning for warning in found if warning]

    def _loop(self) -> None:
        trainer, log = self.trainer, self.config.log
        progress = Progress(trainer.step, trainer.total_steps)
        try:
            while True:
                if trainer.validation_is_due():
                    self._validate()
                if trainer.step >= trainer.total_steps:
                    return
                made = trainer.step - progress.start_step
                seconds = self.world.of_first(self.wall_seconds() - self.seconds_before)
                reason = self.stop.reason(trainer.step, made, seconds)
                if (agreed := self.world.any(reason)) is not None:
                    raise Stopped(agreed)
                facts = trainer.train_step()
                means = trainer.interval_means()
                progress.step(trainer.step, trainer.total_steps, means["loss"], means["accuracy"])
                if trainer.step % log.every_steps == 0:
                    self._log({**means, **facts})
                    trainer.end_interval()
                if trainer.step - progress.start_step == ESTIMATE_AT_STEP:
                    self._estimate()
                if self._checkpoint_is_due():
                    self._checkpoint()
        finally:
            progress.close()

    def _log(self, facts: dict[str, float]) -> None:
        if self.world.is_first:
            step = self.trainer.step
            self.folder.log({"step": step, "seconds": self.wall_seconds(), **facts})
            for scalars in self.scalars:
                scalars.write(step, facts)

    def _validate(self) -> None:
        if self.world.size > 1:
            self._checkpoint()  # torchrun gives 30 seconds to end, and no signal ends this earlier
        score = self.trainer.validate(self._check_signal)
        step = self.trainer.step
        self._log({"val_accuracy": score.accuracy, "val_loss": score.loss})
        say(f"step {step}: validation accuracy {score.accuracy:.2f} %, loss {score.loss:.3f}")
        self._checkpoint()

    def _check_signal(self) -> None:
        """Let a signal end an evaluation, unless other processes would wait for this one's part."""
        if self.world.size == 1:
            self.stop.check_signal()

    def _test(self) -> Score:
        """Test the best model, and put the last one back in its place."""
        last = {k: v.clone() for k, v in self.trainer.model.state_dict().items()}
        self.trainer.load_best()
        try:
            score = self.trainer.score("test", self._check_signal)
        finally:
            self.trainer.model.load_state_dict(last)
        if self.world.is_first:
            self.folder.save_guesses(self.dataset.splits["test"], score.guesses)
        return score

    def _estimate(self) -> None:
        """Say how long the run will take, and name the quick preset if it is long on a CPU."""
        rate = self.trainer.steps_per_second
        left = self.trainer.total_steps - self.trainer.step
        warmup = self.config.train.warmup_steps
        if self.config.train.minutes is not None and warmup >= self.trainer.total_steps:
            say(f"warning: the warm-up of {warmup} steps outlasts the run's time; use "
                f"--set train.warmup_share=0.1")  # fmt: skip
        if rate is None or left / rate < LONG_RUN_SECONDS:
            return
        message = f"at {rate:.2f} steps/s this run takes about {duration(left / rate)} more"
        if self.device.type == "cpu" and self.config.preset != "quick":
            message += "; --preset quick trains a small model in minutes"
        say(message)

    def _checkpoint(self) -> None:
        state = {
            "trainer": self.trainer.state(),
            "wall_seconds": self.wall_seconds(),
            "peak_memory_mib": self.peak_memory(),
            "device": self.hardware(),
            "commits": self.commits(),
        }
        if self.world.is_first:
            self.folder.save(self.trainer.step, state, self._identity())
        self.last_checkpoint = time.monotonic()

    def _checkpoint_is_due(self) -> bool:
        since = self.world.of_first(time.monotonic() - self.last_checkpoint)
        return since > 60 * self.config.log.checkpoint_minutes

    def hardware(self) -> str:
        """Name what the run is made on, as records show it."""
        name = device_name(self.device)
        return name if self.world.size == 1 else f"{self.world.size} x {name}"

    def commits(self) -> list[str]:
        """List the commits that the run's steps were made at, in order."""
        return list(dict.fromkeys([*self.earlier_commits, str(self.git["commit"])]))

    def wall_seconds(self) -> float:
        """Return the time of all sessions, preparation of data apart."""
        return self.seconds_before + time.monotonic() - self.start

    def peak_memory(self) -> float:
        """Return the most memory that a process took so far, in MiB."""
        return max(self.peak_before, self.world.highest(peak_memory_mib(self.device)))

    def _out_of_memory(self) -> str:
        train = self.config.train
        size = self.trainer.micro_batch or train.batch_size
        advice = "one example at a time does not fit"
        if size > 1:
            advice = f"try --set train.micro_batch={size // 2}, which keeps the batch size"
        return f"out of memory on {self.device} at {size} examples a pass; {advice}"

    def _finish(self, status: Status, message: str | None, test: Score | None = None) -> RunRecord:
        record = make_record(self, status, message, test)
        if self.world.is_first:
            record.save(self.folder.path)
        return record
