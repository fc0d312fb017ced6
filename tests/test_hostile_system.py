"""Machines that do not play along: full disks, read-only folders, interruptions, kills."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from attack import DOCUMENTED, Place
from conftest import ROOT, tiny_arguments
from lra.record.run import load_record
from lra.runtime.cli import INTERRUPTED
from run_checks import assert_same_run

KIB = 1024
DROPOUT = ["--set", "model.dropout=0.2", "--set", "train.steps=60", "--set", "log.every_steps=2"]
OFTEN = ["--set", "log.checkpoint_minutes=1e-4"]
LISTOPS = [
    "--task", "listops", "--data-dir", "data", "--set", "task.train=3000", "--set", "task.val=50",
    "--set", "task.test=50", "--set", "task.max_length=128", "--set", "task.min_length=16",
]  # fmt: skip
PATHFINDER = ["--task", "pathfinder", "--data-dir", "data", "--set", "task.examples=400"]
EVALUATE = ["--lengths", "70,90", "--examples", "50", "--device", "cpu"]


# Full disks


@pytest.fixture
def small_disk(place: Place) -> Iterator[Callable[[int], Path]]:
    """Mount a small disk; skip the test where that is not allowed."""
    disk = place.folder / "disk"

    def mount(kib: int) -> Path:
        disk.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(disk)]
        if shutil.which("mount") is None or subprocess.run(command, check=False).returncode:
            pytest.skip("a small disk cannot be mounted here")
        return disk

    yield mount
    subprocess.run(["umount", str(disk)], check=False, capture_output=True)


@pytest.mark.parametrize("kib", [64, 1000])
def test_a_full_disk_while_pathfinder_is_drawn(
    place: Place, small_disk: Callable[[int], Path], kib: int
) -> None:
    small_disk(kib)
    arguments = [*PATHFINDER[:2], "--data-dir", "disk", "--set", "task.examples=2000"]
    ended = place.attack("lra.prepare", arguments)
    assert ".npy: No space left on device" in ended.err


@pytest.mark.parametrize("kib", [40, 200])
def test_a_full_disk_in_training(place: Place, small_disk: Callable[[int], Path], kib: int) -> None:
    """What is saved before the disk is full is there, and the run goes on from it."""
    small_disk(kib)
    arguments = tiny_arguments(Path(), *DROPOUT, *OFTEN)
    arguments[arguments.index("--results-dir") + 1] = "disk/results"
    ended = place.attack("run_task", arguments)
    assert "No space left on device" in ended.err
    assert "disk/" in ended.err.splitlines()[-1]
    shutil.copytree(place.folder / "disk/results", place.folder / "larger")
    arguments[arguments.index("disk/results")] = "larger"
    place.attack("run_task", arguments, {0})


@pytest.mark.parametrize("most", [100, 20_000])
@pytest.mark.parametrize("what", ["listops", "pathfinder", "run_task", "report"])
def test_files_that_must_not_be_large(place: Place, what: str, most: int) -> None:
    if what == "run_task":
        place.attack("run_task", tiny_arguments(Path(), mixer="mean"), {0})
        place.attack("run_task", tiny_arguments(Path()), {0, 2}, largest_file=most)
    elif what == "report":
        place.attack("run_task", tiny_arguments(Path(), mixer="mean"), {0})
        place.attack("report", [], {0, 2}, largest_file=most)
    else:
        place.attack(
            "lra.prepare", LISTOPS if what == "listops" else PATHFINDER, {2}, largest_file=most
        )


# Folders that cannot be written


@pytest.mark.parametrize("what", ["data", "results", "own", "report", "merge", "export"])
def test_folders_without_rights(place: Place, what: str) -> None:
    place.attack("run_task", tiny_arguments(Path(), mixer="mean"), {0})
    locked = {"results": "results", "data": "data"}.get(what, ".")
    place.root.chmod(0o755)
    (place.folder / locked).chmod(0o555)
    user: dict[str, Any] = {"user": 65534}
    if what in ("data", "results", "own"):
        place.attack("run_task", tiny_arguments(Path(), mixer="tnn"), **user)
    elif what == "report":
        place.attack("report", ["--out", "new"], **user)
    elif what == "merge":
        place.attack("lra.record.__main__", ["merge", "results", "--results-dir", "new"], **user)
    else:
        place.attack("lra.record.__main__", ["export", "--csv", "new.csv"], **user)
    (place.folder / locked).chmod(0o755)


# Ctrl-C


COMMANDS = {
    "run_task": ["run_task", *tiny_arguments(Path(), *DROPOUT)],
    "listops": ["lra.prepare", *LISTOPS], "pathfinder": ["lra.prepare", *PATHFINDER],
    "report": ["report"], "record": ["lra.record.__main__", "export", "--csv", "all.csv"],
    "paper": ["report", "--paper", "--rows", "variants"],
    "merge": ["lra.record.__main__", "merge", "made", "--results-dir", "new"],
    "bench": ["lra.bench.__main__", "op", "--mixers", "mean", "--lengths", "64", "--device", "cpu",
              "--parts", "whole", "--repeats", "20"],
    "evaluate": ["lra.evaluate.__main__", *EVALUATE],
    "sweep": ["lra.sweep.__main__", "--tasks", "listops", "--mixers", "all", "--preset", "quick",
              "--dry-run", "--device", "cpu"],
}  # fmt: skip


OF_A_RUN = ("report", "paper", "record", "evaluate")
"""Commands that read the results of a run."""


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a finished run."""
    import run_task

    folder = tmp_path_factory.mktemp("made")
    assert run_task.main(tiny_arguments(folder, mixer="mean")) == 0
    return folder


def command_line(name: str, place: Place, made: Path) -> tuple[str, list[str]]:
    """Return a command and its arguments, what it reads being there."""
    command, *arguments = COMMANDS[name]
    if (
        name in ("report", "paper", "record", "evaluate")
        and not (place.folder / "results").exists()
    ):
        shutil.copytree(made / "results", place.folder / "results")
    if name == "merge" and not (place.folder / "made").exists():
        shutil.copytree(made / "results", place.folder / "made")
    if name == "evaluate":
        (run,) = (place.folder / "results/runs/listops").glob("*/*")
        arguments += ["--run", str(run)]
    return command, arguments


@pytest.mark.parametrize("latest", [0.1, 0.7])
@pytest.mark.parametrize("name", COMMANDS)
def test_interruptions(place: Place, made: Path, name: str, latest: float) -> None:
    command, arguments = command_line(name, place, made)
    moment = random.uniform(0.0, latest)
    codes = DOCUMENTED[command] - {2, 4, 5, 6}
    ended = place.attack(command, arguments, {*codes, INTERRUPTED}, interrupt_after=moment)
    if name == "run_task" and ended.code == 3:
        assert "the same command resumes it" in ended.err


def test_an_interruption_after_the_first_line_shows_no_traceback(tmp_path: Path) -> None:
    line = [sys.executable, "run_task.py", *tiny_arguments(tmp_path)]
    with subprocess.Popen(
        line, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        process.stderr.readline()
        time.sleep(random.uniform(0.0, 0.5))
        process.send_signal(signal.SIGINT)
        told = process.stderr.read()
    assert "Traceback" not in told
    assert process.returncode in {0, 3, INTERRUPTED}


@pytest.mark.thorough
def test_interruptions_while_code_is_compiled(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "lra.prepare", "--task", "pathfinder", "--data-dir"]
    line += [str(tmp_path / "data"), "--set", "task.examples=400"]
    nothing_compiled = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "compiled")}
    with subprocess.Popen(
        line, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env=nothing_compiled,
    ) as process:  # fmt: skip
        # until its first function is compiled
        while process.poll() is None and not list((tmp_path / "compiled").rglob("*.nbi")):
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        start = time.monotonic()
        _, told = process.communicate(timeout=60)
    assert time.monotonic() - start < 5.0
    assert process.returncode == INTERRUPTED
    assert told == "lra.prepare: error: interrupted\n"


SWALLOWED = """
import signal, sys
from lra.runtime.cli import run_command
def act():
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        raise ValueError from None  # as numpy does within `np.asarray`
sys.exit(run_command("x", act))
"""


def test_an_interruption_that_a_library_turns_into_another_error() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SWALLOWED], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (INTERRUPTED, "x: error: interrupted\n")


# Kills

KILLS = {"run_task": 14, "listops": 9, "pathfinder": 9, "report": 9, "merge": 9, "evaluate": 9,
         "record": 5}  # fmt: skip
"""How often each command is killed, at random moments."""


@pytest.mark.parametrize("name", KILLS)
def test_kills_lose_nothing(place: Place, made: Path, name: str) -> None:
    """A command that was killed again and again gives what one gives that never was."""
    command, arguments = command_line(name, place, made)
    if name == "run_task":
        arguments += OFTEN
    unbroken = Place(place.root / "unbroken", place.forked)
    unbroken.folder.mkdir(parents=True)
    unbroken.outside.mkdir()
    again = command_line(name, unbroken, made)[1]
    took = unbroken.attack(command, again, {0}).seconds
    kills = 0
    for _ in range(10 * KILLS[name]):
        moment = random.uniform(0.0, took)
        ended = place.forked.run(command, arguments, place.folder, kill_after=moment)
        kills += ended.code == -9
        if ended.code == 0:
            took = min(took, ended.seconds)  # the first may have compiled code
            CHECKS[name](place.folder, unbroken.folder)
            forget(place, name)
        if kills == KILLS[name]:
            break
    place.attack(command, arguments, {0})
    assert kills == KILLS[name]
    CHECKS[name](place.folder, unbroken.folder)


def forget(place: Place, name: str) -> None:
    """Remove what a command has made, so that it can be made and killed again."""
    for folder in (
        "data",
        "new",
        "results/report",
        *(["results/runs"] if name == "run_task" else []),
    ):
        shutil.rmtree(place.folder / folder, ignore_errors=True)
    for path in (place.folder / "results").rglob("evaluation-*.json"):
        path.unlink()


def same_runs(folder: Path, other: Path) -> None:
    (one,) = (folder / "results/runs/listops").glob("*/*")
    (two,) = (other / "results/runs/listops").glob("*/*")
    assert_same_run(one, two)


def same_files(folder: Path, other: Path) -> None:
    """Compare what is there but for locks, the folder and what is written with a time."""

    def files(root: Path) -> dict[str, bytes]:
        return {
            path.relative_to(root).as_posix(): path.read_bytes().replace(bytes(root), b"")
            for path in root.rglob("*")
            if path.is_file() and not path.name.startswith(".") and path.suffix != ".lock"
            and path.name != "lock" and "checkpoints" not in path.parts
        }  # fmt: skip

    one, two = files(folder), files(other)
    assert one.keys() == two.keys()
    assert [name for name in one if one[name] != two[name]] == []


def same_evaluations(folder: Path, other: Path) -> None:
    from lra.record.evaluation import evaluations_of

    found: list[Any] = []
    for root in (folder, other):
        (run,) = (root / "results/runs/listops").glob("*/*")
        records, faults = evaluations_of(run)
        assert not faults
        found.append([(r.path, r.test_correct, r.data) for r in records])
        assert load_record(run / "result.json").status == "done"
    assert found[0] == found[1]
    assert len(found[0]) == 2


CHECKS: dict[str, Callable[[Path, Path], None]] = {
    "run_task": same_runs, "listops": same_files, "pathfinder": same_files, "report": same_files,
    "merge": same_files, "evaluate": same_evaluations, "record": same_files,
}  # fmt: skip


def test_the_commands_are_those_of_the_suite() -> None:
    """Whoever adds a command adds it here."""
    root = Path(__file__).resolve().parent.parent
    found = {path.parent.name for path in root.glob("lra/*/__main__.py")}
    named = {name.split(".")[1] for name in DOCUMENTED if name.startswith("lra.")}
    assert found == named - {"prepare"}
    assert (root / "lra/prepare.py").exists()


def test_a_full_standard_output_is_named(made: Path) -> None:
    line = f"{sys.executable} -m lra.record list --results-dir {made / 'results'} > /dev/full"
    ended = subprocess.run(["bash", "-c", line], cwd=ROOT, capture_output=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr == b"lra.record: error: standard output: No space left on device\n"


@pytest.mark.parametrize("closed", ["<&-", "2>/dev/full", "| head -0"])
def test_streams_that_are_not_there(made: Path, closed: str) -> None:
    commands = {f"-m lra.record list --results-dir {made / 'results'}": 0}
    if "2>" in closed:
        commands["report.py --results-dir nowhere"] = 2
    for command, code in commands.items():
        line = f"set -o pipefail; {sys.executable} {command} {closed}"
        ended = subprocess.run(["bash", "-c", line], cwd=ROOT, capture_output=True, check=False)
        assert ended.returncode == code, (line, ended)
        assert b"Traceback" not in ended.stderr
