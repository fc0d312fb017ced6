"""How many threads a command computes with, how they wait, and the memory that it keeps."""

import os

import pytest
import torch

from lra.common import threads
from lra.common.progress import Progress
from lra.runtime import environment

VARIABLES = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Choose as a process does that has just started, with four cores."""
    for name in VARIABLES:
        monkeypatch.setenv(name, "")  # so that it is as before, afterwards
        monkeypatch.delenv(name)
    monkeypatch.setattr(threads, "visible_cores", lambda: [0, 1, 2, 3])
    monkeypatch.setattr(threads, "core_count", lambda: 4)


def test_threads_wait_with_a_short_spin_until_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    threads.choose_waiting()
    assert not threads.SHORT_SPIN.keys() & os.environ.keys()
    monkeypatch.delenv("OMP_WAIT_POLICY")
    threads.choose_waiting()
    assert threads.SHORT_SPIN.items() <= os.environ.items()


@pytest.mark.parametrize(("given", "expected"), [(None, 2), ("3", None)])
def test_a_quota_limits_threads(
    given: str | None, expected: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "core_count", lambda: 2)
    monkeypatch.setattr("psutil.cpu_count", lambda logical: 8)
    if given is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    assert threads.default_count() == expected


@pytest.mark.parametrize(("others", "is_shared"), [(1, False), (3, True)])
def test_a_gpu_is_shared_if_others_hold_its_memory(
    others: int, is_shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 10 * 2**30)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: ((70 - others) * 2**30, 80 * 2**30))
    assert environment.is_gpu_shared(torch.device("cuda")) == is_shared
    assert environment.is_gpu_shared(torch.device("cpu")) is None


@pytest.mark.parametrize(
    ("busy", "given", "advice"),
    [
        ([0, 10, 0, 0], None, ""), ([100, 100, 80, 70], None, "--threads 1 "),
        ([100, 90, 0, 0], None, "--threads 2 "), ([100, 100, 100, 100], "4", ""),
    ],
)  # fmt: skip
def test_a_busy_machine_is_told_with_the_threads_that_fit(
    busy: list[float], given: str | None, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("psutil.cpu_percent", lambda *_, percpu: [*busy, 0.0])
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    if given is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    text = environment.describe_busy_cores(torch.device("cpu"))
    assert advice in text and bool(advice) == bool(text)
    assert environment.describe_busy_cores(torch.device("cuda")) == ""


def test_the_time_left_is_first_corrected_after_some_seconds(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = iter([0.0, 4.0, 6.0, 25.0, 27.0])
    monkeypatch.setattr("lra.common.progress.time.monotonic", lambda: next(clock))
    monkeypatch.setattr("lra.common.progress.is_live", lambda: False)
    progress, said = Progress(0, 1000), []
    with caplog.at_level("INFO"):
        for step in (4, 6, 25, 27):
            progress.step(step, 1000, 1.0, None)
            said.append(len(caplog.messages))
    assert said == [0, 1, 1, 2]
    assert caplog.messages[0].endswith("1.00 steps/s  17 min left")


def test_records_name_preloaded_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    assert "LD_PRELOAD" not in environment.versions()
    monkeypatch.setenv("LD_PRELOAD", "/home/ana/mkl.so:/opt/tc\nmalloc.so")
    assert environment.versions()["LD_PRELOAD"] == r"mkl.so tc\nmalloc.so"
