"""The record of a run: its settings, its result, and what it took over all its sessions."""

import time
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from pydantic import Field, ValidationError
from typing_extensions import TypedDict

from lra.classifier.classifier import count_state
from lra.common.errors import UserError
from lra.common.untrusted import explain_errors
from lra.config.schema import RunConfig
from lra.goals.registry import scorer_of
from lra.goals.scorer import Score
from lra.record.run import PretrainingRecord, RunRecord
from lra.record.schema import DataRecord, Status
from lra.runtime.distributed import ProcessGroup
from lra.runtime.environment import (
    describe_machine,
    device_name,
    peak_memory_mib,
    reset_peak_memory,
    versions,
)
from lra.runtime.repository import code_digest, git_state
from lra.schema import Amount, PrintableText, ShortText, fault_of
from lra.tasks.base import Dataset, TaskInfo
from lra.train.trainer import Trainer


class SessionState(TypedDict):
    """What a session must know of those before it."""

    wall_seconds: Amount
    peak_memory_mib: Amount
    device: ShortText
    commits: Annotated[list[PrintableText], Field(min_length=1)]
    """Those at which the run's steps were made, in order."""


@dataclass(kw_only=True)
class Session:
    """A session of a run: what it takes, added to what the sessions before it took."""

    config: RunConfig
    info: TaskInfo
    dataset: Dataset
    seed: int
    run_id: str
    label: str | None
    """Name of the run in tables."""
    device: torch.device
    group: ProcessGroup
    before: SessionState | None
    """What the sessions before it took; None for the first one."""

    def __post_init__(self) -> None:
        self.start = time.monotonic()
        self.git = git_state()
        name, count = device_name(self.device), self.group.world_size
        self.hardware = name if count == 1 else f"{count} x {name}"
        first = SessionState(wall_seconds=0, peak_memory_mib=0, device=self.hardware, commits=[])
        before = self.before or first
        self.is_elsewhere = before["device"] != self.hardware
        """Whether the session before was on other hardware, so that memory and speed are new."""
        self._seconds_before = before["wall_seconds"]
        self._peak_before = 0.0 if self.is_elsewhere else before["peak_memory_mib"]
        self.commits = list(dict.fromkeys([*before["commits"], str(self.git["commit"])]))
        reset_peak_memory(self.device)

    def seconds(self) -> float:
        """Return the time of this session."""
        return time.monotonic() - self.start

    def wall_seconds(self) -> float:
        """Return the time of all sessions, without the preparation of data."""
        return self._seconds_before + self.seconds()

    def state_dict(self) -> SessionState:
        """Return what the next session must know; all processes must take part."""
        peak = max(self.group.gather(peak_memory_mib(self.device)))
        return {
            "wall_seconds": self.wall_seconds(),
            "peak_memory_mib": max(self._peak_before, peak),
            "device": self.hardware,
            "commits": self.commits,
        }

    def check_record(self, trainer: Trainer, pretrained: PretrainingRecord | None) -> None:
        """Raise a UserError if something would keep the run from being recorded at its end."""
        try:
            self.record(trainer, pretrained, "stopped")
        except ValidationError as error:
            raise UserError(f"this run could not be recorded: {fault_of(error)}") from None
        with explain_errors(f"the metadata of {self.config.task_name}"):
            self.dataset.splits["test"].metadata()

    def record(
        self,
        trainer: Trainer,
        pretrained: PretrainingRecord | None,
        status: Status,
        message: str | None = None,
        test: Score | None = None,
    ) -> RunRecord:
        """Make the record of the run so far; all processes must take part.

        Args:
            trainer: of the present phase.
            pretrained: result of the pretraining before it.
        """
        facts = self._list_facts(trainer, pretrained, test)
        return RunRecord(status=status, message=message, **facts)

    def _list_facts(
        self, trainer: Trainer, pretrained: PretrainingRecord | None, test: Score | None
    ) -> dict[str, Any]:
        """List the fields of a record but for how the run ended; see `record`."""
        config, length = self.config, self.info.max_length
        is_pretraining = config.is_pretrained and pretrained is None
        before = pretrained.steps if pretrained else 0
        best = None if is_pretraining else trainer.best
        numbers = best["numbers"] if best else {}
        state = dict(self.state_dict())
        return {
            **describe_settings(config),
            **describe_machine(self.device),
            "run_id": self.run_id,
            "label": self.label,
            "seed": self.seed,
            "git": {**self.git, "all_commits": state.pop("commits")},
            **state,
            "steps": before + trainer.step,
            "total_steps": before + trainer.total_steps,
            "epochs": 0.0 if is_pretraining else trainer.step / trainer.order.batches_per_epoch,
            "pretraining": summarize_pretraining(config, trainer) if is_pretraining else pretrained,
            "steps_per_second": trainer.metrics.steps_per_second,
            "flops_per_step": trainer.metrics.flops_per_step,
            "params": trainer.model.num_parameters,
            "state_size": None if is_pretraining else count_state(trainer.model, length),
            "length": length,
            "micro_batch": trainer.gradient.micro_batch,
            "train_seconds": (pretrained.seconds if pretrained else 0.0) + trainer.metrics.seconds,
            "result": scorer_of(self.info, self.dataset).describe(test, self.dataset, numbers),
            "selected_on": self.dataset.selected_on if best else None,
            "best_step": before + best["step"] if best else None,
            "data": DataRecord.model_validate(self.dataset),
        }


def describe_settings(config: RunConfig) -> dict[str, Any]:
    """List the fields of a record that are about the settings."""
    mixer, task = config.mixer_component, config.task_component
    return {
        "task": config.task_name,
        "mixer": config.mixer_name,
        "mixer_code": mixer.code,
        "mixer_from": mixer.spec if mixer.code else None,
        "task_code": task.code,
        "task_from": task.spec if task.spec != task.name else None,
        "preset": config.preset,
        "preset_code": config.preset_code,
        "preset_from": config.preset_from,
        "protocol": config.protocol,
        "settings": config.settings,
        "origins": dict(config.origins),
        "changed": list(config.changed),
        "batch_size": config.train.batch_size,
        "precision": config.train.precision,
        "config_hash": config.hash,
    }


def summarize_pretraining(config: RunConfig, trainer: Trainer) -> PretrainingRecord:
    """Describe the pretraining of a run so far, by its trainer."""
    pretrain = config.pretrain
    return PretrainingRecord(
        objective=pretrain.objective,
        masked_share=pretrain.masked_share if pretrain.objective == "masked" else None,
        steps=trainer.step,
        epochs=trainer.step / trainer.order.batches_per_epoch,
        seconds=trainer.metrics.seconds,
        flops_per_step=trainer.metrics.flops_per_step,
        val_loss=trainer.best and trainer.best["numbers"].get("val_loss"),
    )


def common_facts(config: RunConfig, seed: int, device: torch.device) -> dict[str, Any]:
    """List by name what all processes that train one model must have in common, except data.

    It includes settings of `log`, which determine when processes exchange something.
    """
    return {
        "seed": seed,
        **config.settings,
        "the hash of settings": config.hash,
        "the device": device.type,
        **{f"the version of {name}": number for name, number in versions().items()},
        "the code of lra": code_digest(),
    }
