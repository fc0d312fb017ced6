"""The benchmark's structure; times are never tested."""

from __future__ import annotations

import dataclasses
import itertools
import re
from pathlib import Path

import numpy as np
import pytest

from lra.bench import __main__ as bench
from lra.bench.decoding import spread
from lra.bench.steps import FirstExamples, SyntheticSplit
from run_checks import next_command
from tasks.base import TaskInfo


def test_decoding_is_tabulated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["decode", "--lengths", "32,64", "--dim", "4", "--repeats", "2"]
    results = tmp_path / "my results"
    arguments += ["--mixers", "s4d, tnn", "--out", str(results / "bench")]
    assert bench.main(arguments) == 0
    shown = capsys.readouterr().out
    lines = shown.splitlines()
    start = lines.index("") + 1
    cells = [re.split(r"  +", line) for line in lines[start : start + 5]]
    assert cells[0] == ["mixer", "position", "step, ms", "ratio", "full pass, ms"]
    assert [row[:2] for row in cells[1:]] == [
        ["s4d", "32"], ["s4d", "64"], ["tnn", "32"], ["tnn", "64"],
    ]  # fmt: skip
    assert cells[1][3] == cells[3][3] == "1.00"
    # s4d: 32 complex states a channel; tnn: 33 for each of its 12 inner channels.
    assert "Real numbers in the state of one sequence: s4d 256, tnn 792." in shown
    assert max(map(len, shown.partition("records in")[0].splitlines())) <= 80
    assert next_command(shown) == ["python", "report.py", "--results-dir", str(results)]


def test_quartiles_are_shown() -> None:
    assert spread([1.0]) == "1.000"
    assert spread([1.0, 2.0, 3.0, 4.0, 5.0]) == "3.000 (2.000 to 4.000)"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["decode", "--mixers", "ski-tnn"], "mixer ski-tnn: ski-tnn cannot be causal"),
        (["decode", "--mixers", "mean"], "--mixers mean: it has no recurrence, which decoding"),
        (["decode", "--mixers", "tnnn"], "did you mean"),
        (["decode", "--mixers", ""], "an empty name"),
        (["decode", "--lengths", "a"], "--lengths a: expected whole numbers"),
        (
            ["decode", "--lengths", "20,30"],
            "--lengths 20,30: expected lengths that are at least 16",
        ),
        (["decode", "--device", "cuda:9"], "no device"),
        (["op", "--mixers", "tnn", "--parts", "kernl"], "has no such part to itself"),
        (["op", "--mixers", "tnn", "--set", "model.dim=4"], "has no effect on a mixer"),
        (
            ["step", "--mixers", "s4", "--vary", "mixer.rpe_layers=1"],
            "--vary mixer.rpe_layers=1: unknown option of s4",
        ),
        (["step", "--vary", "mixer.rpe_layers"], "expected section.key=value,value"),
        (["step", "--vary", "mixer.rpe_layers=1,,2"], "an empty value"),
        (["step", "--mixers", "tnn", "--vary", "mixer.rpe_layers=1001"], "equal to 1000"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "flag"),
    [
        (["decode", "--task", "text"], "--task"),
        (["decode", "--compare", "reference"], "--compare"),
        (["op", "--protocol", "s4"], "--protocol"),
        (["step", "--dim", "8"], "--dim"),
        (["forward", "--parts", "kernel"], "--parts"),
        (["op", "--vary", "mixer.decay=0.9"], "--vary"),
    ],
)
def test_a_command_has_only_the_flags_that_it_uses(
    arguments: list[str], flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        bench.main(arguments)
    error = capsys.readouterr().err
    assert f"unknown flag {flag}" in error
    assert len(error.strip().splitlines()) == 1


def test_all_values_of_a_setting_share_the_rounds_of_a_length() -> None:
    arguments = ["step", "--preset", "quick", "--mixers", "tnn,fd-tnn", "--lengths", "32,16"]
    arguments += ["--batch-size", "2", "--set", "mixer.rpe_dim=4"]
    arguments += ["--vary", "mixer.rpe_layers=2,1", "--vary", "model.dim=8"]
    short, long = bench.list_classifiers(bench.parse_arguments(arguments))
    assert [{case.length for case in cases} for cases in (short, long)] == [{16}, {32}]
    found = [(case.config().mixer.model_dump()["rpe_layers"], case.mixer) for case in short]
    assert found == list(itertools.product((2, 1), ("tnn", "fd-tnn")))
    for case in short:
        settings = case.settings()
        layers = case.config().mixer.model_dump()["rpe_layers"]
        assert settings["varied"] == {"mixer.rpe_layers": [2, 1], "model.dim": [8]}
        expected = {"mixer.rpe_dim": 4, "mixer.rpe_layers": layers, "model.dim": 8}
        assert settings["changes"] == expected


def test_a_varied_setting_wins_over_flags() -> None:
    arguments = ["step", "--preset", "quick", "--mixers", "mean", "--lengths", "16"]
    arguments += ["--batch-size", "8", "--vary", "train.batch_size=2,4"]
    (cases,) = bench.list_classifiers(bench.parse_arguments(arguments))
    assert [case.settings()["batch_size"] for case in cases] == [2, 4]


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
