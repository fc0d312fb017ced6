"""Training steps as graphs: the same numbers as ordinary steps, or a reason why they are not used.

On a CPU, `recorded_graph` stands in for CUDA graphs.
"""

import io
import logging
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

import lra.train.trainer
from fake_cuda import random_split
from lra.classifier.classifier import Classifier
from lra.common.errors import UserError
from lra.config.schema import RunConfig
from lra.models.fast import delta_rule
from lra.tasks.base import Dataset, Split, TaskInfo
from lra.tasks.goals import NOT_SCORED, PositionLabels
from lra.tasks.splits import LabelledTokens, Sequences
from lra.train import step_graph
from lra.train.step_graph import StepGraph, build_step
from lra.train.trainer import Trainer
from recorded_graph import RecordedGraph, use_recorded_graphs
from requested import resolve
from run_checks import assert_same, timeless

CPU, CUDA = torch.device("cpu"), torch.device("cuda")

SETTINGS = (
    "model.depth=1", "model.dim=32", "model.dropout=0.1", "train.batch_size=4", "train.steps=12",
    "train.epochs=null", "train.warmup_steps=4", "train.clip_norm=0.1", "train.weight_decay=0.05",
)  # fmt: skip
"""Settings with which each part of a step acts."""

STEPS = 8


def resolve_run(mixer: str, *changes: str, task: str = "image") -> RunConfig:
    return resolve(task, mixer, preset="quick", overrides=[*SETTINGS, *changes])


def build_split(info: TaskInfo, seed: int = 0, labels: int = 6) -> Split:
    """Draw nine examples; where chosen positions have labels, each has so many of 40."""
    if not isinstance(info.goal, PositionLabels):
        return random_split(info, 9)
    rng = np.random.default_rng(seed)
    tokens = rng.integers(1, info.vocab_size, 9 * 40).astype(np.uint8)
    chosen = rng.permuted(np.arange(40) < np.full((9, 1), labels), axis=1).flatten()
    classes = np.where(chosen, rng.integers(0, info.goal.outputs, 9 * 40), NOT_SCORED)
    return LabelledTokens(Sequences(tokens, 40 * np.arange(10)), classes)


def build_trainer(
    mixer: str, *changes: str, device: torch.device = CPU, task: str = "image"
) -> Trainer:
    """Build a trainer whose epochs are two full batches and one of a single example."""
    config = resolve_run(mixer, *changes, task=task)
    info = config.build_task().info
    split = build_split(info)
    dataset = Dataset(
        splits={"train": split, "val": split},
        source="generated",
        fingerprint="",
        baselines={},
        folder=Path(),
    )
    return Trainer(config, info, dataset, seed=0, device=device)


def build_graphed_trainer(mixer: str, *changes: str, task: str = "image") -> Trainer:
    """Build the same trainer, whose steps are graphs, as on a GPU."""
    changes = ("train.cuda_graphs=true", *changes)
    config = resolve_run(mixer, *changes, task=task)
    trainer = build_trainer(mixer, *changes, task=task)
    trainer.gradient.device = CUDA
    split = trainer.dataset.splits["train"]
    trainer.make_step = build_step(
        config, trainer.gradient, trainer.optimizer, split, trainer.total_steps
    )
    trainer.gradient.device = CPU
    return trainer


def count_replays(trainer: Trainer) -> int:
    """Count the replays of the graph."""
    graph = getattr(trainer.make_step, "graph", None)
    return 0 if graph is None else cast("RecordedGraph", graph).replays


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
    monkeypatch.setattr("lra.models.ops.recurrences.delta_rule", delta_rule.delta_rule_by_chunks)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize(
    ("task", "mixer", "changes"),
    [
        ("image", "tnn", []),
        ("image", "linear", ["mixer.feature=favor", "mixer.redraw_steps=2"]),
        ("image", "tnn", ["train.micro_batch=2", "train.precision=bf16"]),
        ("image", "s4d", ["model.pooling=cls", "model.causal=false"]),
        ("lm", "conv", ["task.sequence_length=32"]),
        ("groups", "linear", ["train.micro_batch=2"]),
    ],
)
def test_replayed_steps_equal_ordinary_ones(task: str, mixer: str, changes: list[str]) -> None:
    """Losses, norms, rates and states, with schedule, clipping and dropout, bit for bit."""
    usual = build_trainer(mixer, *changes, task=task)
    expected = train(usual, STEPS)
    graphed = build_graphed_trainer(mixer, *changes, task=task)
    assert train(graphed, STEPS) == expected
    assert len({step["loss"] for step in expected}) == STEPS
    assert count_replays(graphed) >= 2  # of five or six full batches, three are warm-up
    assert_same(timeless(usual.state_dict()), timeless(graphed.state_dict()))


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize("steps", [2, STEPS])
def test_batches_with_other_numbers_of_labels_take_ordinary_steps(
    steps: int, caplog: pytest.LogCaptureFixture
) -> None:
    """If they come before the capture, a line says why there is none."""
    logged: list[list[dict[str, float]]] = []
    replays: list[int] = []
    for build in (build_trainer, build_graphed_trainer):
        trainer = build("linear", task="groups")
        logged.append(train(trainer, steps))
        replays.append(count_replays(trainer))
        other = {"train": build_split(trainer.scorer.info, seed=1, labels=7)}
        trainer.dataset = replace(trainer.dataset, splits=other)
        logged[-1] += train(trainer, 3)
    assert logged[0] == logged[1]
    assert count_replays(trainer) == replays[1]
    is_said = any("in their numbers of targets" in record.message for record in caplog.records)
    assert is_said == (steps == 2) == (replays[1] == 0)


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
    forward = Classifier.forward

    def read(self: Classifier, *arguments: Any) -> torch.Tensor:
        logits = forward(self, *arguments)
        return logits if logits.sum().item() < 1e9 else -logits

    monkeypatch.setattr(Classifier, "forward", read)
    trainer = build_graphed_trainer("mean")
    with pytest.raises(UserError, match=r"cannot be captured .*train\.cuda_graphs=false"):
        train(trainer, STEPS)


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize(
    ("waits", "reason"),
    [
        (True, "a step of this model waits for the GPU"),
        (False, "memory does not suffice for the activations of a graph and of other steps"),
    ],
)
def test_a_step_that_must_not_be_captured_stays_ordinary(
    waits: bool, reason: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    forward, modes = Classifier.forward, [0]
    monkeypatch.setattr("torch.cuda.set_sync_debug_mode", modes.append)

    def wait(self: Classifier, *arguments: Any) -> torch.Tensor:
        if waits and modes[-1] == "warn":
            warnings.warn("called a synchronizing CUDA operation", stacklevel=1)
        return forward(self, *arguments)

    monkeypatch.setattr(Classifier, "forward", wait)
    if not waits:
        monkeypatch.setattr("torch.cuda.max_memory_allocated", lambda: 1)
    trainer = build_graphed_trainer("mean")
    train(trainer, STEPS)
    assert not count_replays(trainer)
    message = f"training steps are not CUDA graphs: {reason}"
    assert [record.message for record in caplog.records].count(message) == 1


def test_a_capture_keeps_the_memory_that_it_reads() -> None:
    """A table that a model's cache drops later, but nothing that the step makes itself."""
    x, table = torch.randn(6), torch.randn(3, requires_grad=True)
    with step_graph._KeepRead() as kept:
        (x.view(2, 3) * table).exp().sum().backward()
    assert {one.data_ptr() for one in kept.storages} == {x.data_ptr(), table.data_ptr()}


@pytest.mark.parametrize(
    ("task", "changes", "reason"),
    [
        ("image", [], None),
        ("listops", [], "examples have several lengths"),
        ("image", ["train.micro_batch=3"], "micro-batches of 3 do not divide a batch of 4 evenly"),
        ("image", ["train.micro_batch=2"], None),
        ("image", ["train.checkpoint_activations=true"], "blocks that are computed again"),
        ("image", ["train.cuda_graphs=auto"], "a run of 12 steps is too short"),
        ("image", ["train.cuda_graphs=auto", "train.steps=20"], None),
    ],
)
def test_what_cannot_be_a_graph_is_said_once(
    task: str, changes: list[str], reason: str | None,
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    use_recorded_graphs(monkeypatch)
    with caplog.at_level(logging.INFO, logger="lra.train.step_graph"):
        trainer = build_graphed_trainer("mean", *changes, task=task)
    assert isinstance(trainer.make_step, StepGraph) == (reason is None)
    lines = [r.message for r in caplog.records if r.message.startswith("training steps are ")]
    if "train.cuda_graphs=auto" not in changes:
        assert lines.pop(0) == "training steps are not CUDA graphs: the device is not CUDA"
    if reason is not None:
        assert f"training steps are not CUDA graphs: {reason}" in lines.pop(0)
    assert not lines


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("task", ["image", "groups"])
@pytest.mark.parametrize("mixer", ["tnn", "s4", "delta"])
def test_gpu_graphs_equal_ordinary_steps(mixer: str, task: str, precision: str) -> None:
    """Without dropout; rounded learning rates and sums in another order differ a little."""
    changes = (f"train.precision={precision}", "model.dropout=0")
    usual = build_trainer(mixer, *changes, "train.cuda_graphs=false", device=CUDA, task=task)
    expected = train(usual, 2 * STEPS)
    graphed = build_trainer(mixer, *changes, "train.cuda_graphs=true", device=CUDA, task=task)
    found = train(graphed, 2 * STEPS)
    assert isinstance(graphed.make_step, StepGraph) and graphed.make_step.graph is not None
    tolerance = 1e-3 if precision == "fp32" else 3e-2
    for step, other in zip(found, expected, strict=True):
        assert step == pytest.approx(other, rel=tolerance, abs=tolerance)
    graphed.validate(lambda: None)
    train(graphed, 2)
