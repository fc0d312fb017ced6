"""One run from start to record: training, selecting, testing, and every way to end."""

from __future__ import annotations

import functools
import logging
import math
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from common.untrusted import explain_errors
from lra.classifier.classifier import Classifier
from lra.config.schema import RunConfig
from lra.record.run import NO_PREDICTION, RunRecord
from lra.record.schema import Status
from lra.runtime.distributed import SINGLE_PROCESS, ProcessGroup
from lra.runtime.environment import is_out_of_memory
from lra.runtime.progress import Progress
from lra.train.evaluation import Score
from lra.train.loggers import MetricsLogger, open_loggers
from lra.train.messages import describe_resume, out_of_memory, warn_of_long_run
from lra.train.phases import Phases
from lra.train.run_folder import PRETRAINING, RunFolder
from lra.train.run_record import Recorder
from lra.train.session import Session
from lra.train.state import RunState, capture
from lra.train.stopping import Stopped, StopRequest
from lra.train.trainer import Diverged, Trainer
from lra.train.training_time import TrainingTime
from tasks.base import Dataset, TaskInfo

logger = logging.getLogger(__name__)


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
    group: ProcessGroup = SINGLE_PROCESS
    label: str | None = None
    """The run's name in tables. None: the name that it had when it was stopped."""
    training_time: TrainingTime | None = None
    """Estimate from earlier runs of how long it trains."""
    classifier: type[Classifier] = Classifier
    """What is trained; a subclass computes the same by other ways."""
    phases: Phases = field(init=False)
    session: Session = field(init=False)
    metrics_loggers: list[MetricsLogger] = field(init=False, default_factory=list)
    last_checkpoint: float = field(init=False)

    def execute(self) -> RunRecord:
        """Make the run, or go on with it, to its end or to a stop; a finished one is only read.

        Raises: UserError if the folder is in use or holds a run of other settings or data.
        """
        with ExitStack() as held:
            found = self.group.on_main_process(lambda: self._open(held))
            if found["finished"] is not None:
                return RunRecord.model_validate_json(found["finished"])
            self.session = Session(self.device, self.group)
            self.last_checkpoint = self.session.start
            self.stop.max_steps = self.group.broadcast(self.stop.max_steps)
            with self.config.mixer_component.explain_errors("the run failed"):
                self._begin(found["state"])
                self.group.on_main_process(lambda: self._open_loggers(held))
                return self._train()

    def _open(self, held: ExitStack) -> dict[str, Any]:
        """Hold the folder, and read from it the record of a finished run, or the last state.

        A finished run is only read, as its folder may be, unless it is to be called otherwise.
        """
        record = self.folder.finished()
        is_renamed = record is not None and self.label not in (None, record.label)
        if record is None or is_renamed:
            held.enter_context(self.folder.locked())
            record = self.folder.finished()
        if record is None:
            stopped = self.folder.record()
            self.label = self.label or (stopped and stopped.label)
            return {"finished": None, "state": self.folder.resume(self._identity())}
        old = {"data": record.data.model_dump(include={"source", "fingerprint"})}
        self.folder.refuse_other(old, {"data": self._identity()["data"]})
        if is_renamed:
            record = record.model_copy(update={"label": self.label})
            record.save(self.folder.path)
            logger.info(f"tables now call this run {record.method}")
        end = "diverged" if record.status == "diverged" else "is done"
        logger.info(f"this run {end} already; --resume never starts another one beside it")
        return {"finished": record.model_dump_json(), "state": None}

    def _open_loggers(self, held: ExitStack) -> None:
        path, step = self.folder.path, self.phases.step
        self.metrics_loggers = open_loggers(self.config, self.seed, path, step)
        for opened in self.metrics_loggers:
            held.callback(opened.close)

    def _train(self) -> RunRecord:
        """Go on to the end or to a stop."""
        self._check_record()
        if self.group.is_main_process:
            self.folder.save_settings(self.config)
        self.phases.warn()
        self._announce()
        try:
            self._loop()
            if self.phases.is_pretraining:
                self.phases.begin_fine_tuning()
                self._checkpoint()
                self.phases.warn()
                self._loop()
            return self._finish("done", None, self._test())
        except Stopped as reason:
            self._checkpoint()
            done, total = self.phases.step, self.phases.total_steps
            is_repeat = self.folder.is_repeat
            logger.info(describe_resume(str(reason), done, total, is_repeat=is_repeat))
            return self._finish("stopped", f"stopped by {reason}")
        except Diverged as error:
            logger.info(f"diverged: {error}")
            return self._finish("diverged", str(error))
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error) or self.group.world_size > 1:
                raise  # other processes wait for this one: they cannot write a record together
            size = self.trainer.gradient.micro_batch or self.config.train.batch_size
            message = out_of_memory(self.device, size)
            logger.info(message)
            return self._finish("oom", message)

    def _announce(self) -> None:
        """Log the size of the run and its expected time, before the first step of a session."""
        total, last = self.phases.total_steps, self.stop.last_step(self.phases.total_steps)
        steps = f"{total:,}" if last == total else f"{last:,} of {total:,}"
        kind = "pretraining steps, " if self.phases.is_pretraining else "steps, "
        has_steps = self.trainer.length.limit is None
        parameters = f"{self.trainer.num_parameters:,} parameters"
        logger.info(f"{steps} {kind}{parameters}" if has_steps else parameters)
        if self.training_time is not None:
            made = self.phases.step, self.trainer.seconds
            logger.info(f"estimated time: {self.training_time.describe(*made)}")
            warning = warn_of_long_run(self.config, self.training_time.seconds(*made) or 0.0)
            if warning is not None:
                logger.warning(warning)

    @property
    def trainer(self) -> Trainer:
        """The trainer of the present phase."""
        return self.phases.trainer

    @property
    def _last_step(self) -> int:
        """Step of the present phase at which it ends or the run stops."""
        before = self.phases.step - self.trainer.step
        return max(self.trainer.step, self.stop.last_step(self.phases.total_steps) - before)

    @property
    def _has_accuracy(self) -> bool:
        """Whether predictions can be right: real numbers, which a pretraining may tell, are not."""
        return not (self.phases.is_pretraining and self.info.vocab_size is None)

    def _begin(self, state: RunState | None) -> None:
        """Build the trainer of the phase that the run is in, as a state has it, if there is one."""
        build = functools.partial(
            Trainer, seed=self.seed, device=self.device, group=self.group,
            classifier=self.classifier,
        )  # fmt: skip
        self.phases = Phases(self.config, self.info, self.dataset, build=build, state=state)
        if state is not None and not self.session.go_on(state):
            self.trainer.step_seconds.clear()
            logger.info(
                f"the run was on {state['device']} before: its speed and memory are measured again"
            )
        if self.group.is_main_process:
            self.folder.drop_later_metrics(self.phases.step, self.phases.validated_step)

    def _identity(self) -> dict[str, Any]:
        data = {"source": self.dataset.source, "fingerprint": self.dataset.fingerprint}
        return {**self.config.values(), "seed": self.seed, "data": data, "hash": self.config.hash}

    def _loop(self) -> None:
        """Train to the end of the present phase: step, log, validate, save.

        Raises: Stopped if a signal or a limit says so; Diverged.
        """
        trainer = self.trainer
        what = "pretraining" if self.phases.is_pretraining else "training"
        start = trainer.step
        progress = Progress(start, self._last_step, what)
        try:
            while True:
                if trainer.validation_is_due():
                    self._validate()
                if trainer.step >= trainer.total_steps:
                    return
                reason = self.stop.reason(
                    self.phases.step, trainer.step - start, self.session.own_seconds()
                )
                must_stop, must_save = self.group.any_of(
                    reason is not None, self._checkpoint_is_due()
                )
                if must_stop:
                    trainer.read()
                    raise Stopped(self.group.first_reason(reason))
                if must_save:
                    self._checkpoint()
                trainer.train_step()
                is_logged = trainer.step % self.config.log.every_steps == 0
                if is_logged or trainer.read_is_due() or trainer.step >= trainer.total_steps:
                    trainer.read()
                    means = trainer.means()
                    accuracy = means["accuracy"] if self._has_accuracy else None
                    progress.step(trainer.step, self._last_step, means["loss"], accuracy)
                    if is_logged:
                        self._log(means)
                        trainer.clear()
        finally:
            progress.close()

    def _log(self, facts: dict[str, float]) -> None:
        if self.phases.is_pretraining:
            facts = {f"{PRETRAINING}{name}": number for name, number in facts.items()}
        if self.group.is_main_process:
            step = self.phases.step
            self.folder.log({"step": step, "seconds": self.session.wall_seconds(), **facts})
            for opened in self.metrics_loggers:
                opened.write(step, facts)

    def _validate(self) -> None:
        if self.group.world_size > 1:
            self._checkpoint()  # torchrun gives 30 seconds to end, and no signal ends this earlier
        score = self.trainer.validate(self._check_signal)
        facts = {"val_accuracy": score.accuracy, "val_loss": score.loss}
        if score.non_finite:
            facts["val_non_finite"] = score.non_finite
        bits = ""
        if self.info.targets == "position":
            facts["val_bits"] = score.loss / math.log(2)
            bits = f", {facts['val_bits']:.3f} bits per token"
        self._log(facts)
        accuracy = f"accuracy {score.accuracy:.2f} %, " if self._has_accuracy else ""
        of = "validation of the pretraining" if self.phases.is_pretraining else "validation"
        logger.info(f"step {self.phases.step}: {of} {accuracy}loss {score.loss:.3f}{bits}")
        self._checkpoint()

    def _check_signal(self) -> None:
        """Let a signal end an evaluation, unless other processes would wait for this one's part."""
        if self.group.world_size == 1:
            self.stop.check_signal()

    def _test(self) -> Score:
        """Test the best model, and put the last one back in its place."""
        last = {k: v.clone() for k, v in self.trainer.model.state_dict().items()}
        self.trainer.load_best()
        try:
            score = self.trainer.score("test", self._check_signal)
        finally:
            self.trainer.model.load_state_dict(last)
        if self.group.is_main_process and score.predictions is not None:
            self.folder.save_predictions(self.dataset.splits["test"], score.predictions)
        return score

    def _checkpoint(self) -> None:
        state = {
            "trainer": capture(self.trainer),
            "wall_seconds": self.session.wall_seconds(),
            "peak_memory_mib": self.session.peak_memory(),
            "device": self.session.hardware(),
            "commits": self.session.commits(),
            "pretraining": self.phases.pretrained,
        }
        if self.group.is_main_process:
            self.folder.save(self.phases.step, state, self._identity())
        self.last_checkpoint = time.monotonic()

    def _checkpoint_is_due(self) -> bool:
        """Whether time asks for a checkpoint, by the clock of the process that writes it."""
        since = time.monotonic() - self.last_checkpoint
        return self.group.is_main_process and since > 60 * self.config.log.checkpoint_minutes

    def _check_record(self) -> None:
        """Make what the run is to end with, its results apart: the record, and the predictions.

        Raises: UserError naming what would keep them from being written.
        """
        self._recorder().check(self.trainer, self.phases.pretrained)
        if self.info.targets == "position":
            return
        test = self.dataset.splits["test"]
        shape = (len(test), 3) if self.info.targets == "token" else len(test)
        with explain_errors(f"the metadata of {self.config.task_name}"):
            self.folder.predictions_table(test, np.full(shape, NO_PREDICTION))

    def _recorder(self) -> Recorder:
        return Recorder(
            config=self.config,
            info=self.info,
            dataset=self.dataset,
            seed=self.seed,
            run_id=self.folder.path.name,
            label=self.label,
            session=self.session,
        )

    def _finish(self, status: Status, message: str | None, test: Score | None = None) -> RunRecord:
        record = self._recorder().record(
            self.trainer, self.phases.pretrained, status, message, test
        )
        if self.group.is_main_process:
            self.folder.require_held()
            record.save(self.folder.path)
        return record
