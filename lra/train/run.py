"""One run from start to record: pretraining, training, testing, and every way to end."""

from __future__ import annotations

import logging
import math
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError

from common.progress import Progress, duration
from common.untrusted import explain_errors
from lra.classifier.classifier import Classifier
from lra.config.schema import RunConfig
from lra.record.run import NO_PREDICTION, RunRecord
from lra.record.schema import Status, fault_of
from lra.runtime.distributed import SINGLE_PROCESS, ProcessGroup
from lra.runtime.environment import is_out_of_memory
from lra.runtime.errors import UserError
from lra.train.evaluation import Score
from lra.train.loggers import MetricsLogger, open_loggers
from lra.train.run_folder import PRETRAINING, RunFolder
from lra.train.run_record import Recorder
from lra.train.schedule import list_warnings
from lra.train.self_pretraining import (
    PretrainingResult,
    fine_tuning_config,
    pretraining_config,
    summarize_pretraining,
    transfer_weights,
)
from lra.train.state import RunState, capture, restore
from lra.train.stopping import Stopped, StopRequest
from lra.train.trainer import Diverged, Trainer
from lra.train.training_time import TrainingTime
from tasks.base import Dataset, TaskInfo
from tasks.unlabelled import build_pretraining_data

logger = logging.getLogger(__name__)

DAY = 24 * 3600


@dataclass(kw_only=True)
class Run:
    """A run of one or, with a pretraining, two phases, each with a trainer of its own."""

    config: RunConfig
    info: TaskInfo
    dataset: Dataset
    seed: int
    device: torch.device
    folder: RunFolder
    stop: StopRequest
    group: ProcessGroup = SINGLE_PROCESS
    label: str | None = None
    """Name of the run in tables. None: the name that it had when it was stopped."""
    training_time: TrainingTime | None = None
    """The estimated training time."""
    classifier: type[Classifier] = Classifier
    """The class of the model; a subclass computes the same by other ways."""
    pretrained: PretrainingResult | None = field(init=False, default=None)
    """Result of a pretraining that is over."""
    trainer: Trainer = field(init=False)
    """The trainer of the present phase."""
    recorder: Recorder = field(init=False)
    metrics_loggers: list[MetricsLogger] = field(init=False, default_factory=list)
    last_checkpoint: float = field(init=False)

    @property
    def is_pretraining(self) -> bool:
        """Whether the present phase is a pretraining."""
        return self.config.is_pretrained and self.pretrained is None

    @property
    def _steps_before(self) -> int:
        """Steps of the phases before the present one."""
        return 0 if self.pretrained is None else self.pretrained["steps"]

    @property
    def step(self) -> int:
        """Steps made in all phases."""
        return self._steps_before + self.trainer.step

    @property
    def total_steps(self) -> int:
        """Step at which the present phase ends."""
        return self._steps_before + self.trainer.total_steps

    @property
    def _last_step(self) -> int:
        """Step of the present phase at which it ends or the run stops."""
        last = self.stop.last_step(self.total_steps) - self._steps_before
        return max(self.trainer.step, last)

    def execute(self) -> RunRecord:
        """Make the run, or resume it, to its end or to a stop; a finished run is only read.

        Raises: UserError if the folder is in use or holds a run of other settings or data.
        """
        with ExitStack() as held:
            found = self.group.on_main_process(lambda: self._open(held))
            if found["finished"] is not None:
                return RunRecord.model_validate_json(found["finished"])
            self.recorder = Recorder(
                config=self.config, info=self.info, dataset=self.dataset, seed=self.seed,
                device=self.device, group=self.group,
            )  # fmt: skip
            self.last_checkpoint = self.recorder.start
            self.stop.max_steps = self.group.broadcast(self.stop.max_steps)
            with self.config.mixer_component.explain_errors("the run failed"):
                self._begin(found["state"])
                self.group.on_main_process(lambda: self._open_loggers(held))
                return self._train()

    def _open(self, held: ExitStack) -> dict[str, Any]:
        """Lock the folder, and read the record of a finished run, or the last state.

        A finished run is not locked, so that a folder without write access can be read.
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

    def _identity(self) -> dict[str, Any]:
        """List what a run must have in common with the one that it resumes."""
        data = {"source": self.dataset.source, "fingerprint": self.dataset.fingerprint}
        return {**self.config.values(), "seed": self.seed, "data": data, "hash": self.config.hash}

    def _begin(self, state: RunState | None) -> None:
        """Build the trainer of the present phase, and give it the state if there is one."""
        self.pretrained = None if state is None else state.get("pretraining")
        self.trainer = self._build_trainer()
        if state is not None:
            restore(self.trainer, state["trainer"])
            logger.info(f"resumed at step {self.step} of {self.total_steps}")
            if not self.recorder.resume(state):
                self.trainer.step_seconds.clear()
                logger.info(
                    f"the run was on {state['device']} before: its speed and memory are measured "
                    f"again"
                )
        if self.group.is_main_process:
            validated = self._steps_before + self.trainer.validated_step
            self.folder.drop_later_metrics(self.step, validated)

    def _build_trainer(self) -> Trainer:
        config, info, dataset = self.config, self.info, self.dataset
        if self.is_pretraining:
            pretrain = config.pretrain
            info, dataset = build_pretraining_data(
                info, dataset, pretrain.objective, pretrain.masked_share
            )
            config = pretraining_config(config)
        elif self.pretrained is not None:
            config = fine_tuning_config(config, self.pretrained["seconds"])
        return Trainer(
            config, info, dataset, self.seed, self.device,
            classifier=self.classifier, group=self.group,
        )  # fmt: skip

    def _begin_fine_tuning(self) -> None:
        """Go on with the best model of the pretraining, under a new head."""
        self.trainer.load_best()
        weights = self.trainer.model.state_dict()
        self.pretrained = summarize_pretraining(self.trainer)
        logger.info(
            f"pretraining ends after {self.pretrained['steps']:,} steps; next, labels are learned"
        )
        self.trainer = self._build_trainer()
        model = self.trainer.model
        model.load_state_dict(transfer_weights(weights, model.state_dict()))

    def _open_loggers(self, held: ExitStack) -> None:
        self.metrics_loggers = open_loggers(self.config, self.seed, self.folder.path, self.step)
        for opened in self.metrics_loggers:
            held.callback(opened.close)

    def _train(self) -> RunRecord:
        """Go on to the end or to a stop."""
        self._check_record()
        if self.group.is_main_process:
            self.folder.save_settings(self.config)
        self._warn()
        self._announce()
        try:
            self._loop()
            if self.is_pretraining:
                self._begin_fine_tuning()
                self._checkpoint()
                self._warn()
                self._loop()
            return self._finish("done", None, self._test())
        except Stopped as reason:
            self._checkpoint()
            logger.info(self._describe_stop(str(reason)))
            return self._finish("stopped", f"stopped by {reason}")
        except Diverged as error:
            logger.info(f"diverged: {error}")
            return self._finish("diverged", str(error))
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error) or self.group.world_size > 1:
                raise  # other processes wait for this one: they cannot write a record together
            message = self._describe_lack_of_memory()
            logger.info(message)
            return self._finish("oom", message)

    def _warn(self) -> None:
        """Log what a user should know before the present phase."""
        trainer = self.trainer
        for text in list_warnings(
            trainer.train_config, self.config.model.norm, trainer.total_steps,
            self.dataset.selected_on, trainer.length.validations(),
        ):  # fmt: skip
            logger.warning(text)

    def _announce(self) -> None:
        """Log the size of the run and its estimated time, before the first step of a session."""
        total, last = self.total_steps, self.stop.last_step(self.total_steps)
        steps = f"{total:,}" if last == total else f"{last:,} of {total:,}"
        kind = "pretraining steps, " if self.is_pretraining else "steps, "
        parameters = f"{self.trainer.num_parameters:,} parameters"
        has_steps = self.trainer.length.limit is None
        logger.info(f"{steps} {kind}{parameters}" if has_steps else parameters)
        if self.training_time is None:
            return
        made = self.step, self.trainer.seconds
        logger.info(f"estimated time: {self.training_time.describe(*made)}")
        seconds = self.training_time.seconds(*made) or 0.0
        if seconds >= DAY:
            advice = "; --preset quick trains a small model in minutes, --preset budget one in "
            advice += "minutes to hours"
            is_small = self.config.preset in ("quick", "budget")
            text = f"this run trains for about {duration(seconds)}{advice * (not is_small)}"
            logger.warning(text)

    def _loop(self) -> None:
        """Train to the end of the present phase: step, log, validate, save.

        Raises: Stopped if a signal or a limit says so; Diverged.
        """
        trainer = self.trainer
        start = trainer.step
        what = "pretraining" if self.is_pretraining else "training"
        progress = Progress(start, self._last_step, what)
        try:
            while True:
                if trainer.validation_is_due():
                    self._validate()
                if trainer.step >= trainer.total_steps:
                    return
                made, seconds = trainer.step - start, self.recorder.session_seconds()
                reason = self.stop.reason(self.step, made, seconds)
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

    @property
    def _has_accuracy(self) -> bool:
        """Whether predictions can be right: not if a pretraining predicts real numbers."""
        return not (self.is_pretraining and self.info.vocab_size is None)

    def _log(self, facts: dict[str, float]) -> None:
        if self.is_pretraining:
            facts = {f"{PRETRAINING}{name}": number for name, number in facts.items()}
        if self.group.is_main_process:
            line = {"step": self.step, "seconds": self.recorder.wall_seconds(), **facts}
            self.folder.log(line)
            for opened in self.metrics_loggers:
                opened.write(self.step, facts)

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
        of = "validation of the pretraining" if self.is_pretraining else "validation"
        logger.info(f"step {self.step}: {of} {accuracy}loss {score.loss:.3f}{bits}")
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

    def _checkpoint_is_due(self) -> bool:
        """Whether it is time for a checkpoint, by the clock of the process that writes it."""
        since = time.monotonic() - self.last_checkpoint
        return self.group.is_main_process and since > 60 * self.config.log.checkpoint_minutes

    def _checkpoint(self) -> None:
        state = {
            "trainer": capture(self.trainer),
            "wall_seconds": self.recorder.wall_seconds(),
            "peak_memory_mib": self.recorder.peak_memory(),
            "device": self.recorder.hardware(),
            "commits": self.recorder.commits(),
            "pretraining": self.pretrained,
        }
        if self.group.is_main_process:
            self.folder.save(self.step, state, self._identity())
        self.last_checkpoint = time.monotonic()

    def _describe_stop(self, reason: str) -> str:
        how = "with a higher limit or none " if reason == "--max-steps" else ""
        if self.folder.is_repeat:
            how = f"without --resume never {how}"
        done = f"at step {self.step:,} of {self.total_steps:,}"
        return f"stopped by {reason} {done}; everything is saved, the same command {how}resumes it"

    def _describe_lack_of_memory(self) -> str:
        size = self.trainer.gradient.micro_batch or self.config.train.batch_size
        advice = "one example at a time does not fit"
        if size > 1:
            advice = f"try --set train.micro_batch={size // 2}, which keeps the batch size"
        return f"out of memory on {self.device} at {size} examples per forward pass; {advice}"

    def _record(self, status: Status, message: str | None, test: Score | None) -> RunRecord:
        return self.recorder.record(
            self.trainer, run_id=self.folder.path.name, label=self.label,
            pretrained=self.pretrained, status=status, message=message, test=test,
        )  # fmt: skip

    def _check_record(self) -> None:
        """Make a record without results, so that nothing can keep the run from being recorded.

        Raises: UserError naming what cannot be recorded.
        """
        test = self.dataset.splits["test"]
        none = np.full((len(test), 3) if self.info.targets == "token" else len(test), NO_PREDICTION)
        try:
            self._record("done", None, Score(0, len(test), 0.0, none))
        except ValidationError as error:
            raise UserError(f"this run could not be recorded: {fault_of(error)}") from None
        if self.info.targets != "position":
            with explain_errors(f"the metadata of {self.config.task_name}"):
                self.folder.predictions_table(test, none)

    def _finish(self, status: Status, message: str | None, test: Score | None = None) -> RunRecord:
        record = self._record(status, message, test)
        if self.group.is_main_process:
            self.folder.require_held()
            record.save(self.folder.path)
        return record
