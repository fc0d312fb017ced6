"""Self-pretraining: what is learned without labels, and how runs of two phases go on."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

import lra
from conftest import tiny_arguments, tiny_settings
from lra import run_task
from lra.classifier.classifier import Classifier
from lra.common.errors import UserError
from lra.config.schema import RunConfig
from lra.record.run import PretrainingRecord, load_record
from lra.tasks.base import Dataset, Split, TaskInfo
from lra.tasks.batch import Batch
from lra.tasks.goals import NOT_SCORED, Goal, InputValues, NextToken
from lra.tasks.splits import PackedSequences, Sequences
from lra.tasks.unlabelled import MaskedInputs, NextInputs, build_pretraining_data
from lra.train.self_pretraining import (
    choose_phase,
    pretraining_config,
    transfer_weights,
)
from lra.train.trainer import Trainer
from made_data import SMALLER, place_made_data
from requested import resolve
from run_checks import assert_same_run

CPU = torch.device("cpu")
EMPTY = PackedSequences(Sequences(np.zeros(0), np.zeros(1, dtype=int)), np.zeros(0, dtype=int))
NOTHING = Dataset(
    splits={"train": EMPTY, "val": EMPTY}, source="", fingerprint="", baselines={}, folder=Path()
)


def pretraining_data(
    config: RunConfig, info: TaskInfo, dataset: Dataset
) -> tuple[TaskInfo, Dataset]:
    pretrain = config.pretrain
    return build_pretraining_data(info, dataset, pretrain.objective, pretrain.masked_share)


def config_of(*changes: str, task: str = "listops", mixer: str = "tnn") -> RunConfig:
    own = tiny_settings() if task == "listops" else SMALLER[task]
    return resolve(task, mixer, preset="quick", overrides=[*own, *changes])


@pytest.fixture(scope="module", params=["listops", "image"])
def prepared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[TaskInfo, Dataset]:
    """Tokens, real numbers, and pairs of documents."""
    folder = tmp_path_factory.mktemp("data")
    place_made_data(request.param, folder)
    task = config_of(task=request.param).build_task()
    return task.info, task.prepare(folder)


def sequences(split: Split, indices: np.ndarray) -> tuple[torch.Tensor, list[slice]]:
    batch = split.batch(indices)
    ends = torch.cumsum(batch.lengths.flatten(), 0).tolist()
    return batch.inputs, [slice(a, b) for a, b in zip([0, *ends], ends, strict=False)]


def parts_of(batch: Batch) -> list[slice]:
    """The positions of each example."""
    ends = torch.cumsum(batch.lengths.sum(dim=1), 0).tolist()
    return [slice(a, b) for a, b in zip([0, *ends], ends, strict=False)]


def goal_of(info: TaskInfo) -> Goal:
    return NextToken(info.vocab_size) if info.vocab_size else InputValues(info.channels or 0)


def test_masked_positions_are_hidden_and_asked_for(
    prepared: tuple[TaskInfo, Dataset],
) -> None:
    """Others are as they were; each sequence has one at least; training draws anew each time."""
    split, goal = prepared[1].splits["train"], goal_of(prepared[0])
    share, token = 0.3, None if prepared[0].vocab_size is None else 99
    masked = MaskedInputs(split, goal, share, token, is_fixed=False)
    indices = np.arange(min(20, len(split)))
    inputs, parts = sequences(split, indices)
    batch = masked.batch(indices)
    if inputs.is_floating_point():
        hidden = batch.inputs[:, -1] == 1
        assert torch.equal(batch.inputs[~hidden, :-1], inputs[~hidden])
        assert (batch.inputs[hidden, :-1] == 0).all() and (batch.inputs[~hidden, -1] == 0).all()
        assert batch.labels[~hidden].isnan().all()
    else:
        hidden = batch.inputs == 99
        assert torch.equal(batch.inputs[~hidden], inputs[~hidden])
        assert (batch.labels[~hidden] == NOT_SCORED).all()
    assert torch.equal(batch.labels[hidden], inputs[hidden])
    assert all(hidden[part].any() for part in parts)
    lowest = len(parts) / len(hidden)
    deviation = (share / len(hidden)) ** 0.5
    assert share - 4 * deviation < hidden.float().mean() < share + lowest + 4 * deviation
    again = masked.batch(indices)
    assert not torch.equal(again.inputs, batch.inputs)
    assert batch.target_counts.tolist() == [int(hidden[part].sum()) for part in parts_of(batch)]
    fixed = MaskedInputs(split, goal, share, token, is_fixed=True)
    first, again = (fixed.batch(indices) for _ in range(2))
    assert torch.equal(first.inputs, again.inputs)
    assert torch.equal(first.labels.nan_to_num(), again.labels.nan_to_num())


def test_the_next_input_is_asked_for_within_each_sequence(
    prepared: tuple[TaskInfo, Dataset],
) -> None:
    split = prepared[1].splits["train"]
    indices = np.arange(min(5, len(split)))
    inputs, parts = sequences(split, indices)
    batch = NextInputs(split, goal_of(prepared[0])).batch(indices)
    assert int(batch.target_counts.sum()) == len(inputs) - len(parts)
    assert torch.equal(batch.inputs, inputs)
    for part in parts:
        labels = batch.labels[part]
        assert torch.equal(labels[:-1], inputs[part][1:])
        last = labels[-1]
        assert last.isnan().all() if labels.is_floating_point() else last == NOT_SCORED


def test_real_numbers_are_learned_by_their_absolute_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And nothing is said of their accuracy."""
    place_made_data("image", tmp_path / "data")
    config = config_of("pretrain.objective=masked", task="image")
    task = config.build_task()
    info, dataset = pretraining_data(config, task.info, task.prepare(tmp_path / "data"))
    trainer = Trainer(pretraining_config(config), info, dataset, 0, CPU)
    batch = dataset.splits["train"].batch(np.arange(3))
    targets = trainer.gradient.count_targets(batch, 3)
    loss, correct = trainer.gradient.backward(batch, 3, targets)
    scored = ~batch.labels[:, 0].isnan()
    logits = trainer.model(batch.inputs, batch.lengths)
    by_hand = functional.l1_loss(logits[scored], batch.labels[scored])
    assert targets == scored.sum() and correct == 0
    assert loss == pytest.approx(by_hand.item(), rel=1e-4)
    arguments = ["--task", "image", "--mixer", "conv", "--preset", "quick", "--pretrain", "masked"]
    for change in ("model.dim=4", "model.depth=1", "train.steps=2", "train.warmup_steps=1",
                   "train.batch_size=4", *SMALLER["image"]):  # fmt: skip
        arguments += ["--set", change]
    places = ["--data-dir", str(tmp_path / "data"), "--results-dir", str(tmp_path / "results")]
    assert run_task.main([*arguments, *places]) == 0
    before, after = capsys.readouterr().err.split("next, labels are learned")
    assert "step 2/2  loss" in before and "accuracy" not in before.split("step 2/2")[1]
    assert "accuracy" in after


@pytest.mark.parametrize("task", ["listops", "image"])
def test_all_but_the_head_is_handed_on(task: str) -> None:
    """What stood for hidden positions is left out of embeddings; norms' statistics are kept."""
    config = config_of("pretrain.objective=masked", "model.norm=batch", task=task)
    info = config.build_task().info
    before, _ = pretraining_data(config, info, NOTHING)
    pretrained, fresh = Classifier(config, before), Classifier(config, info)
    weights, own = pretrained.state_dict(), fresh.state_dict()
    found = transfer_weights(weights, own)
    fresh.load_state_dict(found)
    assert found.keys() == own.keys()
    for name, value in found.items():
        if name.startswith(("output.", "hidden.")):
            assert torch.equal(value, own[name])
        elif name.startswith("embedding."):
            rows = weights[name][: len(value)]
            assert torch.equal(value, rows[:, : value.shape[1]] if value.ndim > 1 else rows)
        else:
            assert torch.equal(value, weights[name])
    assert any(name.endswith("running_mean") for name in found)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["pretrain.objective=next"], "model.causal is false: positions would see the next"),
        (["pretrain.objective=none", "pretrain.steps=2"], "pretrain.steps has no effect: there is"),
    ],
)
def test_what_cannot_be_is_refused(changes: list[str], words: str) -> None:
    first = ["model.norm=layer", "pretrain.objective=masked"]
    with pytest.raises(UserError, match=words) as caught:
        resolve("listops", "tnn", preset="quick", overrides=[*first, *tiny_settings(*changes)])
    assert "\n" not in str(caught.value)


def test_the_hash_covers_both_phases() -> None:
    plain, masked = config_of(), config_of("pretrain.objective=masked")
    longer = config_of("pretrain.objective=masked", "pretrain.steps=21")
    assert len({plain.hash, masked.hash, longer.hash}) == 3
    assert "pretrain" not in plain.values() and "pretrain:" not in plain.show()
    assert masked.values()["pretrain"]["masked_share"] == 0.1
    assert "pretrain:" in masked.show()
    assert masked.changes == {**plain.changes, "pretrain.objective": "masked"}
    without = replace(plain, changed=(*plain.changed, "pretrain.steps"))
    assert without.changes == plain.changes


def test_a_pretraining_is_as_long_as_the_training_unless_it_says_otherwise() -> None:
    masked = config_of("pretrain.objective=masked")
    found = pretraining_config(masked).train
    assert (found.steps, found.epochs, found.minutes) == (20, None, None)
    assert (found.lr, found.warmup_share, found.warmup_steps) == (2e-3, 0.1, 0)
    own = config_of(
        "pretrain.objective=masked", "pretrain.epochs=0.5", "pretrain.lr=0.1",
        "pretrain.batch_size=4", "train.micro_batch=8",
    )  # fmt: skip
    found = pretraining_config(own).train
    assert (found.steps, found.epochs, found.lr) == (None, 0.5, 0.1)
    assert (found.batch_size, found.micro_batch) == (4, 4)


@pytest.mark.parametrize(("seconds", "left"), [(301.5, 10 - 301.5 / 60), (700, 0.01)])
def test_minutes_include_the_pretraining(seconds: float, left: float) -> None:
    settings = tiny_settings("train.minutes=10", "pretrain.objective=masked")
    config = resolve("listops", "tnn", preset="quick", overrides=settings)
    assert pretraining_config(config).train.minutes == 5
    result = PretrainingRecord(
        objective="masked", masked_share=0.1, steps=1, epochs=1.0, seconds=seconds, val_loss=None
    )
    after, _, _ = choose_phase(config, config.build_task().info, NOTHING, result)
    assert after.train.minutes == pytest.approx(left)


PRETRAINED = ["--pretrain", "masked", "--set", "pretrain.steps=12", "--set", "model.dropout=0.2"]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny run of 12 and 20 steps, made at one go."""
    folder = tmp_path_factory.mktemp("unbroken")
    assert run_task.main(tiny_arguments(folder, *PRETRAINED)) == 0
    return only_folder(folder)


def only_folder(results: Path) -> Path:
    (folder,) = (results / "results" / "runs" / "listops").glob("*/*")
    return folder


def test_stops_change_nothing(tmp_path: Path, unbroken: Path) -> None:
    """Neither in the pretraining, nor at its end, nor after it."""
    for stop in (3, 12, 13, 25):
        code = run_task.main(tiny_arguments(tmp_path, *PRETRAINED, "--max-steps", str(stop)))
        assert code == (run_task.EXIT_CODES["stopped"] if stop < 32 else 0)
    assert run_task.main(tiny_arguments(tmp_path, *PRETRAINED)) == 0
    assert_same_run(only_folder(tmp_path), unbroken)


def test_the_record_tells_both_phases(unbroken: Path, tmp_path: Path) -> None:
    record = load_record(unbroken / "result.json")
    found = record.pretraining
    assert found is not None
    assert (found.objective, found.masked_share, found.steps) == ("masked", 0.1, 12)
    assert (record.steps, record.total_steps) == (32, 32)
    assert record.epochs == pytest.approx(20 / 13)
    assert found.epochs == pytest.approx(12 / 13)
    assert found.val_loss is not None and found.val_loss > 0
    assert record.train_seconds is not None and 0 < found.seconds < record.train_seconds
    assert record.best_step in (22, 32) and record.result.goal == "class"
    lines = [json.loads(text) for text in (unbroken / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "pretrain_val_loss" in line] == [12]
    assert [line["step"] for line in lines if "val_accuracy" in line] == [22, 32]
    assert found.flops_per_step and record.flops_per_step


def test_a_run_that_is_stopped_before_any_label_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_task.main(tiny_arguments(tmp_path, *PRETRAINED, "--max-steps", "7"))
    record = load_record(only_folder(tmp_path) / "result.json")
    assert (record.status, record.steps, record.epochs) == ("stopped", 7, 0)
    assert record.val_accuracy is None and record.best_step is None
    assert record.pretraining is not None and record.pretraining.val_loss is None
    assert "stopped by --max-steps at step 7 of 12" in capsys.readouterr().err
    loaded = lra.load(only_folder(tmp_path), data_dir=tmp_path / "data")
    with pytest.raises(UserError, match="stopped in its pretraining"):
        _ = loaded.model
