"""The forward passes of a step: what they have in common, and activations computed again."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from conftest import tiny_settings
from lra.classifier import packing
from lra.config.schema import RunConfig
from lra.models.linear import Linear
from lra.tasks.base import Dataset
from lra.train.gradient import Gradient
from lra.train.trainer import Trainer
from requested import resolve

RANDOM_DIRECTIONS = [
    "mixer.feature=favor", "mixer.decay=none", "mixer.num_random=4", "mixer.redraw_steps=2",
    "model.dropout=0.2", "train.batch_size=64",
]  # fmt: skip


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return config_of().build_task().prepare(tmp_path_factory.mktemp("data"))


def config_of(*changes: str, mixer: str = "tnn") -> RunConfig:
    return resolve("listops", mixer, preset="quick", overrides=tiny_settings(*changes))


def trainer_of(dataset: Dataset, *changes: str, mixer: str = "tnn") -> Trainer:
    config = config_of(*changes, mixer=mixer)
    return Trainer(config, config.build_task().info, dataset, 0, torch.device("cpu"))


def after_steps(trainer: Trainer, prepare: Callable[[], None] = lambda: None) -> dict[str, Tensor]:
    torch.manual_seed(0)
    prepare()
    for _ in range(3):
        trainer.train_step()
    return trainer.model.state_dict()


@pytest.mark.parametrize("norm", ["batch", "layer"])
def test_computing_activations_again_changes_no_number(dataset: Dataset, norm: str) -> None:
    """Nor running statistics, nor what dropout draws."""
    changes = [f"model.norm={norm}", "model.dropout=0.3", "model.depth=2"]
    other = "train.checkpoint_activations=true"
    assert config_of(*changes, other).hash == config_of(*changes).hash
    usual, again = trainer_of(dataset, *changes), trainer_of(dataset, *changes, other)
    wanted = after_steps(usual)
    for name, value in after_steps(again).items():
        assert torch.equal(value, wanted[name]), name
    assert again.model.checkpoint_activations and not usual.model.checkpoint_activations


@pytest.mark.parametrize(("fits", "expected"), [(True, False), (False, True)])
def test_blocks_are_computed_again_if_memory_does_not_suffice(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch, fits: bool, expected: bool
) -> None:
    """Without a trace but the memory."""
    wanted = after_steps(trainer_of(dataset, "model.dropout=0.3"))
    trainer = trainer_of(dataset, "model.dropout=0.3")
    backward, tried = Gradient.backward, []

    def try_pass(self: Gradient, *arguments: Any) -> Any:
        tried.append(len(arguments[0].lengths))
        if not fits and len(tried) == 1:
            raise torch.OutOfMemoryError
        return backward(self, *arguments)

    monkeypatch.setattr(Gradient, "backward", try_pass)
    split = dataset.splits["train"]
    for name, value in after_steps(trainer, lambda: trainer.gradient.fit_memory(split)).items():
        assert torch.equal(value, wanted[name]), name
    assert trainer.model.checkpoint_activations is expected
    assert tried == 4 * [trainer.train_config.batch_size]


@pytest.mark.parametrize("change", ["train.micro_batch=24", "train.checkpoint_activations=true"])
def test_directions_are_drawn_once_in_so_many_steps(
    dataset: Dataset, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many groups of like length and micro-batches a step has."""
    monkeypatch.setattr(packing, "SMALLEST_GROUP", 50)
    trainer = trainer_of(dataset, *RANDOM_DIRECTIONS, change, mixer="linear")
    mixer = next(module for module in trainer.model.modules() if isinstance(module, Linear))
    steps: list[list[Tensor]] = []
    mixer.register_forward_pre_hook(lambda *_: steps[-1].append(mixer.directions.clone()))
    for _ in range(6):
        steps.append([])
        trainer.train_step()
    assert all(len(calls) > 1 for calls in steps)
    assert all(torch.equal(calls[0], used) for calls in steps for used in calls)
    same = [torch.equal(one[0], two[0]) for one, two in itertools.pairwise(steps)]
    assert same == [True, False, True, False, True]
