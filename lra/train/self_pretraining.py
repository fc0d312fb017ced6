"""Self-pretraining: a model that learns its task's inputs before it learns labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

from pydantic import Field
from torch import Tensor
from typing_extensions import TypedDict

from lra.config.schema import PretrainConfig, RunConfig, TrainConfig
from lra.train.trainer import Trainer
from tasks.base import Dataset, TaskInfo
from tasks.unlabelled import build_pretraining_data

HEAD = ("hidden.", "output.")
"""Starts of the names of weights that read features, which labels are to have of their own."""


class PretrainingResult(TypedDict):
    """The result of a pretraining."""

    steps: Annotated[int, Field(ge=1, lt=2**53)]
    epochs: Annotated[float, Field(ge=0, lt=1e18)]
    seconds: Annotated[float, Field(ge=0, lt=1e18)]
    flops_per_step: Annotated[float, Field(ge=0, lt=1e30)] | None
    val_loss: Annotated[float, Field(ge=0, lt=1e18)] | None


def pretraining_config(config: RunConfig) -> RunConfig:
    """Return the settings of the pretraining of a run: its own length, rate and batch."""
    pretrain, train = config.pretrain, config.train
    length = _length(pretrain, train)
    changes = {
        **length,
        "batch_size": pretrain.batch_size or train.batch_size,
        "lr": pretrain.lr or train.lr,
        "warmup_steps": 0,
        "warmup_share": pretrain.warmup_share,
        "schedule_steps": None,
        "evaluate_every": None,
    }
    if train.schedule == "plateau":  # of a validation an epoch it would see too few
        changes |= {"schedule": "constant", "plateau_patience": None}
    if pretrain.batch_size is not None and isinstance(train.micro_batch, int):
        changes["micro_batch"] = min(train.micro_batch, pretrain.batch_size)
    return replace(config, train=train.model_copy(update=changes))


def _length(pretrain: PretrainConfig, train: TrainConfig) -> dict[str, float | None]:
    """Return how long a pretraining is; where nothing says so, as the training."""
    own = {name: getattr(pretrain, name) for name in ("steps", "epochs", "minutes")}
    if any(own.values()):
        return own
    half = None if train.minutes is None else train.minutes / 2
    return {"steps": train.steps, "epochs": train.epochs, "minutes": half}


def fine_tuning_config(config: RunConfig, seconds: float) -> RunConfig:
    """Return the settings of what follows a pretraining; the minutes of a run include it.

    Args:
        config: of the run.
        seconds: time of the pretraining's steps.
    """
    minutes = config.train.minutes
    if minutes is None:
        return config
    left = max(minutes - seconds / 60, minutes / 1000)
    return replace(config, train=config.train.model_copy(update={"minutes": left}))


def pretraining_data(
    config: RunConfig, info: TaskInfo, dataset: Dataset
) -> tuple[TaskInfo, Dataset]:
    """Return the data of a run's pretraining, and what a model must know of it."""
    return build_pretraining_data(
        info, dataset, config.pretrain.objective, config.pretrain.masked_share
    )


def transfer_weights(weights: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Give a fresh model what a pretraining has learned.

    The head stays fresh, and of embeddings what stood for hidden positions is left out.

    Args:
        weights: of the pretrained model, by name.
        own: of the fresh one.
    Returns: weights for the fresh one.
    """
    return {
        name: value
        if name.startswith(HEAD)
        else weights[name][tuple(slice(size) for size in value.shape)]
        for name, value in own.items()
    }


def summarize_pretraining(trainer: Trainer) -> PretrainingResult:
    """Return the steps, epochs, time and loss of a pretraining so far."""
    best = trainer.best
    return {
        "steps": trainer.step,
        "epochs": trainer.step / trainer.order.batches_per_epoch,
        "seconds": trainer.seconds,
        "flops_per_step": trainer.flops_per_step,
        "val_loss": best.get("val_loss") if best is not None else None,
    }
