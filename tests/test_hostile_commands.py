"""Nonsense on command lines and in settings: one line, the documented exit code, nothing done."""

import pytest

from attack import Place
from conftest import tiny_arguments

RUN = ["--task", "listops", "--mixer", "tnn", "--preset", "quick", "--device", "cpu"]
LONG = "9" * 5000
CONTROL = "\x1b[2J\x07\u202e"

FLAGS = {
    "lra.run_task": [
        [*RUN, "--task", CONTROL], [*RUN, "--mixer", "x" * 20_000],
        [*RUN, "--mixer", "/dev/zero:A"], [*RUN, "--mixer", "no\udcffname.py:A"],
        [*RUN, "--seed", LONG], [*RUN, "--max-minutes", "nan"],
    ],
    "lra.report.__main__": [["--results-dir", "/dev/null"], ["--paper", "--columns", ""]],
    "lra.record.__main__": [["merge", "/dev/null"], ["export", "--csv", "/"]],
    "lra.sweep.__main__": [
        ["--dry-run", "--mixers", ""], ["--dry-run", "--grid", "train.lr=[1,2"],
        ["--dry-run", "--per-device", str(2**31)], ["--dry-run", "--gpus-per-run", str(2**31)],
    ],
    "lra.evaluate": [["--run", "/dev/null", "--lengths", "200"]],
    "lra.generate": [["--run", ".", "--prompt", CONTROL]],
    "lra.prepare": [["--task", LONG], ["--task", "retrieval"]],
    "lra.bench.__main__": [["op", "--lengths", LONG], ["step", "--vary", "mixer.rpe_layers=-1"]],
}  # fmt: skip
CASES = [(name, arguments) for name, each in FLAGS.items() for arguments in each]

SETTINGS = [
    "", "train.=1", "mixer.\x1b=1", f"train.{LONG}=1", "train.lr=" + "[" * 99_999 + "]" * 99_999,
    'train.lr="\\uD800"', "train.lr={a: &x [1,1,1,1], b: [*x,*x,*x,*x]}",
    "train.lr=!!python/object/apply:os.system [touch ../executed]", "train.lr=.nan",
    "train.lr=--- 1\n--- 2", "task.max_length=1e999",
]  # fmt: skip


@pytest.mark.parametrize(("command", "arguments"), CASES, ids=lambda value: str(value)[:60])
def test_flags(place: Place, command: str, arguments: list[str]) -> None:
    place.attack(command, arguments)


@pytest.mark.parametrize("text", SETTINGS, ids=lambda value: repr(value)[:40])
def test_settings(place: Place, text: str) -> None:
    place.attack("lra.run_task", [*RUN, "--set", text, "--show-config"])


@pytest.mark.thorough
@pytest.mark.parametrize("text", ["train.lr=1e30", "train.clip_norm=1e-30", "model.dim=1"])
def test_extreme_settings_that_are_allowed(place: Place, text: str) -> None:
    arguments = tiny_arguments(place.folder, "--set", "train.steps=3", "--set", text)
    place.attack("lra.run_task", arguments, {0, 2, 4})
