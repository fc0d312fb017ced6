"""Processes as torchrun starts them, each with a command line of its own, without torchrun."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]

from conftest import PATIENCE, ROOT

Rank = subprocess.Popen[str]


def torchrun_environment(port: int, size: int) -> dict[str, str]:
    """Return what torchrun tells every process of one machine.

    Args:
        port: of its store.
        size: number of processes.
    """
    return {
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": "test",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }


@contextlib.contextmanager
def started(script: Path, arguments: Sequence[Sequence[str]]) -> Iterator[list[Rank]]:
    """Start a script once for each rank; the store that torchrun would provide lives here.

    Args:
        arguments: those of each rank.
    """
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    environment = {
        **os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT),
        **torchrun_environment(store.port, len(arguments)),
    }  # fmt: skip
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script), *own],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
            env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank, own in enumerate(arguments)
    ]  # fmt: skip
    try:
        yield ranks
    finally:
        for process in ranks:
            process.kill()
            process.communicate()


def ends(ranks: Sequence[Rank]) -> tuple[list[int], list[str], list[str]]:
    """Wait for all ranks; return their exit codes and what they wrote: stdout, and stderr."""
    written = [process.communicate(timeout=PATIENCE) for process in ranks]
    return (
        [process.returncode for process in ranks],
        [out for out, _ in written],
        [err for _, err in written],
    )
