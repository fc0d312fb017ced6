"""Training and evaluation: every setting acts, and every number is what it says."""

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from conftest import tiny_settings
from lra.classifier.block import Block
from lra.config.schema import ModelConfig, RunConfig, TrainConfig
from lra.goals.scorer import Score
from lra.runtime.environment import set_arithmetic
from lra.tasks.base import Dataset
from lra.train.metrics import WARMUP_STEPS
from lra.train.trainer import Diverged, Trainer
from requested import resolve

CPU = torch.device("cpu")


def config_of(*changes: str) -> RunConfig:
    return resolve("listops", "tnn", preset="quick", overrides=tiny_settings(*changes))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return config_of().build_task().prepare(tmp_path_factory.mktemp("data"))


def trainer_of(dataset: Dataset, *changes: str, seed: int = 0) -> Trainer:
    config = config_of(*changes)
    return Trainer(config, config.build_task().info, dataset, seed, CPU)


CHANGED = {
    "model.dim": 24, "model.depth": 1, "model.causal": "true", "model.positions": "learned",
    "model.embedding_dropout": 0.5, "model.norm": "layer", "model.prenorm": "false",
    "model.dropout": 0.5, "model.inner_dropout": 0.5, "model.tied_dropout": "true",
    "model.head_expand": 3.0, "model.head_activation": "gelu", "model.channel_mixer": "mlp",
    "model.channel_expand": 1.0, "model.head_bias": "false",
    "model.starts": "{output.weight: normal 1}",
    "model.channel_activation": "relu", "model.pooling": "last", "model.head": "mlp",
    "train.steps": 40, "train.epochs": 3.0, "train.batch_size": 8, "train.micro_batch": 4,
    "train.bucketing": "true", "train.lr": 0.5, "train.schedule": "constant",
    "train.warmup_steps": 1, "train.schedule_steps": 7, "train.weight_decay": 0.5,
    "train.weight_decay_on": "matrices", "train.beta1": 0.5, "train.beta2": 0.5,
    "train.epsilon": 0.1, "train.clip_norm": 1e-4, "train.precision": "bf16",
    "train.evaluate_every": 2, "train.minutes": 0.01, "train.warmup_share": 0.5,
}  # fmt: skip
"""A value other than the tiny run's for every setting of model and train."""

NEEDED = {
    "model.tied_dropout": "model.dropout=0.5",
    "model.head_expand": "model.head=mlp",
    "model.head_activation": "model.head=mlp",
}
"""Another setting that one is to act with."""


@pytest.fixture(scope="module")
def unchanged(dataset: Dataset) -> Callable[..., list[Any]]:
    """Return a function that traces settings once for all tests that compare with them."""
    return functools.cache(functools.partial(trace, dataset))


def make_step(trainer: Trainer) -> dict[str, float]:
    """Make a step and read its numbers, with those of the steps before."""
    trainer.train_step()
    trainer.read()
    return trainer.metrics.means()


def trace(dataset: Dataset, *changes: str) -> list[Any]:
    """Make six steps; return all that a setting can change."""
    trainer = trainer_of(dataset, *changes)
    numbers: list[Any] = [trainer.total_steps]
    for _ in range(6):
        facts = make_step(trainer)
        numbers += [facts["lr"], trainer.validation_is_due(), facts["loss"]]
    return numbers


def test_every_setting_has_a_change_to_test() -> None:
    fields = {f"model.{name}" for name in ModelConfig.model_fields}
    fields |= {f"train.{name}" for name in TrainConfig.model_fields}
    # These need a grid (test_lra_axes.py), change no number (test_lra_memory.py), need positions
    # as targets (test_lra_positions.py), act on a GPU alone, and act on validations (below).
    apart = {"model.axes", "train.checkpoint_activations", "model.tied_embeddings"}
    apart |= {"train.tf32", "train.deterministic", "train.cuda_graphs"}
    apart |= {"train.plateau_patience", "train.plateau_factor"}
    assert fields - apart == CHANGED.keys()


@pytest.mark.thorough
@pytest.mark.parametrize("name", CHANGED)
def test_no_setting_is_ignored(
    dataset: Dataset, unchanged: Callable[..., list[Any]], name: str
) -> None:
    base = ["train.weight_decay=0.9"]  # so that what it acts on shows within six steps
    base += [NEEDED[name]] if name in NEEDED else []
    assert trace(dataset, *base, f"{name}={CHANGED[name]}") != unchanged(*base)


def test_a_gpu_computes_as_it_is_told_and_a_cpu_as_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")  # so that it is as before, afterwards
    gpu = torch.device("cuda")
    for wanted in (True, False):
        set_arithmetic(gpu, tf32=wanted, deterministic=wanted)
        set_arithmetic(CPU, tf32=not wanted, deterministic=not wanted)
        assert torch.backends.cuda.matmul.allow_tf32 is wanted
        assert torch.backends.cudnn.allow_tf32 is wanted
        assert torch.are_deterministic_algorithms_enabled() is wanted
    for name in ("tf32=true", "deterministic=true"):
        assert config_of(f"train.{name}").hash != config_of().hash


def test_the_loss_is_the_mean_over_the_batch(dataset: Dataset) -> None:
    """Its gradient, in whole or micro-batches, is that of a loss written out by hand."""
    gradients = []
    for changes in ((), ("train.micro_batch=5",), ("by hand",)):
        settings = [c for c in changes if c != "by hand"]
        trainer = trainer_of(dataset, "model.norm=layer", *settings)
        trainer.model.double()
        batch = dataset.splits["train"].batch(trainer.order.at(0))
        if "by hand" in changes:
            logits = trainer.model(batch.inputs, batch.lengths)
            shares = logits.log_softmax(dim=-1)[torch.arange(len(logits)), batch.labels]
            (-shares.float().mean()).backward()
        else:
            targets = trainer.gradient.count_targets(batch, len(batch))
            loss, correct = trainer.gradient.backward(batch, len(batch), targets)
            assert targets == len(batch.labels)
            assert 0 <= correct <= len(batch.labels)
            assert loss == pytest.approx(np.log(10), rel=0.1)
        gradients.append([p.grad for p in trainer.model.parameters()])
    for whole, parts, by_hand in zip(*gradients, strict=True):
        torch.testing.assert_close(whole, by_hand, rtol=1e-4, atol=1e-8)
        torch.testing.assert_close(parts, by_hand, rtol=1e-4, atol=1e-8)


def test_gradients_are_clipped(dataset: Dataset) -> None:
    trainer = trainer_of(dataset, "train.clip_norm=0.001")
    assert make_step(trainer)["grad_norm"] > 0.001
    norms = torch.stack([p.grad.norm() for p in trainer.model.parameters() if p.grad is not None])
    assert norms.norm().item() == pytest.approx(0.001, rel=1e-3)


def test_when_numbers_are_read_changes_none_of_them(dataset: Dataset) -> None:
    usual, late = trainer_of(dataset), trainer_of(dataset)
    expected: dict[str, float] = {}
    for _ in range(4):
        expected = make_step(usual)
        late.train_step()
    assert late.metrics.sums["steps"] == 0
    late.read()
    late.read()
    assert late.metrics.means() == {**expected, "steps_per_second": mock.ANY}
    late.train_step()
    assert late.state_dict()["metrics"]["sums"]["steps"] == 5


def test_the_first_step_that_diverges_does_not_count(dataset: Dataset) -> None:
    trainer = trainer_of(dataset)
    trainer.train_step()
    with torch.no_grad():
        trainer.model.output.bias[0] = float("nan")
    for _ in range(3):
        trainer.train_step()
    with pytest.raises(Diverged, match="the loss of step 2 is not finite"):
        trainer.validate(lambda: None)
    assert (trainer.step, trainer.metrics.sums["steps"]) == (1, 1)
    assert trainer.best is None


def test_scores_count_every_example_in_evaluation_mode(dataset: Dataset) -> None:
    trainer = trainer_of(dataset, "model.dropout=0.5", "train.batch_size=7")
    trainer.train_step()
    score = trainer.score("test", lambda: None)
    assert trainer.model.training
    trainer.model.eval()
    correct, loss = 0, 0.0
    split = dataset.splits["test"]
    for i in range(len(split)):
        batch = split.batch(np.array([i]))
        logits = trainer.model(batch.inputs, batch.lengths)
        correct += int(logits.argmax() == batch.labels[0])
        loss += functional.cross_entropy(logits, batch.labels).item() / len(split)
    assert (score.result["test_correct"], score.total) == (correct, 50)
    assert score.loss == pytest.approx(loss, rel=1e-4)
    assert score.result["test_accuracy"] == pytest.approx(100 * correct / 50)


def test_selection_decides_what_is_tested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that is ruined after its best validation is tested as it was at the best."""
    from conftest import tiny_arguments
    from lra import run_task
    from lra.record.run import load_record

    seen: list[tuple[str, int]] = []
    real_score = Trainer.score

    def score(self: Trainer, split: str, check: Any) -> Score:
        ruined = split == "val" and self.step == 20
        if ruined:
            nn.init.zeros_(self.model.output.weight)
        result = real_score(self, split, check)
        seen.append((split, int(self.model.output.weight.count_nonzero())))
        return replace(result, merit=0.0) if ruined else result

    monkeypatch.setattr(Trainer, "score", score)
    assert run_task.main(tiny_arguments(tmp_path)) == 0
    (path,) = (tmp_path / "results").glob("runs/*/*/*/result.json")
    assert [split for split, _ in seen] == ["val", "val", "test"]
    assert seen[1][1] == 0
    assert seen[2][1] > 0
    assert load_record(path).best_step == 10


def test_of_equal_validations_the_first_is_the_best(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = trainer_of(dataset)
    score = trainer.score("val", lambda: None)
    monkeypatch.setattr(trainer, "score", lambda *_: score)
    for _ in range(2):
        trainer.train_step()
        trainer.validate(lambda: None)
    assert trainer.best is not None and trainer.best["step"] == 1


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_precision_reaches_the_matrix_products(dataset: Dataset, precision: str) -> None:
    trainer = trainer_of(dataset, f"train.precision={precision}")
    kinds: set[torch.dtype] = set()
    block = trainer.model.blocks[0]
    assert isinstance(block, Block)
    assert block.channel_mixer is not None
    block.channel_mixer.register_forward_hook(lambda *arguments: kinds.add(arguments[2].dtype))
    trainer.train_step()
    assert kinds == {torch.bfloat16 if precision == "bf16" else torch.float32}


class Clock:
    """Tells a time that goes on by so many seconds whenever it is looked at."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.now = 0.0

    def perf_counter(self) -> float:
        self.now += self.seconds
        return self.now


TIMED = ("train.minutes=0.1", "train.evaluate_every=null", "train.warmup_share=0.25")


def test_a_run_of_minutes_ends_when_they_are_over_and_its_schedule_with_it(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lra.train.metrics.time", Clock(0.5))
    trainer = trainer_of(dataset, *TIMED)
    rates, validated, expected = [], [], []
    while trainer.step < trainer.total_steps:
        rates.append(make_step(trainer)["lr"])
        expected.append(trainer.total_steps)
        if trainer.validation_is_due():
            validated.append(trainer.step)
            trainer.validate(lambda: None)
    assert (trainer.step, trainer.metrics.seconds) == (12, 6.0)  # half a second each
    assert trainer.metrics.step_seconds == [0.5] * (12 - WARMUP_STEPS)
    assert set(expected) <= {12, 13}
    assert rates[0] < 0.01 * trainer.train_config.lr
    assert validated == [3, 6, 9, 12]
    assert max(rates) == pytest.approx(trainer.train_config.lr, rel=0.05)
    assert rates[3:] == sorted(rates[3:], reverse=True)
    assert rates[-1] < 0.1 * trainer.train_config.lr


def test_a_rate_falls_on_plateaus_as_that_of_torch(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after a resume between two validations."""
    changes = ("train.schedule=plateau", "train.plateau_patience=1", "train.plateau_factor=0.5")
    changes += ("train.warmup_steps=0", "train.lr=1e-3")
    generator = np.random.default_rng(1)
    accuracies = np.maximum.accumulate(generator.normal(50, 5, 20)) - generator.choice([0, 1], 20)
    # Better, but by less than counts, and by just more.
    accuracies = [*accuracies, *(80 + 1e-3 * np.arange(9)), *(90 + 1e-2 * np.arange(4))]
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1e-3)
    torchs = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, mode="max", factor=0.5, patience=1
    )
    trainer = trainer_of(dataset, *changes)
    rate = float("inf")
    for accuracy in accuracies:
        score = Score(
            total=100, loss=1.0, non_finite=0, merit=accuracy, numbers={}, text="", result={}
        )
        resumed = trainer_of(dataset, *changes)
        resumed.load_state_dict(trainer.state_dict())
        trainer = resumed
        monkeypatch.setattr(trainer, "score", lambda *_, score=score: score)
        trainer.validate(lambda: None)
        torchs.step(accuracy)
        trainer.train_step()
        rate = optimizer.param_groups[0]["lr"]
        assert trainer.optimizer.param_groups[0]["lr"] == pytest.approx(rate)
    assert rate < 5e-4
