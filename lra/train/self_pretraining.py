"""Self-pretraining: a model learns its task's inputs before it learns labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

from pydantic import Field
from torch import Tensor
from typing_extensions import TypedDict

from lra.config.schema import RunConfig
from lra.train.trainer import Trainer

HEAD = ("hidden.", "output.")
"""Starts of the names of weights that read features, which are not transferred."""


class PretrainingResult(TypedDict):
    """The result of a pretraining."""

    steps: Annotated[int, Field(ge=1, lt=2**53)]
    epochs: Annotated[float, Field(ge=0, lt=1e18)]
    seconds: Annotated[float, Field(ge=0, lt=1e18)]
    flops_per_step: Annotated[float, Field(ge=0, lt=1e30)] | None
    val_loss: Annotated[float, Field(ge=0, lt=1e18)] | None


def pretraining_config(config: RunConfig) -> RunConfig:
    """Return the settings of a run's pretraining, which has its own length, rate and batch size.

    Without a length of its own it is as long as the training, or takes half of its minutes.
    """
    pretrain, train = config.pretrain, config.train
    changes = {name: getattr(pretrain, name) for name in ("steps", "epochs", "minutes")}
    if not any(changes.values()):
        half = None if train.minutes is None else train.minutes / 2
        changes = {"steps": train.steps, "epochs": train.epochs, "minutes": half}
    changes |= {
        "batch_size": pretrain.batch_size or train.batch_size,
        "lr": pretrain.lr or train.lr,
        "warmup_steps": 0,
        "warmup_share": pretrain.warmup_share,
        "schedule_steps": None,
        "evaluate_every": None,
    }
    if train.schedule == "plateau":  # one validation per epoch is too few for it
        changes |= {"schedule": "constant", "plateau_patience": None}
    if pretrain.batch_size is not None and isinstance(train.micro_batch, int):
        changes["micro_batch"] = min(train.micro_batch, pretrain.batch_size)
    return replace(config, train=train.model_copy(update=changes))


def fine_tuning_config(config: RunConfig, seconds: float) -> RunConfig:
    """Return the settings of the phase after a pretraining, which the minutes of a run include.

    Args:
        seconds: time of the pretraining's steps.
    """
    minutes = config.train.minutes
    if minutes is None:
        return config
    left = max(minutes - seconds / 60, minutes / 1000)
    return replace(config, train=config.train.model_copy(update={"minutes": left}))


def transfer_weights(weights: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Combine the weights of a pretrained model with the head of a new one.

    What stood for hidden positions is left out of embeddings.

    Args:
        weights: of the pretrained model, by name.
        own: of the new one.
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
