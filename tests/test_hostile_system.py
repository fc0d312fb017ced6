"""Machines that do not play along: signals, kills, full disks, folders that go, two at once."""

import contextlib
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock, Timeout

from attack import DOCUMENTED, Place
from conftest import ROOT, tiny_arguments
from forked import Forked
from lra import run_task
from lra.record.run import load_record
from lra.runtime.cli import HELD, INTERRUPTED, STOPPED, run_command
from lra.runtime.repository import git_state
from lra.train.checkpoint import load_newest
from lra.train.stopping import StopRequest
from lra.train.trainer import Trainer
from run_checks import assert_same_run

RUN = tiny_arguments(
    Path(), "--set", "model.dropout=0.2", "--set", "train.steps=60", "--set", "log.every_steps=2",
    "--set", "log.checkpoint_minutes=1e-4", mixer="mean",
)  # fmt: skip
LISTOPS = [
    "--task", "listops", "--data-dir", "data", "--set", "task.train=3000", "--set", "task.val=50",
    "--set", "task.test=50", "--set", "task.max_length=128", "--set", "task.min_length=16",
]  # fmt: skip
COMMANDS = {
    "lra.run_task": ["lra.run_task", *RUN],
    "listops": ["lra.prepare", *LISTOPS],
    "pathfinder": [
        "lra.prepare", "--task", "pathfinder", "--data-dir", "data", "--set", "task.examples=400",
    ],
    "report": ["lra.report.__main__"],
    "merge": ["lra.record.__main__", "merge", "made", "--results-dir", "new"],
}  # fmt: skip


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory, forked: Forked) -> Path:
    """Make the run without any harm; return its folder."""
    folder = tmp_path_factory.mktemp("unbroken")
    assert forked.run("lra.run_task", RUN, folder).code == 0
    return folder_of(folder)


def folder_of(place: Path) -> Path:
    (path,) = place.glob("results/runs/*/*/*")
    return path


def command_line(name: str, folder: Path, unbroken: Path) -> tuple[str, list[str]]:
    """Return a command and its arguments, what it reads being there."""
    command, *arguments = COMMANDS[name]
    source = {"report": "results", "merge": "made"}.get(name)
    if source is not None and not (folder / source).exists():
        shutil.copytree(unbroken.parents[3], folder / source)
    return command, arguments


# Signals


@pytest.mark.parametrize("name", ["SIGTERM", pytest.param("SIGHUP", marks=pytest.mark.thorough)])
def test_a_run_that_is_asked_to_end_is_saved(place: Place, unbroken: Path, name: str) -> None:
    sends = [("results/runs/*/*/*/metrics.jsonl", 0.0, signal.Signals[name])]
    ended = place.attack("lra.run_task", RUN, {STOPPED}, sends=sends)
    assert f"stopped by {name}" in ended.err
    assert "the same command resumes it" in ended.err
    record = load_record(folder_of(place.folder) / "result.json")
    assert record.status == "stopped"
    state = load_newest(folder_of(place.folder) / "checkpoints")
    assert state is not None
    assert state["trainer"]["step"] == record.steps > 0
    place.attack("lra.run_task", RUN, {0})
    assert_same_run(folder_of(place.folder), unbroken)


@pytest.mark.thorough
@pytest.mark.parametrize("name", COMMANDS)
def test_interruptions(place: Place, unbroken: Path, name: str) -> None:
    command, arguments = command_line(name, place.folder, unbroken)
    codes = DOCUMENTED[command] - {2, 4, 5, 6} | {INTERRUPTED}
    for latest in (0.1, 0.7):
        moment = random.uniform(0.0, latest)
        place.attack(command, arguments, codes, interrupt_after=moment)


def test_an_interruption_that_a_library_turns_into_another_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def act() -> int:
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        raise ValueError  # as numpy does within `np.asarray`

    before = signal.getsignal(signal.SIGINT)
    assert run_command("x", act) == INTERRUPTED
    signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err == "x: error: interrupted\n"


def test_ignored_signals_stay_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup has it
    with StopRequest():
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN
    signal.signal(signal.SIGHUP, before)


# Kills


@pytest.mark.parametrize(
    "name",
    [
        "lra.run_task",
        *(pytest.param(n, marks=pytest.mark.thorough) for n in COMMANDS if n != "lra.run_task"),
    ],
)
def test_kills_lose_nothing(place: Place, unbroken: Path, name: str) -> None:
    """A command that was killed again and again gives what one gives that never was."""
    command, arguments = command_line(name, place.folder, unbroken)
    other = place.root / "other"
    other.mkdir()
    took = place.forked.run(*command_line(name, other, unbroken), other).seconds
    said = ""
    if name == "lra.run_task":
        at_first_checkpoint = [("results/runs/*/*/*/checkpoints/step-*", 0.0, signal.SIGKILL)]
        ended = place.forked.run(command, arguments, place.folder, sends=at_first_checkpoint)
        assert ended.code == -signal.SIGKILL
    for share in (0.3, 0.5, 0.7, 0.9):
        moment = took * random.uniform(share - 0.1, share + 0.1)
        ended = place.forked.run(command, arguments, place.folder, kill_after=moment)
        assert ended.code in (0, -signal.SIGKILL)
        said += ended.err
    said += place.attack(command, arguments, {0}).err
    if name == "lra.run_task":
        assert "resumed at step" in said
        assert_same_run(folder_of(place.folder), unbroken)
    else:
        assert contents(place.folder) == contents(other)


def contents(root: Path) -> dict[str, bytes]:
    """Read what is there but for locks and the folder's name."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes().replace(bytes(root), b"")
        for path in root.rglob("*")
        if path.is_file() and not path.name.startswith(".") and path.suffix != ".lock"
        and path.name != "lock" and "checkpoints" not in path.parts
    }  # fmt: skip


# Two at once


def test_no_run_is_made_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a run is at work the same command ends at once, and so it does where it is done."""
    arguments = tiny_arguments(tmp_path, mixer="mean")
    train_step = Trainer.train_step
    steps: list[int] = []

    def train_step_beside_another(self: Trainer) -> Any:
        steps.append(self.step)
        if self.step == 3:
            assert run_task.main(arguments) == HELD
            with pytest.raises(Timeout):  # so is the place where every process looks
                FileLock(folder_of(tmp_path) / "lock").acquire(timeout=0)
        return train_step(self)

    monkeypatch.setattr(Trainer, "train_step", train_step_beside_another)
    assert run_task.main(arguments) == 0
    assert steps == list(range(20))
    record = (folder_of(tmp_path) / "result.json").read_bytes()
    assert run_task.main(arguments) == 0
    assert len(steps) == 20
    assert (folder_of(tmp_path) / "result.json").read_bytes() == record
    with FileLock(folder_of(tmp_path) / "lock"):
        assert run_task.main(arguments) in {0, HELD}


@pytest.mark.thorough
@pytest.mark.parametrize("name", COMMANDS)
def test_two_equal_commands_make_what_one_makes(place: Place, unbroken: Path, name: str) -> None:
    command, arguments = command_line(name, place.folder, unbroken)
    both: list[Any] = []
    second = Forked()
    thread = threading.Thread(
        target=lambda: both.append(second.run(command, arguments, place.folder))
    )
    thread.start()
    both.append(place.forked.run(command, arguments, place.folder))
    thread.join()
    second.close()
    assert {one.code for one in both} <= {0, HELD}, [one.err for one in both]
    if name == "lra.run_task":
        assert_same_run(folder_of(place.folder), unbroken)
    if name == "listops":
        assert sum(one.err.count("generating ListOps") for one in both) <= 1


# Disks and folders


@pytest.mark.thorough
@pytest.mark.parametrize("name", COMMANDS)
def test_files_that_must_not_be_large(place: Place, unbroken: Path, name: str) -> None:
    """As on a full disk: what is saved before is there, and a run goes on from it."""
    command, arguments = command_line(name, place.folder, unbroken)
    for most in (100, 20_000):
        place.attack(command, arguments, {0, 1, 2}, largest_file=most)
    if name == "lra.run_task":
        place.attack(command, arguments, {0})
        assert_same_run(folder_of(place.folder), unbroken)


@pytest.mark.parametrize("what", ["data", "results"])
def test_folders_without_rights(place: Place, what: str) -> None:
    (place.folder / what).mkdir()
    place.root.chmod(0o755)
    place.folder.chmod(0o777)
    (place.folder / what).chmod(0o555)
    ended = place.attack("lra.run_task", RUN, user=65534)
    assert "Permission denied" in ended.err


@pytest.mark.thorough
def test_a_working_directory_that_is_deleted(place: Place) -> None:
    working = place.folder / "working"
    working.mkdir()

    def delete() -> None:
        end = time.monotonic() + 20
        while not any(working.glob("results/runs/*/*/*/metrics.jsonl")) and time.monotonic() < end:
            time.sleep(0.005)
        shutil.rmtree(working, ignore_errors=True)

    thread = threading.Thread(target=delete)
    thread.start()
    says = "was removed while the run was at work"
    long = [*RUN, "--set", "train.steps=5000", "--set", "log.checkpoint_minutes=5"]
    place.attack("lra.run_task", long, {2}, working=str(working), says=says)
    thread.join()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("closed", "code"), [(">/dev/full", 2), ("2>/dev/full", 0), ("| head -0", 0)]
)
def test_streams_that_are_not_there(unbroken: Path, closed: str, code: int) -> None:
    command = f"{sys.executable} -m lra.record list --results-dir {unbroken.parents[3]}"
    line = f"set -o pipefail; {command} {closed}"
    ended = subprocess.run(["bash", "-c", line], cwd=ROOT, capture_output=True, check=False)
    assert ended.returncode == code
    assert b"Traceback" not in ended.stderr
    if code:
        assert ended.stderr == b"lra.record: error: standard output: No space left on device\n"


def test_the_commit_of_a_checkout_of_another_user_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git refuses to read such a checkout unless told otherwise; its tests set this variable."""
    state = git_state()
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    monkeypatch.chdir(tmp_path)
    assert git_state() == state
