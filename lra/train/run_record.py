"""The record of a run: what it is, how it ended, and what it came to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from pydantic import ValidationError

from lra.classifier.decoders import count_state
from lra.config.schema import RunConfig
from lra.record.run import NO_PREDICTION, PretrainingRecord, RunRecord
from lra.record.schema import DataRecord, Status, ThreadsRecord, fault_of
from lra.record.scores import PositionScores
from lra.runtime.environment import is_gpu_shared, versions
from lra.runtime.errors import UserError
from lra.train.evaluation import Score, compute_position_scores
from lra.train.self_pretraining import PretrainingResult, summarize_pretraining
from lra.train.session import Session
from lra.train.trainer import Best, Trainer
from tasks.base import Dataset, TaskInfo, largest_class


@dataclass(frozen=True, kw_only=True)
class Recorder:
    """Describes a run, by all processes that train it together."""

    config: RunConfig
    info: TaskInfo
    dataset: Dataset
    seed: int
    run_id: str
    """Name of the run's folder."""
    label: str | None
    """What tables are to call it."""
    session: Session

    def check(self, trainer: Trainer, pretrained: PretrainingResult | None) -> None:
        """Make the record that the run is to end with, its results apart.

        Raises: UserError naming what would keep it from being written.
        """
        total = len(self.dataset.splits["test"])
        nothing = Score(0, total, 0.0, np.full(total, NO_PREDICTION))
        try:
            self.record(trainer, pretrained, "done", None, nothing)
        except ValidationError as error:
            raise UserError(f"this run could not be recorded: {fault_of(error)}") from None

    def record(
        self,
        trainer: Trainer,
        pretrained: PretrainingResult | None,
        status: Status,
        message: str | None,
        test: Score | None,
    ) -> RunRecord:
        """Describe the run as it is now.

        Args:
            trainer: of the phase that it is in.
            pretrained: what a pretraining before came to.
            status: how it ended.
            message: why, if it is not done.
            test: its result, if it is.
        """
        config, session = self.config, self.session
        is_pretraining = config.is_pretrained and pretrained is None
        before = (0, 0.0) if pretrained is None else (pretrained["steps"], pretrained["seconds"])
        best = None if is_pretraining else trainer.best
        epochs = 0.0 if is_pretraining else trainer.step / trainer.order.batches_per_epoch
        return RunRecord(
            run_id=self.run_id,
            task=config.task_name,
            mixer=config.mixer_name,
            mixer_code=config.mixer_component.code,
            mixer_from=config.mixer_component.spec if config.mixer_component.code else None,
            task_code=config.task_component.code,
            task_from=config.task_component.spec if config.task_component.code else None,
            preset=config.preset,
            protocol=config.protocol,
            settings=config.settings,
            origins=dict(config.origins),
            changed=list(config.changed),
            label=self.label,
            seed=self.seed,
            status=status,
            message=message,
            test_accuracy=test.accuracy if test else None,
            test_correct=test.correct if test else None,
            test_total=test.total if test else None,
            test_non_finite=test.non_finite if test else None,
            val_accuracy=best["val_accuracy"] if best else None,
            selected_on=self.dataset.selected_on if best else None,
            best_step=before[0] + best["step"] if best else None,
            steps=before[0] + trainer.step,
            total_steps=before[0] + trainer.total_steps,
            epochs=epochs,
            pretraining=self._pretraining(trainer, pretrained),
            steps_per_second=trainer.steps_per_second,
            flops_per_step=trainer.flops_per_step,
            peak_memory_mib=session.peak_memory(),
            params=trainer.num_parameters,
            state_size=None if is_pretraining else count_state(trainer.model, self.info.max_length),
            length=self.info.max_length,
            batch_size=config.train.batch_size,
            micro_batch=trainer.gradient.micro_batch,
            train_seconds=before[1] + trainer.seconds,
            wall_seconds=session.wall_seconds(),
            device=session.hardware(),
            threads=ThreadsRecord.now(torch.get_num_threads(), session.device.type),
            gpu_shared=is_gpu_shared(session.device),
            precision=config.train.precision,
            versions=versions(),
            git={**session.git, "all_commits": session.commits()},
            config_hash=config.hash,
            baselines=dict(self.dataset.baselines),
            largest_class=largest_class(self.dataset.splits["test"].labels),
            positions=self._position_scores(best, test),
            tokens=test.tokens if test else None,
            data=DataRecord.of(self.dataset),
        )

    def _position_scores(self, best: Best | None, test: Score | None) -> PositionScores | None:
        """Describe what is measured where positions are targets, of the test set once it is."""
        if self.info.targets != "position":
            return None
        found = compute_position_scores(test, self.dataset)
        val_loss = best.get("val_loss") if best is not None else None
        return found.model_copy(update={"val_loss": val_loss})

    def _pretraining(
        self, trainer: Trainer, pretrained: PretrainingResult | None
    ) -> PretrainingRecord | None:
        """Describe a run's pretraining, as it ended or so far."""
        pretrain = self.config.pretrain
        if not self.config.is_pretrained:
            return None
        return PretrainingRecord(
            objective=pretrain.objective,
            masked_share=pretrain.masked_share if pretrain.objective == "masked" else None,
            **(pretrained or summarize_pretraining(trainer)),
        )
