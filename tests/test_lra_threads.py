"""How many threads a command computes with, how they wait, and the memory that it keeps."""

from __future__ import annotations

import os

import pytest
import torch

from common import threads
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
