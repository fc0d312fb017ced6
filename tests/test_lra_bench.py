"""The benchmark's structure; times are never tested."""

from __future__ import annotations

from pathlib import Path

import pytest

from lra.bench import __main__ as bench
from lra.bench.decoding import spread


def test_decoding_is_tabulated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--mode", "decode", "--lengths", "32,64", "--dim", "4", "--repeats", "2"]
    arguments += ["--mixers", "s4d, tnn", "--out", str(tmp_path / "bench")]
    assert bench.main(arguments) == 0
    lines = capsys.readouterr().out.strip().splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    assert cells[0] == ["mixer", "position", "step, ms", "of the first row's", "all so far, ms"]
    assert [row[:2] for row in cells[2:]] == [
        ["s4d", "32"], ["s4d", "64"], ["tnn", "32"], ["tnn", "64"],
    ]  # fmt: skip
    assert cells[2][3] == cells[4][3] == "1.00"


def test_quartiles_are_shown() -> None:
    assert spread([1.0]) == "1.000"
    assert spread([1.0, 2.0, 3.0, 4.0, 5.0]) == "3.000 (2.000 to 4.000)"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mixers", "ski-tnn"], "mixer ski-tnn: ski-tnn cannot be causal"),
        (["--mixers", "mean"], "--mixers mean: it has no recurrence"),
        (["--mixers", "tnnn"], "did you mean"),
        (["--lengths", "a"], "--lengths a: expected whole numbers"),
        (["--lengths", "20,30"], "--lengths 20,30: expected steps of at least 16"),
        (["--device", "cuda:9"], "no device"),
        (["--task", "text"], "--task has no effect with --mode decode"),
        (["--compare", "reference"], "--compare has no effect with --mode decode"),
        (["--mode", "op", "--protocol", "s4"], "--protocol has no effect with --mode op"),
        (["--mode", "step", "--dim", "8"], "--dim has no effect with --mode step"),
        (["--mode", "op", "--mixers", "tnn", "--parts", "kernl"], "has no such part to itself"),
        (["--mode", "op", "--mixers", "tnn", "--set", "model.dim=4"], "does not concern a mixer"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.main(["--mode", "decode", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1
