"""Activations that are computed again where memory does not suffice."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from conftest import TINY
from lra.config.schema import RunConfig
from lra.train.gradient import Gradient
from lra.train.trainer import Trainer
from requested import resolve
from tasks.base import Dataset

CPU = torch.device("cpu")


def config_of(*changes: str) -> RunConfig:
    return resolve("listops", "tnn", preset="quick", overrides=[*TINY, *changes])


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return config_of().build_task().prepare(tmp_path_factory.mktemp("data"))


def trainer_of(dataset: Dataset, *changes: str) -> Trainer:
    config = config_of(*changes)
    return Trainer(config, config.build_task().info, dataset, 0, CPU)


def after_steps(trainer: Trainer) -> dict[str, Tensor]:
    torch.manual_seed(0)
    for _ in range(3):
        trainer.train_step()
    return trainer.model.state_dict()


@pytest.mark.parametrize("norm", ["batch", "layer"])
def test_computing_activations_again_changes_no_number(dataset: Dataset, norm: str) -> None:
    """Nor running statistics, nor what dropout draws."""
    changes = [f"model.norm={norm}", "model.dropout=0.3", "model.depth=2"]
    usual = trainer_of(dataset, *changes)
    again = trainer_of(dataset, *changes, "train.checkpoint_activations=true")
    assert again.config.hash == usual.config.hash
    wanted = after_steps(usual)
    for name, value in after_steps(again).items():
        assert torch.equal(value, wanted[name]), name
    for trainer in (usual, again):
        trainer.read()
    seconds = again.metrics.sums["seconds"]
    assert again.metrics.sums == {**usual.metrics.sums, "seconds": seconds}


@pytest.mark.parametrize(("fits", "expected"), [(True, False), (False, True)])
def test_blocks_are_computed_again_if_memory_does_not_suffice(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch, fits: bool, expected: bool
) -> None:
    """On a GPU alone, and without a trace but the memory."""
    wanted = after_steps(trainer_of(dataset, "model.dropout=0.3"))
    trainer = trainer_of(dataset, "model.dropout=0.3")
    assert trainer.config.train.checkpoint_activations == "auto"
    backward, tried = Gradient.backward, []

    def try_pass(self: Gradient, *arguments: Any) -> Any:
        tried.append(len(arguments[0].lengths))
        if not fits and len(tried) == 1:
            raise torch.OutOfMemoryError
        return backward(self, *arguments)

    monkeypatch.setattr(Gradient, "backward", try_pass)
    batch = dataset.splits["train"].batch(range(trainer.full_batch))
    monkeypatch.setattr(trainer, "prepare_first_step", lambda: trainer.gradient.fit_memory(batch))
    for name, value in after_steps(trainer).items():
        assert torch.equal(value, wanted[name]), name
    assert trainer.model.checkpoint_activations is expected
    assert tried == 4 * [trainer.train_config.batch_size]


@pytest.mark.parametrize("setting", ["auto", "false", "true"])
def test_a_cpu_computes_blocks_again_only_if_asked(dataset: Dataset, setting: str) -> None:
    trainer = trainer_of(dataset, f"train.checkpoint_activations={setting}")
    trainer.train_step()
    assert trainer.model.checkpoint_activations is (setting == "true")
