"""One run from start to record: training, selecting, testing, and every way to end."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from lra.config import RunConfig
from lra.environment import (
    device_name,
    git_state,
    is_out_of_memory,
    peak_memory_mib,
    reset_peak_memory,
    versions,
)
from lra.evaluate import Score
from lra.files import write_atomically
from lra.optimizer import schedule_warning
from lra.progress import Progress, duration
from lra.record import DataRecord, RunRecord
from lra.run_folder import RunFolder
from lra.stopping import Stopped, StopRequest
from lra.trainer import Diverged, Trainer
from tasks.base import Dataset, TaskInfo, largest_class
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
    trainer: Trainer = field(init=False)
    seconds_before: float = field(init=False, default=0.0)
    peak_before: float = field(init=False, default=0.0)
    git: dict[str, Any] = field(init=False)
    earlier_commits: list[str] = field(init=False, default_factory=list)
    start: float = field(init=False)
    last_checkpoint: float = field(init=False)

    def execute(self) -> RunRecord:
        """Make the run, or go on with it, to its end or to a stop; a finished one is only read.

        Raises: UserError if the folder is in use or holds a run of other settings or data.
        """
        with self.folder.locked():
            record = self.folder.record()
            if record is not None and record.status in ("done", "diverged"):
                old = {"data": record.data.model_dump(include={"source", "fingerprint"})}
                self.folder.refuse_other(old, {"data": self._identity()["data"]})
                say(f"this run is {record.status} (--resume never makes it again beside it)")
                return record
            reset_peak_memory(self.device)
            self.git = git_state()
            self.start = self.last_checkpoint = time.monotonic()
            self.trainer = Trainer(self.config, self.info, self.dataset, self.seed, self.device)
            self._resume()
            return self._train()

    def _train(self) -> RunRecord:
        """Go on to the end or to a stop."""
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
            if not is_out_of_memory(error):
                raise
            message = self._out_of_memory()
            say(message)
            return self._finish("oom", message)

    def _resume(self) -> None:
        trainer = self.trainer
        state = self.folder.resume(self._identity())
        if state is not None:
            trainer.restore(state["trainer"])
            self.seconds_before = state["wall_seconds"]
            self.earlier_commits = state["commits"]
            say(f"resumed at step {trainer.step} of {trainer.total_steps}")
            if state["device"] == device_name(self.device):
                self.peak_before = state["peak_memory_mib"]
            else:
                trainer.step_seconds.clear()
                say(f"until now on {state['device']}: speed and memory are measured anew")
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
        found = [schedule_warning(self.trainer.total_steps, train)]
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
                self.stop.check(trainer.step, trainer.step - progress.start_step)
                facts = trainer.train_step()
                means = trainer.interval_means()
                progress.step(trainer.step, means["loss"], means["accuracy"])
                if trainer.step % log.every_steps == 0:
                    self._log({**means, **facts})
                    trainer.end_interval()
                if trainer.step - progress.start_step == ESTIMATE_AT_STEP:
                    self._estimate()
                if time.monotonic() - self.last_checkpoint > 60 * log.checkpoint_minutes:
                    self._checkpoint()
        finally:
            progress.close()

    def _log(self, facts: dict[str, float]) -> None:
        self.folder.log({"step": self.trainer.step, "seconds": self._wall_seconds(), **facts})

    def _validate(self) -> None:
        score = self.trainer.validate(self.stop.check_signal)
        step = self.trainer.step
        self._log({"val_accuracy": score.accuracy, "val_loss": score.loss})
        say(f"step {step}: validation accuracy {score.accuracy:.2f} %, loss {score.loss:.3f}")
        self._checkpoint()

    def _test(self) -> Score:
        """Test the best model, and put the last one back in its place."""
        last = {k: v.clone() for k, v in self.trainer.model.state_dict().items()}
        self.trainer.load_best()
        try:
            score = self.trainer.score("test", self.stop.check_signal)
        finally:
            self.trainer.model.load_state_dict(last)
        self.folder.save_guesses(self.dataset.splits["test"], score.guesses)
        return score

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

    def _checkpoint(self) -> None:
        state = {
            "trainer": self.trainer.state(),
            "wall_seconds": self._wall_seconds(),
            "peak_memory_mib": self._peak_memory(),
            "device": device_name(self.device),
            "commits": self._commits(),
        }
        self.folder.save(self.trainer.step, state, self._identity())
        self.last_checkpoint = time.monotonic()

    def _commits(self) -> list[str]:
        """List the commits that the run's steps were made at, in order."""
        return list(dict.fromkeys([*self.earlier_commits, str(self.git["commit"])]))

    def _wall_seconds(self) -> float:
        return self.seconds_before + time.monotonic() - self.start

    def _peak_memory(self) -> float:
        return max(self.peak_before, peak_memory_mib(self.device))

    def _out_of_memory(self) -> str:
        train = self.config.train
        size = self.trainer.micro_batch or train.batch_size
        advice = "one example at a time does not fit"
        if size > 1:
            advice = f"try --set train.micro_batch={size // 2}, which keeps the batch size"
        return f"out of memory on {self.device} at {size} examples a pass; {advice}"

    def _finish(
        self,
        status: Literal["done", "stopped", "diverged", "oom"],
        message: str | None,
        test: Score | None = None,
    ) -> RunRecord:
        config, trainer, best = self.config, self.trainer, self.trainer.best
        record = RunRecord(
            run_id=self.folder.path.name,
            task=config.task_name,
            mixer=config.mixer_name,
            mixer_code=config.mixer_code,
            mixer_from=config.mixer_source.given if config.mixer_code else None,
            preset=config.preset,
            protocol=config.protocol,
            overrides=list(config.overrides),
            seed=self.seed,
            status=status,
            message=message,
            test_accuracy=test.accuracy if test else None,
            test_correct=test.correct if test else None,
            test_total=test.total if test else None,
            val_accuracy=best["val_accuracy"] if best else None,
            selected_on=self.dataset.selected_on if best else None,
            best_step=best["step"] if best else None,
            steps=trainer.step,
            total_steps=trainer.total_steps,
            epochs=trainer.step / trainer.order.batches_per_epoch,
            steps_per_second=trainer.steps_per_second,
            flops_per_step=trainer.flops_per_step,
            peak_memory_mib=self._peak_memory(),
            params=trainer.num_parameters,
            length=self.info.max_length,
            batch_size=config.train.batch_size,
            micro_batch=trainer.micro_batch,
            wall_seconds=self._wall_seconds(),
            device=device_name(self.device),
            precision=config.train.precision,
            versions=versions(),
            git={**self.git, "all_commits": self._commits()},
            config_hash=config.hash,
            baselines=dict(self.dataset.baselines),
            largest_class=largest_class(self.dataset.splits["test"].labels),
            data=DataRecord(
                source=self.dataset.source,
                fingerprint=self.dataset.fingerprint,
                sizes=self.dataset.sizes,
                notes=dict(self.dataset.notes),
            ),
        )
        record.save(self.folder.path)
        return record
