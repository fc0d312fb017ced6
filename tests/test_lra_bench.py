"""The benchmark's structure; times are never tested."""

from __future__ import annotations

from pathlib import Path

import pytest

from lra.bench import __main__ as bench
from lra.bench.decoding import spread


def test_decoding_is_tabulated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["decode", "--lengths", "32,64", "--dim", "4", "--repeats", "2"]
    arguments += ["--mixers", "s4d, tnn", "--out", str(tmp_path / "bench")]
    assert bench.main(arguments) == 0
    lines = capsys.readouterr().out.strip().splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    assert cells[0] == [
        "mixer", "numbers in the state", "position", "step, ms", "of the first row's",
        "all so far, ms",
    ]  # fmt: skip
    # s4d: 32 complex states a channel; tnn: 33 for each of its 12 inner channels.
    assert [row[:3] for row in cells[2:]] == [
        ["s4d", "256", "32"], ["s4d", "256", "64"], ["tnn", "792", "32"], ["tnn", "792", "64"],
    ]  # fmt: skip
    assert cells[2][4] == cells[4][4] == "1.00"


def test_quartiles_are_shown() -> None:
    assert spread([1.0]) == "1.000"
    assert spread([1.0, 2.0, 3.0, 4.0, 5.0]) == "3.000 (2.000 to 4.000)"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["decode", "--mixers", "ski-tnn"], "mixer ski-tnn: ski-tnn cannot be causal"),
        (["decode", "--mixers", "mean"], "--mixers mean: it has no recurrence"),
        (["decode", "--mixers", "tnnn"], "did you mean"),
        (["decode", "--mixers", ""], "an empty name"),
        (["decode", "--lengths", "a"], "--lengths a: expected whole numbers"),
        (["decode", "--lengths", "20,30"], "--lengths 20,30: expected steps of at least 16"),
        (["decode", "--device", "cuda:9"], "no device"),
        (["op", "--mixers", "tnn", "--parts", "kernl"], "has no such part to itself"),
        (["op", "--mixers", "tnn", "--set", "model.dim=4"], "does not concern a mixer"),
        (
            ["pretraining", "--mixers", "s4"],
            "--rpe-layers mixer.rpe_layers=1: unknown option of s4",
        ),
        (["pretraining", "--rpe-layers", "one"], "--rpe-layers one: expected whole numbers"),
        (["pretraining", "--rpe-layers", "1001"], "less than or equal to 1000"),
        (["pretraining", "--set", "mixer.rpe_layers=3"], "use --rpe-layers"),
        (["pretraining", "--set", "model.causal=false"], "positions would see it"),
        (
            ["pretraining", "--mixers", "s4"],
            "--rpe-layers mixer.rpe_layers=1: unknown option of s4",
        ),
        (["pretraining", "--rpe-layers", "one"], "--rpe-layers one: expected whole numbers"),
        (["pretraining", "--rpe-layers", "1001"], "less than or equal to 1000"),
        (["pretraining", "--set", "mixer.rpe_layers=3"], "use --rpe-layers"),
        (["pretraining", "--set", "model.causal=false"], "positions would see it"),
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
        (["pretraining", "--task", "text"], "--task"),
        (["step", "--rpe-layers", "3"], "--rpe-layers"),
        (["pretraining", "--task", "text"], "--task"),
        (["step", "--rpe-layers", "3"], "--rpe-layers"),
    ],
)
def test_a_command_has_only_the_flags_that_it_uses(
    arguments: list[str], flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        bench.main(arguments)
    error = capsys.readouterr().err
    assert f"unrecognized arguments: {flag}" in error
    assert len(error.strip().splitlines()) == 1
