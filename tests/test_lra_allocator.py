"""The heap of a program: what its start says of it, and that it stays in one piece."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT
from lra.runtime import allocator
from lra.runtime.allocator import whole_heap_variables

NO_CACHE = "glibc.malloc.tcache_count=0"
only_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's allocator")


@only_glibc
@pytest.mark.parametrize(
    ("set_before", "expected"),
    [
        (None, {"GLIBC_TUNABLES": NO_CACHE}),
        ("", {"GLIBC_TUNABLES": NO_CACHE}),
        ("glibc.malloc.check=1", {"GLIBC_TUNABLES": f"glibc.malloc.check=1:{NO_CACHE}"}),
        (NO_CACHE, {}),
        ("glibc.malloc.tcache_count=7", {}),
    ],
)
def test_what_the_user_says_of_the_allocator_holds(
    set_before: str | None, expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    if set_before is not None:
        monkeypatch.setenv("GLIBC_TUNABLES", set_before)
    assert whole_heap_variables() == expected


def test_another_c_library_has_nothing_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator.platform, "libc_ver", lambda: ("", ""))
    assert whole_heap_variables() == {}


STARTING = """
import os, sys
from lra.runtime.allocator import start_with_whole_heap
print(os.getpid(), flush=True)
{before}
start_with_whole_heap()
print(os.environ.get("GLIBC_TUNABLES"), sys.argv[1:], sys.flags.dont_write_bytecode)
"""


def started(tmp_path: Path, before: str = "", **variables: str) -> list[str]:
    """Run a program that starts anew; return its lines."""
    script = tmp_path / "starts.py"
    script.write_text(STARTING.format(before=before))
    environment = {name: value for name, value in os.environ.items() if name != "GLIBC_TUNABLES"}
    environment |= {"PYTHONPATH": str(ROOT), **variables}
    command = [sys.executable, "-B", str(script), "a b", "--c=*"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@only_glibc
def test_a_program_starts_anew_once_as_the_same_process_with_its_arguments(tmp_path: Path) -> None:
    first, second, told = started(tmp_path)
    assert first == second
    assert told == f"{NO_CACHE} ['a b', '--c=*'] 1"


@only_glibc
@pytest.mark.parametrize(
    "before",
    [
        "sys.settrace(lambda *_: None)",
        "sys.argv = ['another program']",
        "sys.executable = ''",
        "sys.executable = 'not/there'",
    ],
)
def test_a_program_that_cannot_start_anew_goes_on(before: str, tmp_path: Path) -> None:
    _, told = started(tmp_path, before)
    assert told.startswith("None [")


def test_a_program_that_has_a_whole_heap_goes_on(tmp_path: Path) -> None:
    assert len(started(tmp_path, GLIBC_TUNABLES=NO_CACHE)) == 2


MULTIPLYING = """
import torch
from lra.runtime.allocator import keep_freed_memory
from lra.runtime.environment import peak_memory_mib
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
tensor = x.numel() * 4 / 2**20
print((peaks[-1] - peaks[0]) / tensor)
"""


@only_glibc
@pytest.mark.slow
def test_the_heap_stays_in_one_piece() -> None:
    environment = {**os.environ, "GLIBC_TUNABLES": NO_CACHE, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", MULTIPLYING]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert float(done.stdout) < 3  # tensors; without, more than 8
