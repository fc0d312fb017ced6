"""The record of a run: its settings, its result, and what it took over all its sessions."""

from __future__ import annotations

import time
from typing import Any

import torch

from lra.classifier.classifier import count_state
from lra.config.schema import RunConfig
from lra.record.schema import DataRecord
from lra.runtime.distributed import ProcessGroup
from lra.runtime.environment import (
    describe_machine,
    device_name,
    peak_memory_mib,
    reset_peak_memory,
    versions,
)
from lra.runtime.repository import code_digest, git_state
from lra.train.checkpoint import RunState
from lra.train.scores import Score, compute_position_scores
from lra.train.self_pretraining import Phase, summarize_pretraining
from lra.train.trainer import Trainer
from tasks.base import Dataset, TaskInfo, largest_class


class Session:
    """One session of a run, which knows what the sessions before it took."""

    def __init__(self, device: torch.device, group: ProcessGroup) -> None:
        self.device = device
        self.group = group
        self.start = time.monotonic()
        self.git = git_state()
        self.commits = [str(self.git["commit"])]
        """The commits at which the run's steps were made, in order."""
        self._seconds_before = self._peak_before = 0.0
        reset_peak_memory(device)

    def resume(self, state: RunState) -> bool:
        """Continue the measures of earlier sessions; return whether the hardware is the same."""
        self._seconds_before = state["wall_seconds"]
        self.commits = list(dict.fromkeys([*state["commits"], *self.commits]))
        is_same = state["device"] == self.hardware()
        if is_same:
            self._peak_before = state["peak_memory_mib"]
        return is_same

    def hardware(self) -> str:
        """Name the devices of the run as records show them."""
        name = device_name(self.device)
        return name if self.group.world_size == 1 else f"{self.group.world_size} x {name}"

    def seconds(self) -> float:
        """Return the time of this session."""
        return time.monotonic() - self.start

    def wall_seconds(self) -> float:
        """Return the time of all sessions, without the preparation of data."""
        return self._seconds_before + self.seconds()

    def state(self) -> dict[str, Any]:
        """Return what the next session must know; all processes must take part."""
        peak = max(self.group.gather(peak_memory_mib(self.device)))
        return {
            "wall_seconds": self.wall_seconds(),
            "peak_memory_mib": max(self._peak_before, peak),
            "device": self.hardware(),
            "commits": self.commits,
        }

    def describe(self) -> dict[str, Any]:
        """List the fields of a record that are about the machine; all processes must take part."""
        state = self.state()
        git = {**self.git, "all_commits": state.pop("commits")}
        return {**describe_machine(self.device), **state, "git": git}


def describe_settings(config: RunConfig) -> dict[str, Any]:
    """List the fields of a record that are about the settings."""
    mixer, task = config.mixer_component, config.task_component
    return {
        "task": config.task_name,
        "mixer": config.mixer_name,
        "mixer_code": mixer.code,
        "mixer_from": mixer.spec if mixer.code else None,
        "task_code": task.code,
        "task_from": task.spec if task.code else None,
        "preset": config.preset,
        "protocol": config.protocol,
        "settings": config.settings,
        "origins": dict(config.origins),
        "changed": list(config.changed),
        "batch_size": config.train.batch_size,
        "precision": config.train.precision,
        "config_hash": config.hash,
    }


def describe_training(
    trainer: Trainer, phase: Phase, config: RunConfig, length: int
) -> dict[str, Any]:
    """List the fields of a record that are about the steps of a run's phase, and before it."""
    before = phase.pretrained
    pretraining = summarize_pretraining(config, trainer) if phase.is_pretraining else before
    return {
        "steps": phase.steps_before + trainer.step,
        "total_steps": phase.steps_before + trainer.total_steps,
        "epochs": 0.0 if phase.is_pretraining else trainer.step / trainer.order.batches_per_epoch,
        "pretraining": pretraining,
        "steps_per_second": trainer.metrics.steps_per_second,
        "flops_per_step": trainer.metrics.flops_per_step,
        "params": trainer.num_parameters,
        "state_size": None if phase.is_pretraining else count_state(trainer.model, length),
        "length": length,
        "micro_batch": trainer.gradient.micro_batch,
        "train_seconds": (before.seconds if before else 0.0) + trainer.metrics.seconds,
    }


def describe_result(
    test: Score | None, trainer: Trainer, phase: Phase, info: TaskInfo, dataset: Dataset
) -> dict[str, Any]:
    """List the fields of a record that are about data and scores."""
    best = None if phase.is_pretraining else trainer.best
    positions = None
    if info.targets == "position":
        positions = compute_position_scores(test, dataset, best and best["val_loss"])
    return {
        "test_accuracy": test.accuracy if test else None,
        "test_correct": test.correct if test else None,
        "test_total": test.total if test else None,
        "test_non_finite": test.non_finite if test else None,
        "tokens": test.tokens if test else None,
        "positions": positions,
        "val_accuracy": best["val_accuracy"] if best else None,
        "selected_on": dataset.selected_on if best else None,
        "best_step": phase.steps_before + best["step"] if best else None,
        "baselines": dict(dataset.baselines),
        "largest_class": largest_class(dataset.splits["test"].labels),
        "data": DataRecord.model_validate(dataset),
    }


def common_facts(config: RunConfig, seed: int, device: torch.device) -> dict[str, Any]:
    """List by name what all processes that train one model must have in common, except data.

    It includes settings of `log`, which determine when processes exchange something.
    """
    names = {key: value for key, value in config.values().items() if isinstance(value, str)}
    return {
        "seed": seed,
        **names,
        **config.settings,
        "the device": device.type,
        **{f"the version of {name}": number for name, number in versions().items()},
        "the code of lra": code_digest(),
    }
