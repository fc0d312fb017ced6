"""Mixers of a user's own that misbehave: their faults are theirs, in one line with the place."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from attack import Place
from conftest import tiny_arguments
from lra.runtime.cli import INTERRUPTED

START = """
import os, sys, threading
import torch
from torch import nn
torch.manual_seed(0)
"""


def plug_in(
    forward: str = "return x * self.scale",
    *,
    before: str = "",
    after: str = "",
    options: str = "",
    methods: str = "",
) -> str:
    """Write a mixer with lines of code here or there."""

    def indented(text: str) -> str:
        return "\n".join(f"        {line}" for line in (text or "pass").splitlines())

    return (
        f"{START}{after}\n"
        f"class Own(nn.Module):\n    def __init__(self, context{options}):\n"
        f"        super().__init__()\n        self.calls = 0\n"
        f"        self.scale = nn.Parameter(torch.ones(context.dim))\n{indented(before)}\n"
        f"    def forward(self, x, mask=None):\n        self.calls += self.training\n"
        f"{indented(forward)}\n{methods}\n"
    )


LATE = "if self.calls > 12:\n    {}\nreturn x * self.scale"
"""Something that happens in training, but not yet when a plug-in is tried."""

EVALUATED = "if not self.training and self.calls > 12:\n    {}\nreturn x * self.scale"
DEATHS = {
    "exit": "sys.exit(0)",
    "recursion": "return self.forward(x, mask)",
    "newlines": "raise ValueError('a\\n\\nb\\r\\x1b[2J' + 'x' * 100_000)",
}


def attack(place: Place, source: str, codes: set[int], *more: str) -> Path:
    (place.folder / "own.py").write_text(source)
    arguments = tiny_arguments(Path(), "--set", "task.train=64", *more, mixer="own.py:Own")
    place.attack("lra.run_task", arguments, codes)
    return place.folder / "results"


@pytest.mark.parametrize("death", DEATHS)
def test_deaths_at_each_time(place: Place, death: str) -> None:
    """At import, in the constructor, in the trial, in training and in evaluation."""
    line = DEATHS[death]
    later = line.replace("return self.forward(x, mask)", "f = lambda: f()\nf()")
    for source in (
        plug_in(after=later),
        plug_in(before=line.replace("return ", "self.__init__(context); ")),
        plug_in(line),
        plug_in(LATE.format(line)),
        plug_in(EVALUATED.format(line)),
    ):
        results = attack(place, source, {2})
        assert not list(results.rglob("result.json"))


HOOK = "x = x * self.scale\nx.register_hook(lambda g: {})\nreturn x"
HABITS: Mapping[str, str] = {
    "hint that exits": plug_in(options=", a: 'sys.exit(9)' = 1"),
    "metaclass that hides": f"{START}class M(type(nn.Module)):\n    def __getattribute__(s, n):\n"
    "        sys.exit(7)\nclass Own(nn.Module, metaclass=M):\n    pass\n",
    "hook exits": plug_in(HOOK.format("sys.exit(0)")),
    "leak in training": plug_in("return x + x.sum(1, keepdim=True) * self.training"),
    "state of text": plug_in(
        methods="    def get_extra_state(self):\n        return {1, 2}\n"
        "    def set_extra_state(self, s):\n        pass\n"
    ),
    "NUL": "\0",
    "deleted": plug_in(after="import os\nos.unlink('own.py')"),
    "none later": plug_in(LATE.format("return None")),
}


FAULTS = {"leak in training", "state of text", "hook exits", "none later"}
"""Habits that no run may be made with."""


@pytest.mark.parametrize("habit", HABITS)
def test_habits(place: Place, habit: str) -> None:
    attack(place, HABITS[habit], {2} if habit in FAULTS else {0, 2, 4, 5})


def test_another_working_directory_moves_nothing(place: Place) -> None:
    """What a command reads and writes is where it was when the command began."""
    change = f"os.chdir({str(place.outside)!r})"
    source = plug_in(f"{change}\nreturn x * self.scale", after=change)
    (place.folder / "own.py").write_text(source)
    arguments = tiny_arguments(Path(), mixer="own.py:Own")
    ended = place.attack("lra.run_task", arguments, {0}, says="saved in results/runs/listops/Own/")
    assert "examples, generated, in data/" in ended.err
    (run,) = (place.folder / "results/runs/listops/Own").glob("*")
    assert (run / "result.json").exists()
    relative = str(run.relative_to(place.folder))
    evaluated = ["--run", relative, "--lengths", "90", "--examples", "20", "--device", "cpu"]
    place.attack("lra.evaluate", evaluated, {0}, says=f"record: {relative}/evaluation-")
    assert list(run.glob("evaluation-*.json"))
    swept = ["--tasks", "listops", "--mixers", "own.py:Own", "--preset", "quick", "--dry-run"]
    place.attack("lra.sweep.__main__", swept, {0})
    assert not list(place.outside.glob("*/"))


def test_deaths_in_other_commands(place: Place) -> None:
    (place.folder / "own.py").write_text(plug_in(DEATHS["newlines"]))
    sweep = ["--tasks", "listops", "--preset", "quick", "--dry-run"]
    bench = ["op", "--lengths", "64", "--repeats", "1"]
    for command, arguments in (("lra.sweep.__main__", sweep), ("lra.bench.__main__", bench)):
        place.attack(command, [*arguments, "--mixers", "own.py:Own", "--device", "cpu"], {2})


def test_deaths_when_evaluated_again(place: Place) -> None:
    source = plug_in(f"if os.path.exists('later'):\n    {DEATHS['exit']}\nreturn x * self.scale")
    results = attack(place, source, {0})
    (run,) = (results / "runs/listops").glob("*/*")
    (place.folder / "later").touch()
    place.attack("lra.evaluate", ["--run", str(run), "--lengths", "90"], {2})
    place.attack("lra.report.__main__", ["--format", "csv"], {0})


def test_interruptions_stay_the_users(place: Place) -> None:
    (place.folder / "own.py").write_text(plug_in("raise KeyboardInterrupt"))
    place.attack("lra.run_task", tiny_arguments(Path(), mixer="own.py:Own"), {INTERRUPTED})
