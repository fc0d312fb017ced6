"""How many threads a command computes with, how they wait, and the memory that it keeps."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from conftest import ROOT
from lra.record.schema import ThreadsRecord
from lra.runtime import environment, threads
from lra.runtime.threads import Threads

MEASURE = threads._measure_other_load
VARIABLES = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Choose as a process does that has just started, with four cores and torch not loaded."""
    for name in VARIABLES:
        monkeypatch.setenv(name, "")  # so that it is as before, afterwards
        monkeypatch.delenv(name)
    monkeypatch.setattr(threads, "_chosen", [])
    monkeypatch.setattr(threads, "visible_cores", lambda: [0, 1, 2, 3])
    monkeypatch.setattr(threads, "core_count", lambda: 4)
    threads.threads.cache_clear()
    yield
    threads.threads.cache_clear()


def test_threads_wait_with_a_short_spin_until_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(threads, "_measure_other_load", lambda: 0.5)
    threads.choose_waiting()
    assert threads.SHORT_SPIN.items() <= os.environ.items()
    assert threads.threads() == Threads("short spin", 4, 0.5)
    threads.threads.cache_clear()
    threads.choose_waiting()
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


def test_a_busy_machine_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psutil.cpu_percent", lambda *_, percpu: [100.0] * 5)
    monkeypatch.setattr(threads, "_measure_other_load", MEASURE)
    assert ThreadsRecord.now(2, "cuda") is None
    found = ThreadsRecord.now(2, "cpu")
    assert found is not None and found.busy
    assert found.load == 4.0  # of this process's cores
    assert not ThreadsRecord(count=2, waiting="short spin", cores=2, load=0.1).busy


@pytest.mark.parametrize(("others", "is_shared"), [(1, False), (3, True)])
def test_a_gpu_is_shared_if_others_hold_its_memory(
    others: int, is_shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 10 * 2**30)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: ((70 - others) * 2**30, 80 * 2**30))
    assert environment.is_gpu_shared(torch.device("cuda")) == is_shared
    assert environment.is_gpu_shared(torch.device("cpu")) is None


MULTIPLYING = """
import torch
from lra.runtime.environment import keep_freed_memory, peak_memory_mib
from models.ops.toeplitz import LagKernel

keep_freed_memory()
torch.manual_seed(0)
x = torch.randn(2, 16384, 64, requires_grad=True)
kernel = torch.randn(2 * 16384 - 1, 64, requires_grad=True)
gradient = torch.randn_like(x)
peaks = []
for step in range(25):
    LagKernel(kernel.T, 1 - 16384).multiply(x).backward(gradient)
    x.grad = kernel.grad = None
    peaks.append(peak_memory_mib(x.device))
print((peaks[-1] - peaks[0]) / (x.numel() * 4 / 2**20))
"""


@pytest.mark.thorough
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's allocator")
def test_the_documented_variable_keeps_the_heap_in_one_piece(tmp_path: Path) -> None:
    no_cache = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", MULTIPLYING], env={**os.environ, **no_cache}, cwd=tmp_path,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert float(done.stdout) < 3  # tensors; without, more than 8
