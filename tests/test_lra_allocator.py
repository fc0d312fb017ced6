"""The heap of a program: how much memory of freed tensors it keeps."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from conftest import ROOT

only_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's allocator")

MULTIPLYING = """
import torch
from lra.runtime.environment import keep_freed_memory
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
@pytest.mark.thorough
def test_the_documented_variable_keeps_the_heap_in_one_piece() -> None:
    no_cache = "glibc.malloc.tcache_count=0"
    environment = {**os.environ, "GLIBC_TUNABLES": no_cache, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", MULTIPLYING]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert float(done.stdout) < 3  # tensors; without, more than 8
