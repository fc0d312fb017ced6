"""How many threads a command computes with, and how they wait."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from common.cores import Quota
from lra.record.schema import ThreadsRecord
from lra.report.names import RowNames
from lra.report.screen import task_table
from lra.report.tables.speeds import against_reference, is_busy, speed_tables
from lra.runtime import environment, threads
from lra.runtime.threads import Threads, choose_threads, chosen_variables, measure_other_load
from made_results import bench_record, record, save

ROOT = Path(__file__).resolve().parents[1]
VARIABLES = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")

SHORT = {"GOMP_SPINCOUNT": threads.SHORT_SPIN, "KMP_BLOCKTIME": "1"}


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Choose as a process does that has just started, on four cores, with its environment."""
    for name in VARIABLES:
        monkeypatch.setenv(name, "")  # so that it is as before, afterwards
        monkeypatch.delenv(name)
    monkeypatch.setattr(threads._Chosen, "threads", None)
    monkeypatch.setattr(threads._Chosen, "variables", ())
    monkeypatch.setattr(threads, "visible_cores", lambda: [0, 1, 2, 3])
    monkeypatch.setattr(threads, "core_count", lambda: 4)
    monkeypatch.setattr(threads, "cpu_quota", lambda: None)
    monkeypatch.setattr(threads, "_physical_cores", lambda cores: cores)
    monkeypatch.setattr(threads, "_torch_is_loaded", lambda: False)


def loaded(monkeypatch: pytest.MonkeyPatch, load: float | None) -> None:
    monkeypatch.setattr(threads, "measure_other_load", lambda seconds: load)


@pytest.mark.parametrize(
    ("load", "arguments", "expected"),
    [
        (0.0, [], SHORT),
        (0.9, [], SHORT),
        (1.1, [], {"OMP_WAIT_POLICY": "PASSIVE"}),
        (3.9, ["--threads", "4"], {"OMP_NUM_THREADS": "4", "OMP_WAIT_POLICY": "PASSIVE"}),
        (1.1, ["--threads=2"], {"OMP_NUM_THREADS": "2", **SHORT}),
        (0.0, ["--threads"], SHORT),
        (0.0, ["--threads", "many"], SHORT),
        (0.0, ["--threads", "0"], SHORT),
        (0.0, ["--threads", "3000000000"], SHORT),
        (0.0, ["--threads", "9" * 5000], SHORT),
    ],
)
def test_threads_spin_for_a_short_while_or_sleep(
    load: float, arguments: list[str], expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded(monkeypatch, load)
    choose_threads(["run_task.py", "--task", "listops", *arguments])
    assert {name: os.environ[name] for name in VARIABLES if name in os.environ} == expected
    assert set(chosen_variables()) == set(expected) - {"OMP_NUM_THREADS"}
    waiting = "passive" if "OMP_WAIT_POLICY" in expected else "short spin"
    assert threads.threads() == Threads(waiting, 4, load)


@pytest.mark.parametrize("name", ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"])
def test_what_the_user_says_of_waiting_holds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded(monkeypatch, 4.0)
    monkeypatch.setenv(name, "7")
    choose_threads([])
    assert [n for n in VARIABLES if n in os.environ] == [name]
    assert os.environ[name] == "7"
    assert threads.threads() == Threads("as set", 4, 4.0)


def test_once_torch_is_loaded_nothing_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded(monkeypatch, 4.0)
    monkeypatch.setattr(threads, "_torch_is_loaded", lambda: True)
    choose_threads([])
    assert not any(name in os.environ for name in VARIABLES)
    assert threads.threads().waiting == "as set"


@pytest.mark.parametrize("number", ["9" * 5000, "0", "2,1", "\u0663", "-3", "abc"])
def test_a_number_of_threads_that_is_none_is_left_to_torch(
    number: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded(monkeypatch, 2.0)
    monkeypatch.setenv("OMP_NUM_THREADS", number)
    choose_threads([])
    assert threads.threads().waiting == "passive"
    assert os.environ["OMP_NUM_THREADS"] == number


def test_where_the_system_does_not_say_the_load_is_not_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads, "visible_cores", lambda: [10**6])
    assert measure_other_load(0.01) is None
    monkeypatch.undo()

    def refuse(*, percpu: bool) -> None:
        raise PermissionError("/proc/stat")

    monkeypatch.setattr("psutil.cpu_times", refuse)
    assert measure_other_load(0.01) is None
    loaded(monkeypatch, None)
    assert not Threads("short spin", 4, None).is_busy(100)


@pytest.mark.parametrize(("given", "expected"), [(None, "2"), ("3", "3")])
def test_a_quota_limits_threads_and_cores(
    given: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded(monkeypatch, 0.0)
    monkeypatch.setattr(threads, "core_count", lambda: 2)
    if given is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    choose_threads([])
    assert os.environ["OMP_NUM_THREADS"] == expected
    assert threads.threads().cores == 2
    assert threads.threads().is_busy(3)


@pytest.mark.parametrize(
    ("others", "group", "expected"),
    [
        (30.0, 0.0, 0.0),  # the machine still has more free cores than the quota
        (63.5, 0.0, 1.5),
        (30.0, 1.0, 1.0),
        (30.0, None, 0.0),
    ],
)
def test_under_a_quota_the_load_is_what_others_take_of_it(
    others: float, group: float | None, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = {"now": 0.0}
    quota = Quota(2.0, Path("/nowhere"))
    monkeypatch.setattr(threads, "visible_cores", lambda: list(range(64)))
    monkeypatch.setattr(threads, "cpu_quota", lambda: quota)
    monkeypatch.setattr(threads, "_busy_seconds", lambda cores: others * clock["now"])
    monkeypatch.setattr(
        Quota, "used_seconds", lambda self: None if group is None else group * clock["now"]
    )
    monkeypatch.setattr(threads.time, "process_time", lambda: 0.0)
    monkeypatch.setattr(threads.time, "monotonic", lambda: clock["now"])
    monkeypatch.setattr(threads.time, "sleep", lambda seconds: clock.update(now=seconds))
    assert measure_other_load(0.5) == expected


def test_a_program_that_is_no_command_does_not_know() -> None:
    assert threads.threads() == Threads("unknown", 4, None)
    assert not threads.threads().is_busy(100)


@pytest.fixture
def other_process() -> Iterator[None]:
    code = "import time; end = time.time() + 60\nwhile time.time() < end: pass"
    process = subprocess.Popen([sys.executable, "-c", code])
    time.sleep(0.5)
    yield
    process.kill()
    process.wait()


@pytest.mark.usefixtures("other_process")
def test_the_load_is_that_of_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    # This process counts as its own, whatever it does meanwhile.
    monkeypatch.setattr(threads.time, "sleep", spin)
    load = measure_other_load(0.4)
    assert load is not None
    assert load > 0.3


def spin(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def test_a_busy_machine_is_told_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    loaded(monkeypatch, 3.0)
    choose_threads([])
    with caplog.at_level("WARNING", logger="lra"):
        environment.use_threads(None)
    count = torch.get_num_threads()
    assert (count + 3.0 > 5) == ("3.0 of 4 cores busy" in caplog.text)


def test_speeds_of_a_busy_machine_are_marked() -> None:
    busy = ThreadsRecord(count=2, waiting="passive", cores=2, load=1.5)
    idle = ThreadsRecord(count=2, waiting="short spin", cores=2, load=0.1)
    assert busy.busy
    assert not idle.busy
    assert ThreadsRecord.now(2, "cuda") is None
    found = ThreadsRecord.now(2, "cpu")
    assert found is not None
    assert found.waiting == "unknown"
    assert not is_busy(record(threads=idle)) and not is_busy(record(threads=None))
    assert is_busy(record(threads=busy))
    assert not is_busy(record(threads=None, gpu_shared=False))
    assert is_busy(record(threads=None, gpu_shared=True))


@pytest.mark.parametrize(("others", "is_shared"), [(1, False), (3, True)])
def test_a_gpu_is_shared_if_others_hold_its_memory(
    others: int, is_shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 10 * 2**30)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: ((70 - others) * 2**30, 80 * 2**30))
    assert environment.is_gpu_shared(torch.device("cuda")) == is_shared
    assert environment.is_gpu_shared(torch.device("cpu")) is None


def test_tables_of_speeds_and_ratios_say_busy_and_those_of_memory_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    busy = ThreadsRecord(count=2, waiting="passive", cores=2, load=1.5)
    made = bench_record(
        threads=busy, ratio_to_reference=2.0, ratio_low_quartile=1.9, ratio_high_quartile=2.1
    )
    names = RowNames([], [made])
    (table,) = speed_tables([made], names, "tnn")
    assert "Busy means that other processes slowed" in table.caption
    _, speed, memory, ratio = table.rows[0]
    assert speed.endswith(", busy")
    assert "busy" not in memory
    assert ratio == "2.00 (1.90 to 2.10), busy"
    (ratios,) = against_reference([made], names)
    assert ratio in ratios.rows[0]
    run = record(threads=busy)
    save(tmp_path, run)
    assert "2.50, busy" in task_table(tmp_path, run)


@pytest.mark.slow
def test_a_run_records_what_it_was_made_with(tmp_path: Path) -> None:
    small = ["train.steps=2", "train.evaluate_every=1", "model.dim=8", "model.depth=1"]
    changes = ["train=20", "val=20", "test=20", "min_length=8", "max_length=20",
               "sequence_length=24"]  # fmt: skip
    sets = [f"--set={s}" for s in [*small, *(f"task.{change}" for change in changes)]]
    command = [sys.executable, str(ROOT / "run_task.py"), "--task", "listops", "--mixer", "mean"]
    command += ["--preset", "quick", "--threads", "1", "--data-dir", str(tmp_path / "data")]
    command += ["--results-dir", str(tmp_path / "results"), *sets]
    env = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT, env=env)
    assert done.returncode == 0, done.stderr
    (path,) = (tmp_path / "results").glob("runs/*/*/*/result.json")
    found = json.loads(path.read_text())["threads"]
    assert found["count"] == 1
    assert found["waiting"] in {"short spin", "passive"}
    assert found["load"] >= 0
