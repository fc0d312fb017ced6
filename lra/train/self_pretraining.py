"""Self-pretraining: a model learns its task's inputs before it learns labels."""

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor

from lra.config.schema import RunConfig
from lra.record.run import PretrainingRecord
from lra.tasks.base import Dataset, TaskInfo
from lra.tasks.unlabelled import build_pretraining_data

HEAD = ("hidden.", "output.")
"""Starts of the names of weights that read features, which are not transferred."""


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
    if pretrain.batch_size is not None and train.micro_batch is not None:
        changes["micro_batch"] = min(train.micro_batch, pretrain.batch_size)
    return replace(config, train=train.model_copy(update=changes))


def choose_phase(
    config: RunConfig, info: TaskInfo, dataset: Dataset, pretrained: PretrainingRecord | None
) -> tuple[RunConfig, TaskInfo, Dataset]:
    """Choose what the present phase of a run trains with; its minutes include a pretraining.

    Args:
        pretrained: result of the pretraining before it.
    """
    pretrain, minutes = config.pretrain, config.train.minutes
    if config.is_pretrained and pretrained is None:
        share = pretrain.masked_share
        info, dataset = build_pretraining_data(info, dataset, pretrain.objective, share)
        return pretraining_config(config), info, dataset
    if pretrained is not None and minutes is not None:
        left = max(minutes - pretrained.seconds / 60, minutes / 1000)
        config = replace(config, train=config.train.model_copy(update={"minutes": left}))
    return config, info, dataset


def transfer_weights(weights: Mapping[str, Tensor], new: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Combine the weights of a pretrained model with the head of a new one, both by name.

    What stood for hidden positions is left out of embeddings.
    """
    return {
        name: value
        if name.startswith(HEAD)
        else weights[name][tuple(slice(size) for size in value.shape)]
        for name, value in new.items()
    }
