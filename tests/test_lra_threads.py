"""How many threads a command computes with, and how they wait."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from lra.record.schema import ThreadsRecord
from lra.report.names import RowNames
from lra.report.tables.speeds import against_reference, is_busy, speed_tables
from lra.runtime import environment, threads
from lra.runtime.threads import Threads
from made_results import bench_record, record

ROOT = Path(__file__).resolve().parents[1]
MEASURE = threads._measure_other_load
VARIABLES = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Choose as a process does that has just started, with four cores and torch not loaded."""
    for name in VARIABLES:
        monkeypatch.setenv(name, "")  # so that it is as before, afterwards
        monkeypatch.delenv(name)
    monkeypatch.setattr(threads._Chosen, "waiting", "unknown")
    monkeypatch.setattr(threads, "visible_cores", lambda: [0, 1, 2, 3])
    monkeypatch.setattr(threads, "core_count", lambda: 4)
    threads.threads.cache_clear()
    yield
    threads.threads.cache_clear()


def loaded(monkeypatch: pytest.MonkeyPatch, load: float | None) -> None:
    monkeypatch.setattr(threads, "_measure_other_load", lambda: load)


def test_threads_wait_with_a_short_spin_until_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    loaded(monkeypatch, 0.5)
    threads.choose_waiting()
    assert threads.SHORT_SPIN.items() <= os.environ.items()
    assert threads.threads() == Threads("short spin", 4, 0.5)


@pytest.mark.parametrize("name", ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"])
def test_what_the_user_says_of_waiting_holds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded(monkeypatch, None)
    monkeypatch.setenv(name, "7")
    threads.choose_waiting()
    assert [n for n in VARIABLES if n in os.environ] == [name]
    assert threads.threads().waiting == "as set"


@pytest.mark.parametrize(("given", "expected"), [(None, 2), ("3", None)])
def test_a_quota_limits_threads(
    given: str | None, expected: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "core_count", lambda: 2)
    monkeypatch.setattr("psutil.cpu_count", lambda logical: 8)
    if given is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    assert threads.default_count() == expected


def test_the_load_is_that_of_this_process_s_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_measure_other_load", MEASURE)
    monkeypatch.setattr("psutil.cpu_percent", lambda *_, percpu: [50.0, 100.0, 0.0, 0.0, 100.0])
    assert threads._measure_other_load() == 1.5
    monkeypatch.setattr(threads, "visible_cores", lambda: [10**6])
    assert threads._measure_other_load() is None
    assert not Threads("short spin", 4, None).is_busy(100)


def test_a_busy_machine_is_told_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    loaded(monkeypatch, 3.0)
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


@pytest.mark.thorough
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
    assert found["waiting"] == "short spin"
    assert found["load"] >= 0
