"""Training steps as graphs: the same numbers as ordinary steps, or a reason why they are not used.

On a CPU, `recorded_graph` stands in for CUDA graphs.
"""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

import lra.train.trainer
from common.errors import UserError
from fake_cuda import random_split
from lra.classifier import layouts
from lra.classifier.classifier import Classifier
from lra.train import step_graph
from lra.train.graphs import build_step_graphs, find_obstacle
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
    mixer: str,
    *changes: str,
    device: torch.device = CPU,
    task: str = "image",
    classifier: type[Classifier] = Classifier,
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
    return Trainer(config, info, dataset, seed=0, device=device, classifier=classifier)


def build_graphed_trainer(mixer: str, *changes: str, task: str = "image") -> Trainer:
    """Build the same trainer, whose steps are graphs, as on a GPU."""
    trainer = build_trainer(mixer, "train.cuda_graphs=true", *changes, task=task)
    trainer.gradient.device = CUDA
    trainer.step_graphs = build_step_graphs(
        trainer.config, trainer.gradient, trainer.optimizer, trainer.dataset.splits["train"],
        trainer.order, total_steps=trainer.total_steps,
    )  # fmt: skip
    trainer.gradient.device = CPU
    return trainer


def count_replays(trainer: Trainer) -> int:
    """Count the replays of all graphs."""
    assert trainer.step_graphs is not None
    graphs = [shape.graph for shape in trainer.step_graphs.shapes.values()]
    return sum(cast("RecordedGraph", graph).replays for graph in graphs if graph is not None)


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

    def set_rounded(optimizer: torch.optim.Optimizer, factor: float, _: float | None) -> None:
        for group in optimizer.param_groups:
            group["lr"] = float(np.float32(factor * group["peak_lr"]))

    use_recorded_graphs(monkeypatch)
    monkeypatch.setattr(lra.train.trainer, "set_rate_factor", set_rounded)
    # Operations of numpy are not recorded, nor would a GPU use them.
    monkeypatch.setattr("models.ops.recurrences.delta_rule", delta_rule.delta_rule_by_chunks)
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
    assert count_replays(graphed) >= 2  # of five or six full batches, three are warm-up
    assert_same(timeless(usual.state_dict()), timeless(graphed.state_dict()))


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize(
    ("task", "mixer", "changes"),
    [
        ("listops", "tnn", ["train.micro_batch=2"]),
        ("listops", "s4d", ["model.pooling=cls", "model.causal=false"]),
        ("retrieval", "transformer", ["task.sequence_length=200"]),
        ("languages", "linear", []),
        ("lm", "conv", ["task.sequence_length=32"]),
    ],
)
def test_batches_of_several_lengths_take_the_same_steps(
    task: str, mixer: str, changes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replayed steps equal fixed ones bit for bit, and packed ones within rounding."""
    monkeypatch.setattr(layouts, "MOST_LAYOUTS", 2)
    changes = [f"model.norm={'batch' if task == 'listops' else 'layer'}", *changes]
    graphed = build_graphed_trainer(mixer, *changes, task=task)
    found = train(graphed, 2 * STEPS)
    assert count_replays(graphed) >= 4
    monkeypatch.setattr(step_graph, "WARMUP_STEPS", 99)
    fixed = build_graphed_trainer(mixer, *changes, task=task)
    assert train(fixed, 2 * STEPS) == found
    assert_same(timeless(fixed.state_dict()), timeless(graphed.state_dict()))

    changes.append("model.dropout=0")
    fixed = build_graphed_trainer(mixer, *changes, task=task)
    packed = build_trainer(mixer, *changes, task=task)
    for step, other in zip(train(fixed, 4), train(packed, 4), strict=True):
        assert step == pytest.approx(other, rel=1e-3, abs=1e-5)


@pytest.mark.usefixtures("recorded")
def test_checkpoints_and_validations_hold() -> None:
    """A run that is resumed, with graphs or without, is the same as one that never stopped."""
    usual = build_trainer("s4d")
    expected = train(usual, STEPS)
    first = build_graphed_trainer("s4d")
    start = train(first, 6)
    state = first.state_dict()
    assert {type(group["lr"]) for group in first.optimizer.param_groups} == {float}
    assert not any(group["capturable"] for group in first.optimizer.param_groups)
    first.validate(lambda: None)
    file = io.BytesIO()
    torch.save(state, file)
    for resumed in (build_graphed_trainer("s4d"), build_trainer("s4d")):
        file.seek(0)
        resumed.load_state_dict(torch.load(file, weights_only=True))
        assert start + train(resumed, STEPS - 6) == expected
        assert_same(timeless(usual.state_dict()), timeless(resumed.state_dict()))


@pytest.mark.usefixtures("recorded")
def test_a_model_that_waits_cannot_be_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    forward = Classifier.compute_packed

    def read(self: Classifier, *arguments: Any) -> torch.Tensor:
        logits = forward(self, *arguments)
        return logits if logits.sum().item() < 1e9 else -logits

    monkeypatch.setattr(Classifier, "compute_packed", read)
    trainer = build_graphed_trainer("mean")
    with pytest.raises(UserError, match=r"cannot be captured .*train\.cuda_graphs=false"):
        train(trainer, STEPS)


@pytest.mark.usefixtures("recorded")
def test_a_model_that_waits_is_trained_by_ordinary_steps(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    forward, modes = Classifier.compute_packed, [0]
    monkeypatch.setattr("torch.cuda.set_sync_debug_mode", modes.append)

    def wait(self: Classifier, *arguments: Any) -> torch.Tensor:
        if modes[-1] == "warn":
            warnings.warn("called a synchronizing CUDA operation", stacklevel=1)
        return forward(self, *arguments)

    monkeypatch.setattr(Classifier, "compute_packed", wait)
    trainer = build_graphed_trainer("mean")
    train(trainer, STEPS)
    assert not count_replays(trainer)
    message = "training steps are not CUDA graphs: a step of this model waits for the GPU"
    assert [record.message for record in caplog.records].count(message) == 1


def test_a_capture_keeps_the_memory_that_it_reads() -> None:
    """A table that a model's cache drops later, but nothing that the step makes itself."""
    x, table = torch.randn(6), torch.randn(3, requires_grad=True)
    with step_graph._KeepRead() as kept:
        (x.view(2, 3) * table).exp().sum().backward()
    assert {one.data_ptr() for one in kept.storages} == {x.data_ptr(), table.data_ptr()}


class Unpacked(Classifier):
    """A classifier that computes in its own way."""

    def forward(self, inputs: Any, lengths: Any, scored: Any = None) -> torch.Tensor:
        return super().forward(inputs, lengths, scored)


@pytest.mark.parametrize(
    ("task", "changes", "reason"),
    [
        ("listops", [], None),
        ("image", ["train.micro_batch=3"], "micro-batches of 3 do not divide a batch of 4 evenly"),
        ("image", ["train.micro_batch=2"], None),
        ("image", ["train.checkpoint_activations=true"], "blocks that are computed again"),
        ("image", ["train.cuda_graphs=auto"], "each of 1 shapes of batches would repeat 12 times"),
        ("image", ["train.cuda_graphs=auto", "train.steps=20"], None),
    ],
)
def test_what_cannot_be_a_graph_is_said_once(
    task: str, changes: list[str], reason: str | None,
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    use_recorded_graphs(monkeypatch)
    with caplog.at_level(logging.INFO, logger="lra.train.graphs"):
        graphs = build_graphed_trainer("mean", *changes, task=task).step_graphs
    assert (graphs is None) == (reason is not None)
    lines = [r.message for r in caplog.records if r.message.startswith("training steps are ")]
    if "train.cuda_graphs=auto" not in changes:
        assert lines.pop(0) == "training steps are not CUDA graphs: the device is not CUDA"
    (line,) = lines
    assert (reason or "training steps are CUDA graphs: ") in line


def test_a_model_with_a_forward_pass_of_its_own_is_no_graph() -> None:
    trainer = build_trainer("mean", classifier=Unpacked)
    trainer.gradient.device = CUDA
    train = trainer.dataset.splits["train"]
    found = find_obstacle(trainer.config, trainer.gradient, train, trainer.order)
    assert found == "the model packs batches by itself"


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("task", ["image", "listops", "retrieval", "languages"])
@pytest.mark.parametrize("mixer", ["tnn", "s4", "delta"])
def test_gpu_graphs_equal_ordinary_steps(
    mixer: str, task: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without dropout; rounded learning rates and sums in another order differ a little."""
    monkeypatch.setattr(layouts, "MOST_LAYOUTS", 2)
    changes = (f"train.precision={precision}", "model.dropout=0")
    usual = build_trainer(mixer, *changes, "train.cuda_graphs=false", device=CUDA, task=task)
    expected = train(usual, 2 * STEPS)
    graphed = build_trainer(mixer, *changes, "train.cuda_graphs=true", device=CUDA, task=task)
    found = train(graphed, 2 * STEPS)
    assert graphed.step_graphs is not None
    assert any(shape.graph is not None for shape in graphed.step_graphs.shapes.values())
    tolerance = 1e-3 if precision == "fp32" else 3e-2
    for step, other in zip(found, expected, strict=True):
        assert step == pytest.approx(other, rel=tolerance, abs=tolerance)
    graphed.validate(lambda: None)
    train(graphed, 2)
