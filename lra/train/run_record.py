"""The record of a run: its settings, its result, and what it took."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import torch

from lra.classifier.decoders import count_state
from lra.config.schema import RunConfig
from lra.record.run import PretrainingRecord, RunRecord
from lra.record.schema import DataRecord, Status, ThreadsRecord
from lra.runtime.distributed import ProcessGroup
from lra.runtime.environment import (
    device_name,
    is_gpu_shared,
    peak_memory_mib,
    reset_peak_memory,
    versions,
)
from lra.runtime.repository import git_state
from lra.train.evaluation import Score, compute_position_scores
from lra.train.self_pretraining import PretrainingResult, summarize_pretraining
from lra.train.state import RunState
from lra.train.trainer import Trainer
from tasks.base import Dataset, TaskInfo, largest_class


@dataclass(kw_only=True)
class Recorder:
    """Measures time and memory of a run over all its sessions, and describes the run."""

    config: RunConfig
    info: TaskInfo
    dataset: Dataset
    seed: int
    device: torch.device
    """The device of this process."""
    group: ProcessGroup
    """The processes that train together."""
    git: dict[str, Any] = field(default_factory=git_state)
    start: float = field(default_factory=time.monotonic)
    _seconds_before: float = 0.0
    _peak_before: float = 0.0
    _earlier_commits: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        reset_peak_memory(self.device)

    def resume(self, state: RunState) -> bool:
        """Continue the measures of earlier sessions; return whether the hardware is the same."""
        self._seconds_before = state["wall_seconds"]
        self._earlier_commits = state["commits"]
        is_same = state["device"] == self.hardware()
        if is_same:
            self._peak_before = state["peak_memory_mib"]
        return is_same

    def hardware(self) -> str:
        """Name the devices of the run as records show them."""
        name = device_name(self.device)
        return name if self.group.world_size == 1 else f"{self.group.world_size} x {name}"

    def commits(self) -> list[str]:
        """List the commits at which the run's steps were made, in order."""
        return list(dict.fromkeys([*self._earlier_commits, str(self.git["commit"])]))

    def session_seconds(self) -> float:
        """Return the time of this session."""
        return time.monotonic() - self.start

    def wall_seconds(self) -> float:
        """Return the time of all sessions, without the preparation of data."""
        return self._seconds_before + self.session_seconds()

    def peak_memory(self) -> float:
        """Return the most memory that a process took so far, in MiB; all must take part."""
        return max(self._peak_before, self.group.all_reduce_max(peak_memory_mib(self.device)))

    def record(
        self,
        trainer: Trainer,
        *,
        run_id: str,
        label: str | None,
        pretrained: PretrainingResult | None,
        status: Status,
        message: str | None,
        test: Score | None,
    ) -> RunRecord:
        """Describe the run as it is now; all processes must take part.

        Args:
            trainer: of the present phase.
            run_id: name of the run's folder.
            label: name of the run in tables.
            pretrained: result of a pretraining that is over.
            status: how the run ended.
            message: why, if it is not done.
            test: its result, if it is done.
        """
        config = self.config
        is_pretraining = config.is_pretrained and pretrained is None
        steps, seconds = (pretrained["steps"], pretrained["seconds"]) if pretrained else (0, 0.0)
        best = None if is_pretraining else trainer.best
        mixer, task = config.mixer_component, config.task_component
        positions = None
        if self.info.targets == "position":
            val_loss = best.get("val_loss") if best else None
            positions = compute_position_scores(test, self.dataset, val_loss)
        return RunRecord(
            run_id=run_id,
            task=config.task_name,
            mixer=config.mixer_name,
            mixer_code=mixer.code,
            mixer_from=mixer.spec if mixer.code else None,
            task_code=task.code,
            task_from=task.spec if task.code else None,
            preset=config.preset,
            protocol=config.protocol,
            settings=config.settings,
            origins=dict(config.origins),
            changed=list(config.changed),
            label=label,
            seed=self.seed,
            status=status,
            message=message,
            test_accuracy=test.accuracy if test else None,
            test_correct=test.correct if test else None,
            test_total=test.total if test else None,
            test_non_finite=test.non_finite if test else None,
            val_accuracy=best["val_accuracy"] if best else None,
            selected_on=self.dataset.selected_on if best else None,
            best_step=steps + best["step"] if best else None,
            steps=steps + trainer.step,
            total_steps=steps + trainer.total_steps,
            epochs=0.0 if is_pretraining else trainer.step / trainer.order.batches_per_epoch,
            pretraining=self._describe_pretraining(pretrained or summarize_pretraining(trainer)),
            steps_per_second=trainer.steps_per_second,
            flops_per_step=trainer.flops_per_step,
            peak_memory_mib=self.peak_memory(),
            params=trainer.num_parameters,
            state_size=None if is_pretraining else count_state(trainer.model, self.info.max_length),
            length=self.info.max_length,
            batch_size=config.train.batch_size,
            micro_batch=trainer.gradient.micro_batch,
            train_seconds=seconds + trainer.seconds,
            wall_seconds=self.wall_seconds(),
            device=self.hardware(),
            threads=ThreadsRecord.now(torch.get_num_threads(), self.device.type),
            gpu_shared=is_gpu_shared(self.device),
            precision=config.train.precision,
            versions=versions(),
            git={**self.git, "all_commits": self.commits()},
            config_hash=config.hash,
            baselines=dict(self.dataset.baselines),
            largest_class=largest_class(self.dataset.splits["test"].labels),
            positions=positions,
            tokens=test.tokens if test else None,
            data=DataRecord.of(self.dataset),
        )

    def _describe_pretraining(self, result: PretrainingResult) -> PretrainingRecord | None:
        pretrain = self.config.pretrain
        if not self.config.is_pretrained:
            return None
        share = pretrain.masked_share if pretrain.objective == "masked" else None
        return PretrainingRecord(objective=pretrain.objective, masked_share=share, **result)
