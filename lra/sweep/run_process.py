"""The process of a run, on whichever machine a launcher starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from common.files import open_to_append
from lra.runtime.repository import ROOT

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node")
"""Starts several processes of one run, from Python; the number of processes follows."""


def write_command(arguments: Sequence[str], processes: int = 1) -> list[str]:
    """Write the command that makes a run with this Python.

    Args:
        arguments: of run_task.py.
        processes: processes that torchrun divides the run between; 1: without torchrun.
    """
    start = [*TORCHRUN, str(processes)] if processes > 1 else []
    return [sys.executable, *start, str(ROOT / "run_task.py"), *arguments]


def start_run(
    command: Sequence[str], log: Path, variables: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start the process of a run, which stops when this process has ended.

    Args:
        command: see `write_command`.
        log: file that the output is appended to.
        variables: variables of its environment that differ from those of this process.
    """
    with open_to_append(log) as file:
        # In a session of its own: Ctrl-C reaches only this process, which asks the run to stop.
        return subprocess.Popen(
            [*command, "--stop-with", str(os.getpid())],
            stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True,
            env={**os.environ, **(variables or {})},
        )  # fmt: skip
