"""Nonsense on command lines and in settings: one line, the documented exit code, nothing done."""

from __future__ import annotations

import pytest

from attack import Place
from conftest import tiny_arguments

RUN = ["--task", "listops", "--mixer", "tnn", "--preset", "quick", "--device", "cpu"]
LONG = "9" * 5000
CONTROL = "\x1b[2J\x07\u202e"

FLAGS = {
    "run_task": [
        [], ["--task"], ["--task", ""], [*RUN, "--task", "nowhere"], [*RUN, "--task", CONTROL],
        [*RUN, "--mixer", ""], [*RUN, "--mixer", ":"], [*RUN, "--mixer", "x" * 20_000],
        [*RUN, "--mixer", "a.py:B:C"], [*RUN, "--mixer", "/dev/zero:A"], [*RUN, "--mixer", CONTROL],
        [*RUN, "--mixer", "no\udcffname.py:A"], [*RUN, "--seed", "-1"], [*RUN, "--seed", LONG],
        [*RUN, "--seed", "1.5"], [*RUN, "--seed", "9223372036854775808"], [*RUN, "--device", "tpu"],
        [*RUN, "--device", "cuda:99"], [*RUN, "--device", CONTROL], [*RUN, "--max-steps", "0"],
        [*RUN, "--max-steps", LONG], [*RUN, "--max-minutes", "nan"], [*RUN, "--max-minutes", "inf"],
        [*RUN, "--max-minutes", "-1"], [*RUN, "--stop-with", "0"], [*RUN, "--resume", "always"],
        [*RUN, "--precision", "bf16\n"], [*RUN, "--precision", "fp8"], [*RUN, "--precision", ""],
        [*RUN, "--match-params", "nobody"], [*RUN, "--protocol", "../s4"], [*RUN, "--preset", LONG],
        [*RUN, "--what"], [*RUN, "stray"],
    ],
    "report": [
        ["--results-dir", "nowhere"], ["--format", "pdf"], ["--format", ""], ["--preset", "x"],
        ["--compare", CONTROL], ["--relative-to", "nobody"], ["--published", "nobody"],
        ["--results-dir", "/dev/null"], ["--out"], ["--rows", "tnn"], ["--paper", "--check"],
        ["--paper", "--rows", CONTROL], ["--paper", "--columns", ""], ["--paper", "--width", "nan"],
        ["--paper", "--precision", LONG],
    ],
    "lra.record.__main__": [
        [], ["destroy"], ["validate", "--results-dir", "nowhere"], ["merge"], ["merge", "nowhere"],
        ["export", "--csv", ""], ["export", "--csv", "."], ["export", "--csv", "/"],
        ["list", "--results-dir", "/dev/null"], ["merge", "/dev/null"],
    ],
    "lra.sweep.__main__": [
        ["--dry-run", "--mixers", ""], ["--dry-run", "--tasks", ","], ["--dry-run", "--seeds", ""],
        ["--dry-run", "--seeds", "99999999999999999999"], ["--dry-run", "--seeds", LONG],
        ["--dry-run", "--seeds", "-1"], ["--dry-run", "--seeds", "0;1"],
        ["--dry-run", "--grid", "train.lr"], ["--dry-run", "--grid", "=1,2"],
        ["--dry-run", "--grid", "train.lr=1,,2"], ["--dry-run", "--per-device", "0"],
        ["--dry-run", "--minutes-per-run", "nan"], ["--dry-run", "--launcher", "cloud"],
        ["--dry-run", "--device", "tpu"], ["--dry-run", "--grid", "train.lr=[1,2"],
    ],
    "lra.evaluate.__main__": [
        [], ["--run", "nowhere"], ["--run", "nowhere", "--lengths", "x"],
        ["--run", "/dev/null", "--lengths", "200"], ["--run", ".", "--vary", "task.max_depth"],
        ["--run", ".", "--lengths", "0"], ["--run", ".", "--lengths", LONG],
        ["--run", ".", "--lengths", "200", "--examples", "0"],
    ],
    "lra.generate.__main__": [
        [], ["--run", "nowhere"], ["--run", "nowhere", "--prompt", "a"],
        ["--run", "/dev/null", "--prompt", "a"], ["--run", ".", "--prompt", CONTROL],
        ["--run", ".", "--prompt", "a", "--tokens", "0"],
        ["--run", ".", "--prompt", "a", "--tokens", LONG],
        ["--run", ".", "--prompt", "a", "--tokens", "1048577"],
        ["--run", ".", "--prompt", "a", "--temperature", "-1"],
        ["--run", ".", "--prompt", "a", "--temperature", "nan"],
        ["--run", ".", "--prompt", "a", "--seed", "-1"],
        ["--run", ".", "--prompt", "a", "--device", "tpu"],
    ],
    "lra.prepare": [
        [], ["--task", "nowhere"], ["--task", "listops", "--source", "internet"],
        ["--task", "listops", "--examples", "2"], ["--task", "listops", "--examples", LONG],
        ["--task", "image", "--examples", "3", "--source", "official"],
        ["--task", "listops", "--set", "model.dim=3"], ["--task", "text", "--source", "official"],
        ["--task", "retrieval"], ["--task", "listops", "--preset", "quick", "--source", "auto\n"],
    ],
    "lra.bench.__main__": [
        ["destroy"], ["op", "--mixers", ""], ["op", "--mixers", "nobody"],
        ["op", "--lengths", "0"], ["op", "--lengths", LONG], ["step", "--device", "tpu"],
        ["step", "--vary", "mixer.rpe_layers"], ["step", "--vary", "mixer.rpe_layers=-1"],
    ],
}  # fmt: skip

VALUES = [
    "[" * 500, "{a: " * 500, '"\\UFFFFFFFF"', '"\\uD800"', "&a [*a]", "&a 1", "*a",
    "{a: &x [1,1,1,1,1,1,1,1], b: [*x,*x,*x,*x]}",
    "!!python/object/apply:os.system [touch ../executed]", "!!python/name:os.system",
    "!!binary aGk=", "!!set {a, b}", "!!timestamp 2001-01-01", "<<: 1", "0x10", "1e999", "-1e999",
    ".nan", ".inf", LONG, "1_0", "yes", "null", "~", "''", '"\\0"', "\x00", "\x1b", "[1, 2", "}",
    "@", "`", "%YAML 9.9", "--- 1\n--- 2", "? a", "a: b: c", "-", "-1", "1.5", "true", "[]", "{}",
    "é" * 3000,
]  # fmt: skip

SETTINGS = [
    "", "=", "=1", "train", "train=1", "train.=1", ".lr=1", "train.lr", "nowhere.lr=1",
    "train.lr.more=1", "train.lrr=1", "task.source.x=1", "mixer.\x1b=1", "log.=",
    "train.steps=10;train.lr=1", "../train.lr=1", "train.lr=1=2", f"train.{LONG}=1",
]  # fmt: skip

CASES = [(name, arguments) for name, each in FLAGS.items() for arguments in each]


@pytest.mark.parametrize(("command", "arguments"), CASES, ids=lambda value: str(value)[:60])
def test_flags(place: Place, command: str, arguments: list[str]) -> None:
    place.attack(command, arguments)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:40])
def test_values_of_settings(place: Place, value: str) -> None:
    code = 0 if value in {"&a 1", "1_0", "1.5"} else 2
    place.attack("run_task", [*RUN, "--set", f"train.lr={value}", "--show-config"], {code})


@pytest.mark.parametrize(
    "value", ["0x10", "1e999", ".nan", LONG, "1_0", "yes", "null", "''", "-1", "1.5", "[]", "{}"]
)
def test_values_of_options_of_tasks(place: Place, value: str) -> None:
    place.attack("run_task", [*RUN, "--set", f"task.max_length={value}", "--show-config"])


@pytest.mark.parametrize("text", SETTINGS, ids=lambda value: repr(value)[:40])
def test_names_of_settings(place: Place, text: str) -> None:
    place.attack("run_task", [*RUN, "--set", text, "--show-config"])


@pytest.mark.parametrize(
    "text",
    [
        "model.dropout=0.9999999999", "model.dropout=0.99999", "train.batch_size=1",
        "train.clip_norm=1e-30", "train.lr=1e30", "train.weight_decay=1e30",
        "train.warmup_steps=20",
        "model.dim=1", "train.evaluate_every=1", "log.every_steps=1000000000000",
    ],
)  # fmt: skip
def test_extreme_settings_that_are_allowed(place: Place, text: str) -> None:
    arguments = tiny_arguments(place.folder, "--set", "train.steps=3", "--set", text)
    place.attack("run_task", arguments, {0, 2, 4})
