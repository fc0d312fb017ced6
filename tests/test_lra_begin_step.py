"""What changes once a training step: random directions, for all forward passes of the step."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from conftest import tiny_settings
from lra.classifier import packing
from lra.config.schema import RunConfig
from lra.train.trainer import Trainer
from models.linear import Linear
from requested import resolve
from tasks.base import Dataset

FAVOR = [
    "mixer.feature=favor", "mixer.decay=none", "mixer.num_random=4", "mixer.redraw_steps=2",
    "model.dropout=0.2", "train.batch_size=64",
]  # fmt: skip


def config_of(*changes: str) -> RunConfig:
    return resolve("listops", "linear", preset="quick", overrides=tiny_settings(*FAVOR, *changes))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return config_of().build_task().prepare(tmp_path_factory.mktemp("data"))


def trainer_of(dataset: Dataset, *changes: str) -> Trainer:
    config = config_of(*changes)
    return Trainer(config, config.build_task().info, dataset, 0, torch.device("cpu"))


def used_in_each_step(trainer: Trainer, steps: int) -> list[list[Tensor]]:
    """Train, and list for each step the directions that each call of the first mixer used."""
    mixer = next(module for module in trainer.model.modules() if isinstance(module, Linear))
    calls: list[Tensor] = []
    mixer.register_forward_pre_hook(lambda *_: calls.append(mixer.directions.clone()))
    found = []
    for _ in range(steps):
        trainer.train_step()
        found.append([*calls])
        calls.clear()
    return found


@pytest.mark.parametrize(
    "change",
    ["train.micro_batch=24", "train.checkpoint_activations=true"],
)
def test_directions_are_drawn_once_in_so_many_steps(
    dataset: Dataset, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many groups of like length and micro-batches a step has."""
    monkeypatch.setattr(packing, "SMALLEST_GROUP", 50)
    steps = used_in_each_step(trainer_of(dataset, change), 6)
    assert all(len(calls) > 1 for calls in steps)
    assert all(torch.equal(calls[0], used) for calls in steps for used in calls)
    same = [torch.equal(one[0], two[0]) for one, two in itertools.pairwise(steps)]
    assert same == [True, False, True, False, True]
