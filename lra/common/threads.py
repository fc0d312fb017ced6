"""How many cores this process may use, how many threads compute, and how threads wait.

Threads that are done with their share of an operation wait for the others at a barrier, and spin
there for a while before they sleep. GNU's OpenMP spins for longer than a time slice of the system:
beside a process that keeps all cores busy a step then takes ten times as long, as threads spin
while those they wait for have no core. Asleep at once, threads take a third longer on an idle
machine. A short spin costs neither.
"""

import contextlib
import os
from pathlib import Path
from typing import Final

QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""Where Linux says how many microseconds of CPU time a container may take in a period of others."""

MOST_THREADS: Final = 1024
_WAITING_VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
SHORT_SPIN = {"GOMP_SPINCOUNT": "10000", "KMP_BLOCKTIME": "1"}
"""Variables by GNU's OpenMP, in rounds, some 0.2 ms: longer than what threads differ by in one
operation; and in milliseconds by LLVM's and Intel's, which otherwise spin for 200."""


def visible_cores() -> list[int]:
    """List the cores that this process may run on, whatever its quota."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def core_count() -> int:
    """Return how many cores this process may keep busy; a quota of 2.5 CPUs counts as 2 cores.

    A container that may use 2 CPUs of a host with 64 cores sees all 64.
    """
    count = len(visible_cores())
    with contextlib.suppress(OSError, ValueError):  # "max 100000" is no quota
        quota, period = map(int, QUOTA.read_text().split())
        return max(1, min(count, quota // period))
    return count


def free_cores() -> float:
    """Measure for a moment how many visible cores other processes leave idle; do not compute."""
    import psutil

    idle = [1 - busy / 100 for busy in psutil.cpu_percent(0.1, percpu=True)]
    return sum(idle[core] for core in visible_cores() if core < len(idle))


def choose_waiting() -> None:
    """Let threads wait with a short spin; OpenMP must not be loaded yet, nor torch with it.

    What the environment says of waiting holds. Processes that are started later wait so, too.
    """
    if not any(name in os.environ for name in _WAITING_VARIABLES):
        os.environ.update(SHORT_SPIN)


def default_count() -> int | None:
    """Return how many threads fit a quota that torch does not see; None without one."""
    import psutil

    cores = core_count()
    if cores >= len(visible_cores()) or "OMP_NUM_THREADS" in os.environ:
        return None
    return min(cores, psutil.cpu_count(logical=False) or cores)
