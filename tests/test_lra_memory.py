"""Micro-batches that fit, and activations computed again."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from conftest import TINY
from lra.config.schema import RunConfig
from lra.runtime.errors import UserError
from lra.train import gradient
from lra.train.gradient import fitting_micro_batch, usable_memory_mib
from lra.train.state import capture, restore
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
    assert again.sums == {**usual.sums, "seconds": again.sums["seconds"]}


def made_up_memory(
    monkeypatch: pytest.MonkeyPatch, *, each: float, available: float, fails_at: int = 10**9
) -> list[int]:
    """Let a pass of n examples take 100 + n * each MiB; return what was tried."""
    tried: list[int] = []

    def peak(examples: int, device: torch.device, make_pass: object) -> float | None:
        tried.append(examples)
        return None if examples >= fails_at else 100 + examples * each

    monkeypatch.setattr(gradient, "measure_peak", peak)
    monkeypatch.setattr(gradient, "memory_mib", lambda device: 100.0)
    monkeypatch.setattr(gradient, "available_memory_mib", lambda device: available / 0.8)
    return tried


@pytest.mark.parametrize(
    ("each", "available", "expected", "tried"),
    [
        (1.0, 1000.0, 16, [1, 2, 4, 8, 16]),
        (10.0, 100.0, 8, [1, 2, 4, 8]),
        (10.0, 119.0, 8, [1, 2, 4, 8]),  # 11 would fit, but two passes need no more than 8
        (10.0, 60.0, 6, [1, 2, 4]),  # of 16 in three passes: 6, 6, 4
        (10.0, 10.0, 1, [1]),
    ],
)
def test_the_largest_micro_batch_that_fits(
    monkeypatch: pytest.MonkeyPatch,
    each: float,
    available: float,
    expected: int,
    tried: list[int],
) -> None:
    seen = made_up_memory(monkeypatch, each=each, available=available)
    assert fitting_micro_batch(16, usable_memory_mib(CPU), CPU, lambda _: None) == expected
    assert seen == tried


def test_what_runs_out_of_memory_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    made_up_memory(monkeypatch, each=0.0, available=1000.0, fails_at=8)
    assert fitting_micro_batch(16, usable_memory_mib(CPU), CPU, lambda _: None) == 4
    made_up_memory(monkeypatch, each=1.0, available=1000.0, fails_at=1)
    with pytest.raises(UserError, match="checkpoint_activations=true takes less"):
        fitting_micro_batch(16, usable_memory_mib(CPU), CPU, lambda _: None)


def test_looking_for_a_micro_batch_leaves_no_trace(dataset: Dataset) -> None:
    changes = ("model.dropout=0.3", "model.norm=batch")
    usual = trainer_of(dataset, *changes)
    found = trainer_of(dataset, *changes, "train.micro_batch=auto")
    wanted = after_steps(usual)
    for name, value in after_steps(found).items():
        assert torch.equal(value, wanted[name]), name
    assert found.gradient.micro_batch == usual.train_config.batch_size


@pytest.mark.parametrize(("fits", "expected"), [(True, False), (False, True)])
def test_blocks_are_computed_again_if_memory_does_not_suffice(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch, fits: bool, expected: bool
) -> None:
    """On a GPU alone, and without a trace but the memory."""
    wanted = after_steps(trainer_of(dataset, "model.dropout=0.3"))
    trainer = trainer_of(dataset, "model.dropout=0.3")
    assert trainer.config.train.checkpoint_activations == "auto"
    monkeypatch.setattr(trainer.gradient, "_may_checkpoint", True)
    trainer.gradient._fits_memory = False
    tried = made_up_memory(monkeypatch, each=1.0, available=1.0, fails_at=10**9 if fits else 1)
    for name, value in after_steps(trainer).items():
        assert torch.equal(value, wanted[name]), name
    assert trainer.model.checkpoint_activations is expected
    assert tried == [trainer.train_config.batch_size]


@pytest.mark.parametrize("setting", ["auto", "false", "true"])
def test_a_cpu_computes_blocks_again_only_if_asked(dataset: Dataset, setting: str) -> None:
    trainer = trainer_of(dataset, f"train.checkpoint_activations={setting}")
    trainer.train_step()
    assert trainer.model.checkpoint_activations is (setting == "true")


def test_a_resumed_run_keeps_its_micro_batch(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = trainer_of(dataset, "train.batch_size=16", "train.micro_batch=auto")
    made_up_memory(monkeypatch, each=10.0, available=60.0)
    first.train_step()
    second = trainer_of(dataset, "train.batch_size=16", "train.micro_batch=auto")
    tried = made_up_memory(monkeypatch, each=1.0, available=1000.0)
    restore(second, capture(first))
    second.train_step()
    assert (second.gradient.micro_batch, tried) == (6, [])
