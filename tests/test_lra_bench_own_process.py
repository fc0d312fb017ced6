"""Cases of a benchmark in processes of their own, however these end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from common.progress import progress
from conftest import ROOT
from lra.bench import own_process
from lra.bench.case import Case, Subject
from lra.bench.own_process import OwnProcess, set_up
from lra.runtime.errors import UserError

VARIABLES = ("GLIBC_TUNABLES", "GOMP_SPINCOUNT")


class Sum(Subject):
    """Adds numbers up, or ends its process."""

    def __init__(self, how: str) -> None:
        self.how, self.runs, self.held = how, 0, b""

    def run(self) -> None:
        self.runs += 1
        if self.how == "shows progress":
            list(progress("adding", [1], unit="numbers"))
        if self.how == "grows" and self.runs > 4:
            self.held = b"x" * 2**26
        if self.how == "exits" and self.runs > 4:
            os._exit(3)
        if self.how == "runs out of memory":
            os.kill(os.getpid(), signal.SIGKILL)  # as the system does

    def facts(self) -> dict[str, Any]:
        return {"runs": self.runs, "variables": {name: os.environ.get(name) for name in VARIABLES}}


@dataclass(frozen=True, kw_only=True)
class Added(Case):
    how: str = "adds"

    def build(self) -> Subject:
        if self.how == "mistaken":
            raise UserError("a mistake")
        return Sum(self.how)

    def settings(self) -> dict[str, Any]:
        return {}


def added(how: str) -> Added:
    return Added(mixer="sum", device="cpu", how=how)


@pytest.mark.thorough
def test_a_case_is_timed_twice_a_round_after_three_to_warm_up() -> None:
    place = OwnProcess(added("adds"))
    assert place.seconds() >= 0
    assert place.facts()["runs"] == 5
    memory = place.memory()
    assert memory.peak >= memory.base > 0
    place.close()
    place.process.join(10)
    assert not place.process.is_alive()


@pytest.mark.thorough
def test_memory_is_that_of_all_runs() -> None:
    place = OwnProcess(added("grows"))
    before = place.memory()
    place.seconds()
    after = place.memory()
    assert after.base == before.base
    assert after.peak > before.peak + 50
    place.close()


@pytest.mark.thorough
def test_ours_starts_as_a_run_does_and_a_reference_as_the_user_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GOMP_SPINCOUNT", "10000")
    found: list[tuple[str | None, ...]] = []
    for case in (added("adds"), added("adds").reference()):
        place = OwnProcess(case)
        found.append(tuple(place.facts()["variables"].values()))
        place.close()
    assert [spin for *_, spin in found] == ["10000", None]
    assert os.environ["GOMP_SPINCOUNT"] == "10000"


@pytest.mark.thorough
def test_a_process_that_ends_by_itself_is_no_lack_of_memory() -> None:
    place = OwnProcess(added("exits"))
    with pytest.raises(UserError, match="sum: the process that measures it ended with exit code 3"):
        place.seconds()
    with pytest.raises(UserError, match="exit code 3"):
        place.facts()
    place.close()


@pytest.mark.thorough
def test_what_the_system_kills_is_out_of_memory_and_mistakes_are_told() -> None:
    assert set_up(added("runs out of memory")) is None
    with pytest.raises(UserError, match="a mistake"):
        set_up(added("mistaken"))


def test_memory_is_handed_back_after_each_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[None] = []
    monkeypatch.setattr(own_process, "return_freed_memory", lambda: calls.append(None))
    monkeypatch.setattr(own_process, "keep_freed_memory", lambda: True)
    here = own_process.Here(added("adds"))
    after_setting_up = len(calls)
    here.seconds()
    here.facts()
    assert len(calls) == after_setting_up + 2


LEAKS = """
from test_lra_bench_own_process import OwnProcess, added
if __name__ == "__main__":
    OwnProcess(added("shows progress")).close()
"""


@pytest.mark.thorough
def test_a_process_that_shows_progress_leaks_no_semaphore(tmp_path: Path) -> None:
    script = tmp_path / "measures.py"
    script.write_text(LEAKS)
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    ended = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    assert "leaked" not in ended.stderr


SCRIPT = """
import time
from test_lra_bench_own_process import OwnProcess, added
if __name__ == "__main__":
    places = [OwnProcess(added("adds")) for _ in range(2)]
    print(*[place.process.pid for place in places], flush=True)
    time.sleep(100)
"""


@pytest.mark.thorough
def test_no_process_stays_when_the_command_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "measures.py"
    script.write_text(SCRIPT)
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": paths},
    ) as command:  # fmt: skip
        assert command.stdout is not None
        children = [psutil.Process(int(pid)) for pid in command.stdout.readline().split()]
        command.kill()
    assert len(children) == 2
    _, alive = psutil.wait_procs(children, timeout=20)
    for child in alive:
        child.kill()
    assert not alive
