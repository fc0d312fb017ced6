"""Runs that are asked to end, held up, started twice, or lose what is around them."""

from __future__ import annotations

import contextlib
import os
import pty
import random
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from attack import Place
from conftest import ROOT, TINY, tiny_arguments
from forked import Forked
from lra.record.run import RunRecord, load_record
from lra.runtime.cli import HELD, INTERRUPTED, STOPPED
from lra.runtime.repository import git_state
from lra.train.checkpoint import load_newest
from lra.train.stopping import StopRequest
from run_checks import assert_same_run

SETTINGS = [
    "--set", "model.dropout=0.2", "--set", "train.steps=150", "--set", "log.every_steps=2",
    "--set", "train.evaluate_every=50",
]  # fmt: skip
RUN = tiny_arguments(Path(), *SETTINGS, mixer="mean")
TASK = [part for text in TINY if text.startswith("task.") for part in ("--set", text)]
METRICS = "results/runs/*/*/*/metrics.jsonl"


def folder_of(place: Path) -> Path:
    (path,) = place.glob("results/runs/*/*/*")
    return path


def record_of(place: Place) -> RunRecord:
    return load_record(folder_of(place.folder) / "result.json")


@pytest.fixture(scope="session")
def unbroken(tmp_path_factory: pytest.TempPathFactory, forked: Forked) -> Path:
    """Make the run without any harm."""
    folder = tmp_path_factory.mktemp("unbroken")
    assert forked.run("run_task", RUN, folder).code == 0
    return folder_of(folder)


@contextlib.contextmanager
def beside(action: Callable[[], None]) -> Iterator[None]:
    """Do something in another thread meanwhile."""
    thread = threading.Thread(target=action)
    thread.start()
    yield
    thread.join()


def wait_for(folder: Path, pattern: str = METRICS) -> None:
    end = time.monotonic() + 20
    while not any(folder.glob(pattern)) and time.monotonic() < end:
        time.sleep(0.005)


# Signals


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_run_that_is_asked_to_end_is_saved(place: Place, unbroken: Path, name: str) -> None:
    sends = [(METRICS, 0.0, signal.Signals[name])]
    ended = place.attack("run_task", RUN, {STOPPED}, sends=sends)
    assert f"stopped by {name}" in ended.err
    assert "the same command resumes it" in ended.err
    record = record_of(place)
    assert record.status == "stopped"
    state = load_newest(folder_of(place.folder) / "checkpoints")
    assert state is not None
    assert state["trainer"]["sampler"]["next_step"] == record.steps > 0
    place.attack("run_task", RUN, {0})
    assert_same_run(folder_of(place.folder), unbroken)


def test_a_hangup_that_nohup_ignores_ends_nothing(place: Place, unbroken: Path) -> None:
    sends = [(METRICS, 0.0, signal.SIGHUP)]
    place.attack("run_task", RUN, {0}, sends=sends, ignores=signal.SIGHUP)
    assert_same_run(folder_of(place.folder), unbroken)


def test_a_run_whose_terminal_closes_is_saved(place: Place, unbroken: Path) -> None:
    """The kernel sends SIGHUP, and nothing can be written any more."""
    master, terminal = pty.openpty()

    def close() -> None:
        wait_for(place.folder)
        os.close(terminal)
        os.close(master)

    with beside(close):
        ended = place.forked.run("run_task", RUN, place.folder, terminal=os.ttyname(terminal))
    assert ended.code == STOPPED
    assert record_of(place).status == "stopped"
    place.attack("run_task", RUN, {0})
    assert_same_run(folder_of(place.folder), unbroken)


def test_a_run_that_is_held_up_goes_on(place: Place, unbroken: Path) -> None:
    """The step in which it was held up is long; the speed, a median, is not."""
    pause = 1.5
    sends = [(METRICS, 0.0, signal.SIGSTOP), (METRICS, pause, signal.SIGCONT)]
    place.attack("run_task", RUN, {0}, sends=sends)
    assert_same_run(folder_of(place.folder), unbroken)
    record = record_of(place)
    assert record.wall_seconds >= pause
    assert record.steps_per_second is not None
    assert record.steps_per_second > 1 / pause


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_ends_an_evaluation_that_draws_data(
    place: Place, unbroken: Path, name: str
) -> None:
    arguments = ["--run", str(unbroken), "--lengths", "60", "--examples", "5000000"]
    number = signal.Signals[name]
    sends = [("data/listops/*.partial/*", 0.3, number)]
    ended = place.forked.run("lra.evaluate.__main__", arguments, place.folder, sends=sends)
    assert not ended.hung and "Traceback" not in ended.err
    assert ended.code == (INTERRUPTED if number == signal.SIGINT else -number)


# The clock


def test_a_clock_that_jumps_back_changes_nothing(place: Place, unbroken: Path) -> None:
    ended = place.attack("run_task", [*RUN, "--max-steps", "70"], {STOPPED}, clock=3600.0)
    for path in folder_of(place.folder).rglob("*"):  # written on another day, as it seems
        os.utime(path, (2e9, 2e9))
    ended = place.attack("run_task", RUN, {0}, clock=3600.0)
    assert " -" not in ended.err
    assert_same_run(folder_of(place.folder), unbroken)
    record = record_of(place)
    assert 0 < (record.train_seconds or -1) < record.wall_seconds < 60
    assert (record.steps_per_second or -1) > 0
    place.attack("report", [], {0}, clock=3600.0)
    place.attack("lra.record.__main__", ["list"], {0}, clock=3600.0)


# The working directory


@pytest.mark.parametrize("has_own_results", [False, True])
def test_a_working_directory_that_is_deleted(
    place: Place, unbroken: Path, has_own_results: bool
) -> None:
    working = place.folder / "working"
    working.mkdir()
    arguments = [*RUN]
    if has_own_results:
        for flag in ("--data-dir", "--results-dir"):
            k = arguments.index(flag) + 1
            arguments[k] = str(place.folder / arguments[k])

    def delete() -> None:
        wait_for(place.folder if has_own_results else working)
        shutil.rmtree(working, ignore_errors=True)

    with beside(delete):
        place.attack(
            "run_task", arguments, {0 if has_own_results else 2}, working=str(working),
            says="" if has_own_results else "was removed while the run was at work",
        )  # fmt: skip
    if has_own_results:
        assert_same_run(folder_of(place.folder), unbroken)


# Two at once


def test_of_two_equal_runs_one_waits_for_nothing(place: Place, unbroken: Path) -> None:
    ended = place.forked.run_together("run_task", RUN, place.folder, 2)
    codes = sorted(one.code for one in ended)
    assert codes in ([0, HELD], [0, 0]), [one.err for one in ended]  # or it is read when done
    if HELD in codes:
        (held,) = (one for one in ended if one.code == HELD)
        assert "another process is at work on" in held.err
    assert_same_run(folder_of(place.folder), unbroken)


@pytest.mark.parametrize(
    ("command", "arguments", "made"),
    [
        ("lra.prepare", ["--task", "listops", "--preset", "quick", *TASK], "data"),
        ("report", [], "results/report"),
        ("report", ["--paper", "--rows", "variants"], "results/report"),
        ("lra.record.__main__", ["merge", "results", "--results-dir", "new"], "new"),
        ("lra.record.__main__", ["export", "--csv", "new.csv"], "new.csv"),
    ],
)
def test_two_equal_commands_make_what_one_makes(
    place: Place, unbroken: Path, command: str, arguments: list[str], made: str
) -> None:
    shutil.copytree(unbroken.parents[3], place.folder / "results")
    ended = place.forked.run_together(command, arguments, place.folder, 2)
    assert [one.code for one in ended] == [0, 0], [one.err for one in ended]
    if made == "data":
        assert sum(one.err.count("generating ListOps") for one in ended) == 1
    twice = contents(place.folder / made)
    (place.folder / made).rename(place.folder / "twice")
    place.attack(command, arguments, {0})
    assert contents(place.folder / made) == twice


def contents(folder: Path) -> dict[str, bytes]:
    if folder.is_file():
        return {"": folder.read_bytes()}
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(".") and path.suffix != ".lock"
        and path.name != "lock"
    }  # fmt: skip


# Kills


@pytest.mark.parametrize(
    ("arguments", "out"),
    [([], "report"), (["--paper", "--rows", "variants"], "report/paper")],
    ids=["report", "paper"],
)
def test_killed_reports_leave_whole_files(
    place: Place, unbroken: Path, arguments: list[str], out: str
) -> None:
    """Every file of a report that is killed is that of the old report, or that of the new one."""
    results = place.folder / "results"
    shutil.copytree(unbroken.parents[3], results)
    place.attack("report", arguments, {0})
    old = contents(results / out)
    (run,) = results.glob("runs/*/*/*")
    record = load_record(run / "result.json")
    record.model_copy(update={"seed": 1, "run_id": f"{run.name}1"}).save(Path(f"{run}1"))
    other = Place(place.root / "unbroken", place.forked)
    shutil.copytree(results, other.folder / "results")
    other.outside.mkdir()
    took = other.attack("report", arguments, {0}).seconds
    new = {
        name: content.replace(bytes(other.folder), bytes(place.folder))  # tables name folders
        for name, content in contents(other.folder / "results" / out).items()
    }
    assert {name for name in old if old[name] != new.get(name)}
    for _ in range(4):
        moment = random.uniform(0.3 * took, took)
        place.forked.run("report", arguments, place.folder, kill_after=moment)
        for name, content in contents(results / out).items():
            assert content in (old.get(name), new.get(name)), f"{name} is torn"
    place.attack("report", arguments, {0})
    assert contents(results / out) == new


# What is around a run


def test_many_files_in_the_results_folder_cost_little(place: Place, unbroken: Path) -> None:
    """100,000 that are not ours: a run begins and ends, and a report is made, as without them."""
    results = place.folder / "results"
    shutil.copytree(unbroken.parents[3], results)
    of_task = results / "runs" / "listops"
    for folder in (results, of_task.parent, of_task, of_task / "mean"):
        for k in range(25_000):
            os.close(os.open(folder / f"{k}.json", os.O_CREAT))
    place.attack(
        "run_task", [*RUN, "--set", "train.steps=10", "--set", "train.evaluate_every=10"], {0}
    )
    place.attack("report", ["--format", "csv"], {0})
    place.attack("lra.record.__main__", ["list"], {0})


def test_the_commit_of_a_checkout_of_another_user_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git refuses to read such a checkout unless told otherwise; nor is a working directory needed.

    Its own tests set this variable.
    """
    state = git_state()
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    working = tmp_path / "working"
    working.mkdir()
    monkeypatch.chdir(working)
    working.rmdir()
    assert git_state() == state


@pytest.mark.thorough
def test_a_read_only_checkout_serves_for_all_but_writing_there(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    mount = f"mount --bind {ROOT} {checkout} && mount -o remount,bind,ro {checkout}"
    if subprocess.run(["unshare", "-m", "sh", "-c", mount], check=False).returncode:
        pytest.skip("a folder cannot be mounted here")
    places = tiny_arguments(tmp_path, *SETTINGS, mixer="mean")
    here = tiny_arguments(Path(), *SETTINGS, mixer="mean")
    commands = [(["run_task.py", *places], 0), (["run_task.py", *here], 2)]
    lines = "; ".join(shlex.join([sys.executable, *line]) + "; echo $?" for line, _ in commands)
    ended = subprocess.run(
        ["unshare", "-m", "sh", "-c", f"{mount} && cd {checkout} && {{ {lines}; }}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "Traceback" not in ended.stderr
    codes = [int(line) for line in ended.stdout.splitlines() if line in {"0", "1", "2"}]
    assert codes == [code for _, code in commands], ended.stderr
    assert ended.stderr.count("Read-only file system") == 1


def test_ignored_signals_stay_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with StopRequest():
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN
    signal.signal(signal.SIGHUP, before)
