"""One run from start to record: pretraining, training, testing, and every way to end."""

import logging
import os
import textwrap
import time
from contextlib import ExitStack, closing, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch

from lra.classifier.classifier import Classifier
from lra.common.errors import DataError, UserError
from lra.common.progress import Progress
from lra.config.schema import RunConfig
from lra.goals.scorer import Score
from lra.record.run import PretrainingRecord, RunRecord
from lra.record.schema import Status
from lra.runtime.console import is_launched
from lra.runtime.distributed import SINGLE_PROCESS, ProcessGroup
from lra.runtime.environment import (
    describe_busy_cores,
    device_name,
    is_out_of_memory,
    keep_freed_memory,
)
from lra.tasks.base import Dataset, TaskInfo
from lra.train.checkpoint import NEW_RUN, Identity, RunState
from lra.train.internals import Internals
from lra.train.metrics import Diverged
from lra.train.run_folder import RunFolder, choose_folder, require_packages
from lra.train.run_record import Session, summarize_pretraining
from lra.train.self_pretraining import choose_phase, transfer_weights
from lra.train.stopping import Stopped, StopRequest
from lra.train.trainer import Trainer
from lra.train.training_time import estimate_time

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Run:
    """A run of one or, with a pretraining, two phases, each with a trainer of its own."""

    config: RunConfig
    seed: int
    device: torch.device
    results_dir: Path
    """The folder with runs/."""
    data_dir: Path
    """The folder of official files and caches."""
    stop: StopRequest
    group: ProcessGroup = SINGLE_PROCESS
    resume: str = "auto"
    """auto, or never for a new run beside a finished one."""
    label: str | None = None
    """Name of the run in tables. None: the name that it had when it was stopped."""
    classifier: type[Classifier] = Classifier
    """The class of the model; a subclass computes the same by other ways."""
    folder: RunFolder = field(init=False)
    info: TaskInfo = field(init=False)
    dataset: Dataset = field(init=False)
    pretrained: PretrainingRecord | None = field(init=False)
    """Result of a pretraining that is over."""
    is_pretraining: bool = field(init=False)
    steps_before: int = field(init=False)
    """Steps of the phases before the present one."""
    trainer: Trainer = field(init=False)
    """The trainer of the present phase."""
    session: Session = field(init=False)
    last_checkpoint: float = field(init=False, default_factory=time.monotonic)

    @property
    def step(self) -> int:
        """Steps made in all phases."""
        return self.steps_before + self.trainer.step

    @property
    def total_steps(self) -> int:
        """Step at which the present phase ends."""
        return self.steps_before + self.trainer.total_steps

    def execute(self) -> RunRecord:
        """Make the run, or resume it, to its end or to a stop; a finished run is only read.

        Raises: DataError for data that can neither be found nor made; UserError if the folder is in
            use or holds a run of other settings or data, or if processes have different data.
        """
        identity = self._prepare()
        with self.stop, ExitStack() as held:
            start = partial(self.folder.start, identity, self.label, held)
            state = self.group.on_main_process(start)
            if isinstance(state, RunRecord):
                return state
            with self.config.mixer_component.explain_errors("the run failed"):
                while (fault := self._begin(state)) is not None:
                    resume = partial(self.folder.resume, None, fault)
                    state = self.group.on_main_process(resume)
                self.session.check_record(self.trainer, self.pretrained)
                begin = partial(self.folder.begin, self.config, self.seed, self.step, held)
                self.group.on_main_process(begin)
                return self._train()

    def _prepare(self) -> Identity:
        """Choose the folder of the run, and prepare its data; return what identifies the run."""
        # With recomputed activations, kept memory would be fragmented.
        if self.device.type == "cpu" and self.config.train.checkpoint_activations is not True:
            keep_freed_memory()
        is_restart = is_launched() and int(os.environ["TORCHELASTIC_RESTART_COUNT"]) > 0
        resume = "auto" if is_restart else self.resume
        self.folder = choose_folder(self.results_dir, self.config, self.seed, resume)
        name = " / ".join((self.config.task_name, self.config.mixer_name, self.config.preset))
        logger.info(f"{name}, seed {self.seed}, on {device_name(self.device)}")
        require_packages(self.config)
        logger.info(f"saved in {self.folder.path}")
        task = self.config.build_task()
        self.info, self.dataset = task.info, task.prepare(self.data_dir)
        source, data = self.dataset.source, self.dataset.fingerprint
        self.group.require_equal("data", {"data source": source, "data fingerprint": data})
        sizes = ", ".join(f"{count:,} {split}" for split, count in self.dataset.sizes.items())
        logger.info(f"data: {sizes} examples, {source}, in {self.dataset.folder}")
        for line in self.dataset.describe():
            logger.info(line)
        return {"hash": self.config.hash, "seed": self.seed, "source": source, "data": data}

    def _begin(self, state: RunState | None) -> str | None:
        """Begin the present phase, from a state if there is one; return why the state does not fit.

        Raises: UserError for a state of another commit that does not fit.
        """
        self.session = Session(
            config=self.config, info=self.info, dataset=self.dataset, seed=self.seed,
            run_id=self.folder.path.name, label=self.label or (state and state["label"]),
            device=self.device, group=self.group, before=state and state["session"],
        )  # fmt: skip
        self._begin_phase(state and state["pretraining"])
        if state is None:
            return None
        fault = None
        try:
            self.trainer.load_state_dict(state["trainer"])
        except DataError as error:
            fault = textwrap.shorten(str(error), 200)
        if fault := next(filter(None, self.group.gather(fault)), None):
            commit = state["session"]["commits"][-1]
            if commit != str(self.session.git["commit"]):
                raise UserError(
                    f"the checkpoint of commit {commit} of the suite does not fit this one "
                    f"({fault}); go on at that commit, or {NEW_RUN}"
                )
            return fault
        logger.info(f"resumed at step {self.step} of {self.total_steps}")
        if self.session.is_elsewhere:
            self.trainer.metrics.step_seconds.clear()
            device = state["session"]["device"]
            logger.info(f"the run was on {device} before: its speed is measured again")

    def _begin_phase(self, pretrained: PretrainingRecord | None) -> None:
        """Build the trainer of the pretraining, or of what follows it."""
        self.pretrained = pretrained
        self.is_pretraining = self.config.is_pretrained and pretrained is None
        self.steps_before = pretrained.steps if pretrained else 0
        config, info, dataset = choose_phase(self.config, self.info, self.dataset, pretrained)
        self.trainer = Trainer(
            config, info, dataset, self.seed, self.device,
            classifier=self.classifier, group=self.group,
        )  # fmt: skip

    def _begin_fine_tuning(self) -> None:
        """Go on with the best model of the pretraining, under a new head."""
        best, result = self.trainer.best, summarize_pretraining(self.config, self.trainer)
        assert best is not None
        logger.info(f"pretraining ends after {result.steps:,} steps; next, labels are learned")
        self._begin_phase(result)
        model = self.trainer.model
        model.load_state_dict(transfer_weights(best["model"], model.state_dict()))
        self._checkpoint()

    def _train(self) -> RunRecord:
        """Go on to the end or to a stop."""
        try:
            self._loop()
            if self.is_pretraining:
                self._begin_fine_tuning()
                self._loop()
            return self._finish("done", None, self.trainer.test(self._check_signal))
        except Stopped as reason:
            self._checkpoint()
            logger.info(
                f"stopped by {reason} at step {self.step:,} of {self.total_steps:,}; everything is "
                f"saved, and the same command resumes it"
            )
            return self._finish("stopped", f"stopped by {reason}")
        except Diverged as error:
            logger.info(f"diverged: {error}")
            return self._finish("diverged", str(error))
        except (MemoryError, RuntimeError) as error:  # torch's OutOfMemoryError is a RuntimeError
            if not is_out_of_memory(error) or self.group.world_size > 1:
                raise  # other processes wait for this one: they cannot write a record together
            message = self.trainer.explain_out_of_memory()
            logger.info(message)
            return self._finish("oom", message)

    def _announce(self) -> None:
        """Log the size of the present phase, its estimated time, and what a user should know."""
        trainer = self.trainer
        kind = "pretraining steps" if self.is_pretraining else "steps"
        steps = f"{self.total_steps:,} {kind}, " if trainer.length.limit is None else ""
        logger.info(f"{steps}{trainer.model.num_parameters:,} parameters")
        hardware, seconds = self.session.hardware, trainer.metrics.seconds
        _, time_left = estimate_time(self.config, hardware, self.stop, self.step, seconds)
        logger.info(f"estimated time: {time_left}")
        for text in filter(None, [*trainer.list_warnings(), describe_busy_cores(self.device)]):
            logger.warning(text)

    def _loop(self) -> None:
        """Train to the end of the present phase: step, log, validate, save."""
        self._announce()
        trainer, start = self.trainer, self.trainer.step
        internals, watches = Internals(), self.config.log.internals and self.group.is_main_process
        what = "pretraining" if self.is_pretraining else "training"
        with closing(Progress(start, trainer.total_steps, what)) as progress:
            while True:
                if trainer.validation_is_due():
                    self._validate()
                if trainer.step >= trainer.total_steps:
                    return
                self._stop_or_save(trainer.step - start)
                is_logged = (trainer.step + 1) % self.config.log.every_steps == 0
                with internals.watch(trainer.model) if watches and is_logged else nullcontext():
                    trainer.train_step()
                is_last = trainer.step >= trainer.total_steps
                if is_logged or is_last or trainer.metrics.read_is_due():
                    trainer.read()
                    means = trainer.metrics.means()
                    accuracy = means["accuracy"] if trainer.scorer.has_accuracy else None
                    progress.step(trainer.step, trainer.total_steps, means["loss"], accuracy)
                    if is_logged:
                        self._log(means)
                        if watches:
                            inside = {"loss": means["loss"], **internals.read()}
                            self.folder.log_internals(self.step, inside)
                        trainer.metrics.clear()

    def _stop_or_save(self, made: int) -> None:
        """Stop after so many steps if a process has a reason, or save if it is time for that."""
        reason = self.stop.reason(self.step, made, self.session.seconds())
        since = time.monotonic() - self.last_checkpoint
        is_due = self.group.is_main_process and since > 60 * self.config.log.checkpoint_minutes
        must_stop, must_save = self.group.sums_of([reason is not None, is_due])
        if must_stop:
            self.trainer.read()
            raise Stopped(next(filter(None, self.group.gather(reason))))
        if must_save:
            self._checkpoint()

    def _log(self, facts: dict[str, float]) -> None:
        if self.is_pretraining:
            facts = {f"pretrain_{name}": number for name, number in facts.items()}
        if self.group.is_main_process:
            self.folder.log(self.step, self.session.wall_seconds(), facts)

    def _validate(self) -> None:
        if self.group.world_size > 1:
            self._checkpoint()  # torchrun gives 30 seconds to end, and no signal ends this earlier
        score = self.trainer.validate(self._check_signal)
        faulty = {"val_non_finite": score.non_finite} if score.non_finite else {}
        self._log({**score.numbers, **faulty})
        of = "validation of the pretraining" if self.is_pretraining else "validation"
        logger.info(f"step {self.step}: {of} {score.text}")
        self._checkpoint()

    def _check_signal(self) -> None:
        """Let a signal end an evaluation, unless other processes would wait for this one's part."""
        if self.group.world_size == 1 and (reason := self.stop.stop_now()) is not None:
            raise Stopped(reason)

    def _checkpoint(self) -> None:
        state = {
            "label": self.session.label,
            "trainer": self.trainer.state_dict(),
            "pretraining": self.pretrained and self.pretrained.model_dump(),
            "session": self.session.state_dict(),
        }
        if self.group.is_main_process:
            self.folder.save(self.step, state)
        self.last_checkpoint = time.monotonic()

    def _finish(self, status: Status, message: str | None, test: Score | None = None) -> RunRecord:
        record = self.session.record(self.trainer, self.pretrained, status, message, test)
        if self.group.is_main_process:
            if test is not None and test.predictions:
                self.folder.save_predictions(self.dataset.splits["test"], test.predictions)
            self.folder.require_held()
            record.save(self.folder.path)
        return record
