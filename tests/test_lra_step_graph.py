"""Training steps as graphs: the same numbers as ordinary steps, or a reason why they are not used.

On a CPU, `recorded_graph` stands in for CUDA graphs.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

import lra.train.trainer
from common.errors import UserError
from fake_cuda import random_split
from lra.classifier.classifier import Classifier
from lra.train.checkpoint import capture, restore
from lra.train.step_graph import StepGraph
from lra.train.trainer import Trainer
from models.fast import delta_rule
from recorded_graph import RecordedGraph, use_recorded_graphs
from requested import resolve
from run_checks import assert_same, timeless
from tasks.base import Dataset

CPU, CUDA = torch.device("cpu"), torch.device("cuda")

SETTINGS = (
    "model.depth=1", "model.dim=32", "model.dropout=0.1", "train.batch_size=4", "train.steps=12",
    "train.epochs=null", "train.warmup_steps=4", "train.clip_norm=0.1", "train.weight_decay=0.05",
)  # fmt: skip
"""Settings with which each part of a step acts."""

STEPS = 8


def build_trainer(
    mixer: str, *changes: str, device: torch.device = CPU, task: str = "image"
) -> Trainer:
    """Build a trainer whose epochs are two full batches and one of a single example."""
    config = resolve(task, mixer, preset="quick", overrides=[*SETTINGS, *changes])
    info = config.build_task().info
    split = random_split(info, 9)
    dataset = Dataset(
        splits={"train": split, "val": split},
        source="generated",
        fingerprint="",
        baselines={},
        folder=Path(),
    )
    return Trainer(config, info, dataset, seed=0, device=device)


def build_graphed_trainer(mixer: str, *changes: str) -> Trainer:
    """Build the same trainer; its numbers are read late, as on a GPU."""
    trainer = build_trainer(mixer, *changes)
    trainer.step_graph = StepGraph(trainer.make_step, trainer.optimizer)
    return trainer


def train(trainer: Trainer, steps: int) -> list[dict[str, float]]:
    """Make steps; return what is logged of each."""
    logged: list[dict[str, float]] = []
    for _ in range(steps):
        trainer.train_step()
        trainer.read()
        means = trainer.metrics.means()
        logged.append({name: means[name] for name in ("lr", "grad_norm", "loss", "accuracy")})
        trainer.metrics.clear()
    return logged


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let a CPU capture graphs, and round learning rates as tensors on a GPU do."""
    if torch.cuda.is_available():
        pytest.skip("a GPU captures real graphs")

    def set_rounded(optimizer: torch.optim.Optimizer, factor: float) -> None:
        for group in optimizer.param_groups:
            group["lr"] = float(np.float32(factor * group["peak_lr"]))

    use_recorded_graphs(monkeypatch)
    monkeypatch.setattr(lra.train.trainer, "set_rate_factor", set_rounded)
    # Operations of numpy are not recorded, nor would a GPU use them.
    monkeypatch.setattr("models.delta.delta_rule", delta_rule.delta_rule_by_chunks)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize(
    ("mixer", "changes"),
    [
        ("tnn", []),
        ("linear", ["mixer.feature=favor", "mixer.redraw_steps=2"]),
        ("tnn", ["train.micro_batch=2", "train.precision=bf16"]),
    ],
)
def test_replayed_steps_equal_ordinary_ones(mixer: str, changes: list[str]) -> None:
    """Losses, norms, rates and states, with schedule, clipping and dropout, bit for bit."""
    usual = build_trainer(mixer, *changes)
    expected = train(usual, STEPS)
    graphed = build_graphed_trainer(mixer, *changes)
    assert train(graphed, STEPS) == expected
    assert len({step["loss"] for step in expected}) == STEPS
    assert graphed.step_graph is not None
    graph = cast("RecordedGraph", graphed.step_graph.graph)
    assert graph.replays >= 2  # of five or six full batches, three are warm-up
    assert_same(timeless(capture(usual)), timeless(capture(graphed)))


@pytest.mark.usefixtures("recorded")
def test_checkpoints_and_validations_hold() -> None:
    """A run that is resumed, with graphs or without, is the same as one that never stopped."""
    usual = build_trainer("s4d")
    expected = train(usual, STEPS)
    first = build_graphed_trainer("s4d")
    start = train(first, 6)
    state = capture(first)
    assert {type(group["lr"]) for group in state["optimizer"]["param_groups"]} == {float}
    assert not any(group["capturable"] for group in state["optimizer"]["param_groups"])
    first.validate(lambda: None)
    file = io.BytesIO()
    torch.save(state, file)
    for resumed in (build_graphed_trainer("s4d"), build_trainer("s4d")):
        file.seek(0)
        restore(resumed, torch.load(file, weights_only=True))
        assert start + train(resumed, STEPS - 6) == expected
        assert_same(timeless(capture(usual)), timeless(capture(resumed)))


@pytest.mark.usefixtures("recorded")
def test_a_model_that_waits_cannot_be_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    forward = Classifier.forward

    def read(self: Classifier, *arguments: Any) -> torch.Tensor:
        logits = forward(self, *arguments)
        return logits if logits.sum().item() < 1e9 else -logits

    monkeypatch.setattr(Classifier, "forward", read)
    trainer = build_graphed_trainer("mean")
    with pytest.raises(UserError, match=r"cannot be captured .*train\.cuda_graphs=false"):
        train(trainer, STEPS)


@pytest.mark.parametrize(
    ("task", "changes", "reason"),
    [
        ("listops", [], "different lengths"),
        ("image", ["train.micro_batch=3"], "micro-batches of 3 do not divide a batch of 4"),
        ("image", ["train.micro_batch=2"], None),
    ],
)
def test_what_cannot_be_a_graph_is_said_once(
    task: str, changes: list[str], reason: str | None,
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    use_recorded_graphs(monkeypatch)
    trainer = build_trainer("mean", *changes, task=task)
    trainer.device = CUDA
    with caplog.at_level(logging.WARNING):
        graph = trainer.build_step_graph()
    assert (graph is None) == (reason is not None)
    if reason is not None:
        (record,) = caplog.records
        assert reason in record.message
        assert record.message.startswith("train.cuda_graphs has no effect: ")


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("mixer", ["tnn", "s4", "delta"])
def test_gpu_graphs_equal_ordinary_steps(mixer: str, precision: str) -> None:
    """Without dropout; rounded learning rates and sums in another order differ a little."""
    changes = (f"train.precision={precision}", "model.dropout=0")
    usual = build_trainer(mixer, *changes, device=CUDA)
    expected = train(usual, STEPS)
    graphed = build_trainer(mixer, *changes, "train.cuda_graphs=true", device=CUDA)
    found = train(graphed, STEPS)
    assert graphed.step_graph is not None and graphed.step_graph.graph is not None
    tolerance = 1e-3 if precision == "fp32" else 3e-2
    for step, other in zip(found, expected, strict=True):
        assert step == pytest.approx(other, rel=tolerance, abs=tolerance)
    graphed.validate(lambda: None)
    train(graphed, 2)
