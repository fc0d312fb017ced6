"""What `lra.bench pretraining` trains: causal and bidirectional models; times are never tested."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
import torch

from lra.bench import __main__ as bench
from lra.bench.pretraining import PretrainingCase, pretraining_cases
from lra.bench.steps import FirstExamples, SyntheticSplit
from models.layers.relative_position_encoder import RelativePositionEncoder
from tasks.base import NOT_SCORED, TaskInfo

SMALL = ["--preset", "quick", "--lengths", "16", "--batch-size", "2"]
for setting in ("model.dim=8", "model.depth=1", "mixer.rpe_dim=4"):
    SMALL += ["--set", setting]
LENGTH = 16
MASK_TOKEN = 256
"""What stands for masked tokens: bytes are 0 to 255."""


def groups(*arguments: str) -> list[list[PretrainingCase]]:
    """The cases of a command, by the rounds that they share."""
    found = pretraining_cases(bench.parse_arguments(["pretraining", *SMALL, *arguments]))
    return [[case for case in cases if isinstance(case, PretrainingCase)] for cases in found]


def test_synthetic_positions_have_labels_of_their_own() -> None:
    info = TaskInfo(name="made", num_classes=7, max_length=5, vocab_size=9, targets="position")
    split = SyntheticSplit(info, 4)
    assert split.labels.shape == (20,)
    assert set(split.labels) <= set(range(7))
    labels = split.batch(np.array([2, 0])).labels
    assert labels.tolist() == [*split.labels[10:15], *split.labels[:5]]
    first = FirstExamples(split, 3)
    assert len(first) == 3
    assert first.labels.tolist() == split.labels[:15].tolist()
    alone = SyntheticSplit(dataclasses.replace(info, targets="example"), 4)
    assert FirstExamples(alone, 3).labels.tolist() == alone.labels[:3].tolist()
    assert alone.batch(np.array([2, 0])).labels.tolist() == [alone.labels[2], alone.labels[0]]


def test_the_cases_of_one_length_share_their_rounds() -> None:
    short, long = groups("--rpe-layers", "2,1", "--lengths", "32,16")
    assert {case.length for case in short} == {16}
    assert {case.length for case in long} == {32}
    found = [(case.objective, case.rpe_layers, case.mixer) for case in short]
    expected = itertools.product(("next", "masked"), (1, 2), ("tnn", "fd-tnn"))
    assert found == list(expected)
    assert all(case.rounds_rpe_layers == (1, 2) for case in short)


@pytest.mark.parametrize("mixer", ["tnn", "fd-tnn"])
def test_the_encoder_of_positions_has_the_layers_asked_for(mixer: str) -> None:
    (cases,) = groups("--mixers", mixer, "--rpe-layers", "1,4")
    for case in cases:
        model = case.trainer().model
        (encoder,) = (m for m in model.modules() if isinstance(m, RelativePositionEncoder))
        squares = [p for p in encoder.parameters() if p.shape == (4, 4)]
        assert len(squares) == case.rpe_layers
        assert case.config().train.batch_size == 2


@pytest.mark.parametrize("tied", ["true", "false"])
@pytest.mark.parametrize("mixer", ["tnn", "fd-tnn"])
def test_a_causal_model_learns_next_tokens_a_bidirectional_one_masked_tokens(
    mixer: str, tied: str
) -> None:
    (cases,) = groups(
        "--mixers", mixer, "--rpe-layers", "2", "--set", f"model.tied_embeddings={tied}"
    )
    assert [case.objective for case in cases] == ["next", "masked"]
    for case in cases:
        trainer = case.trainer()
        batch = trainer.dataset.splits["train"].batch(np.arange(2))
        hidden, last = batch.inputs == MASK_TOKEN, torch.arange(32) % LENGTH == LENGTH - 1
        if case.objective == "next":
            assert not hidden.any()
            assert batch.labels[last].tolist() == [NOT_SCORED] * 2
            assert torch.equal(batch.labels[~last], batch.inputs.roll(-1)[~last])
        else:
            assert 2 <= hidden.sum() < LENGTH
            assert torch.equal(batch.labels != NOT_SCORED, hidden)
        later = batch.inputs.clone()
        later[LENGTH - 1] = (later[LENGTH - 1] + 1) % MASK_TOKEN
        with torch.no_grad():
            before, after = (trainer.model(x, batch.lengths) for x in (batch.inputs, later))
        change = (before - after)[: LENGTH - 1].abs().max()
        assert (change < 1e-6) == (case.objective == "next")
        trainer.train_step()
        assert trainer.interval.means()["loss"] > 1
