"""Tasks of a user's own that misbehave: their faults are theirs, in one line with the place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from attack import Place
from lra.report.data import Data
from lra.runtime.cli import INTERRUPTED

DEATHS = {
    "exit 0": "sys.exit(0)",
    "exit text": "sys.exit('bye')",
    "generator exit": "raise GeneratorExit",
    "own": "raise type('Own', (BaseException,), {})('x')",
    "mute": "raise type('M', (Exception,), {'__str__': lambda s: 1 / 0})()",
    "stop": "raise StopIteration",
    "recursion": "f = lambda: f()\nf()",
    "newlines": "raise ValueError('a\\n\\nb\\r\\x1b[2J')",
    "long": "raise ValueError('x' * 100_000)",
    "os": "open('/nowhere/at/all')",
    "key": "raise KeyError('broken')",
}

RETURNS = {
    "itself": "a = []; a.append(a); return a, [0]",
    "deep": "a = [1]\nfor _ in range(100): a = [a]\nreturn [a], [0]",
    "objects": "return [[object()]], [0]",
    "bytes": "return [b'abc', b'd'], [0, 1]",
    "huge numbers": "return [[10**30], [1]], [0, 1]",
    "huge tokens": "return [[2**40], [1]], [0, 1]",
    "complex": "return [[1j], [2j]], [0, 1]",
    "three axes": "return numpy.zeros((9, 2, 2, 2)), [0, 1, 0, 1, 0, 1, 0, 1, 1]",
    "ragged": "return [[1, [2, 3]], [1]], [0, 1]",
    "half": "return [[1], [2]], [0]",
    "label text": "return [[1], [2]], ['a', 'b']",
    "label none": "return [[1], [2]], [None, 1]",
    "label huge": "return [[1], [2]], [0, 10**6]",
    "label list": "return [[1], [2]], [[0], [1]]",
    "generator": "return (x for x in [[1]]), [0]",
    "mask": "return numpy.ma.masked_array([[1, 2]], [[1, 0]]), [0]",
    "lies": "return type('L', (list,), {'__len__': lambda s: 10**9})([[1], [2]]), [0, 1]",
    "array dies": "return [type('A', (), {'__array__': lambda *a, **k: 1 / 0})()], [0]",
    "metadata list": "return s, s[:, 0], [1]",
    "metadata newline": "return s, s[:, 0], {'a\\nb': s[:, 1]}",
    "metadata words": "return s, s[:, 0], {'a': ['\\x1b[2J'] * 30}",
    "metadata long": "return s, s[:, 0], {'a': ['x' * 10_000] * 30}",
    "metadata number": "return s, s[:, 0], {1: s[:, 1]}",
    "metadata split": "return s, s[:, 0], ({'a': s[:, 1]} if split == 'test' else {})",
    "kind of split": "return (s if split == 'test' else s * .5), s[:, 0]",
    "rng kept": "self.rng = getattr(self, 'rng', rng); s = self.rng.integers(0, 2, (30, 5)); "
    "return s, s[:, 0]",
}
"""Bodies of `examples` that return what is no set of examples."""


def task(
    body: str = "return s, s[:, 0]", *, init: str = "pass", start: str = "", head: str = ""
) -> str:
    """Write a task with lines of code here or there."""

    def indented(text: str) -> str:
        return "\n".join(f"        {line}" for line in text.splitlines())

    return (
        f"import os, sys\nimport numpy\n{start}\n\nclass Own:\n    {head}\n"
        f"    def __init__(self):\n{indented(init)}\n"
        f"    def examples(self, split, rng):\n"
        f"        s = rng.integers(0, 2, (30, 5))\n{indented(body)}\n"
    )


def attack(place: Place, source: str, codes: set[int]) -> None:
    (place.folder / "own.py").write_text(source)
    arguments = ["--task", "own.py:Own", "--mixer", "mean", "--preset", "quick", "--device", "cpu"]
    place.attack("run_task", [*arguments, "--set", "train.steps=2"], codes)
    assert codes == {0} or not list(place.folder.rglob("result.json"))


def test_a_sound_one_runs(place: Place) -> None:
    attack(place, task(), {0})


@pytest.mark.parametrize("death", DEATHS)
@pytest.mark.parametrize("where", ["start", "init", "body"])
def test_deaths(place: Place, where: str, death: str) -> None:
    attack(place, task(**{where: DEATHS[death]}), {2})


@pytest.mark.parametrize("death", ["exit 0", "mute", "os"])
def test_deaths_when_asked_what_they_are(place: Place, death: str) -> None:
    dying = DEATHS[death].replace("raise ", "(_ for _ in ()).throw(").replace("M', (", "M', (")
    body = dying if not dying.startswith("(_") else f"{dying})"
    attack(place, task(head=f"num_classes = property(lambda s: {body})"), {2})


@pytest.mark.parametrize("returned", RETURNS)
def test_what_is_no_set_of_examples(place: Place, returned: str) -> None:
    attack(place, task(RETURNS[returned]), {2})


@pytest.mark.parametrize("value", ["'2'", "-1", "[2]", "2.0", "10**30", "float('nan')", "object()"])
@pytest.mark.parametrize("name", ["num_classes", "max_length", "vocab_size", "towers", "grid"])
def test_what_is_stated_wrongly(place: Place, name: str, value: str) -> None:
    attack(place, task(head=f"{name} = {value}"), {2})


@pytest.mark.parametrize("value", ["[1, 2]", "{a: 1}", "x", "1e999"])
@pytest.mark.parametrize("kind", ["set[int]", "bytes", "complex", "dict"])
def test_values_of_options(place: Place, kind: str, value: str) -> None:
    source = task().replace("def __init__(self)", f"def __init__(self, *, a: {kind} = None)")
    (place.folder / "own.py").write_text(source)
    arguments = ["--task", "own.py:Own", "--mixer", "mean", "--preset", "quick", "--show-config"]
    place.attack("run_task", [*arguments, "--set", f"task.a={value}"], {0, 2})


@pytest.mark.parametrize("command", ["lra.sweep.__main__", "lra.prepare", "lra.check.__main__"])
@pytest.mark.parametrize("death", ["exit 0", "mute", "newlines"])
def test_deaths_in_other_commands(place: Place, command: str, death: str) -> None:
    (place.folder / "own.py").write_text(task(DEATHS[death]))
    arguments = {
        "lra.sweep.__main__": ["--tasks", "own.py:Own", "--mixers", "mean", "--dry-run"],
        "lra.prepare": ["--task", "own.py:Own"],
        "lra.check.__main__": ["own.py:Own"],
    }[command]
    place.attack(command, arguments, {1} if "check" in command else {2})


def test_formulas_in_metadata_are_text_in_every_csv(place: Place) -> None:
    words = "['@SUM(1)', '-'] * 15"
    attack(place, task(f"return s, s[:, 0], {{'=cmd()': s[:, 1], 'word': {words}}}"), {0})
    (path,) = place.folder.rglob("predictions.csv")
    first, second, *_ = path.read_text().splitlines()
    assert first == "label,prediction,length,'=cmd(),word"
    assert second.endswith(",'@SUM(1)")
    ended = place.attack("report", ["--format", "csv"], {0})
    assert "left out" not in ended.err
    tables = [path.read_text() for path in place.folder.glob("results/report/*.csv")]
    cells = re.split(r"[,\n]", "\n".join(tables))
    assert len(tables) > 1
    assert not [cell for cell in cells if cell.strip('"')[:1] in {"=", "@"}]
    data = Data(place.folder / "results")
    (run,) = data.records
    found = data.predictions(run)
    assert found is not None
    assert list(found.metadata) == ["length", "=cmd()", "word"]
    assert set(found.metadata["word"]) == {"@SUM(1)", "-"}


@pytest.mark.parametrize("where", ["start", "init", "body"])
def test_another_working_directory_moves_nothing(place: Place, where: str) -> None:
    change = f"os.chdir({str(place.outside)!r})"
    attack(
        place, task(**{where: f"{change}\nreturn s, s[:, 0]" if where == "body" else change}), {0}
    )
    assert list(place.folder.glob("results/runs/Own/mean/*/result.json"))
    place.attack("lra.prepare", ["--task", "own.py:Own"], {0}, says="data in data/")
    place.attack("lra.check.__main__", ["own.py:Own"], {0, 1})
    assert not list(place.outside.glob("*/"))


def test_interruptions_stay_the_users(place: Place) -> None:
    attack(place, task("raise KeyboardInterrupt"), {INTERRUPTED})


def test_code_that_a_record_names_is_not_run(place: Place) -> None:
    attack(place, task(), {0})
    (run,) = Path(place.folder).glob("results/runs/Own/mean/*")
    (place.folder / "own.py").write_text(f"open({str(place.canary)!r}, 'w')\n{task()}")
    place.attack(
        "lra.evaluate.__main__", ["--run", str(run), "--lengths", "9"], says="--trust-code"
    )
    place.attack("report", ["--format", "csv"], {0})
