"""How many cores this process may use: its affinity, and the quota of its container.

A container that may use 2 CPUs of a host with 64 cores sees all 64.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""Where Linux says how many microseconds of CPU time a container may take in a period of others."""


def visible_cores() -> list[int]:
    """List the cores that this process may run on, whatever its quota."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def core_count() -> int:
    """Return how many cores this process may keep busy; a quota of 2.5 CPUs counts as 2 cores."""
    count = len(visible_cores())
    with contextlib.suppress(OSError, ValueError):  # "max 100000" is no quota
        quota, period = map(int, QUOTA.read_text().split())
        return max(1, min(count, quota // period))
    return count
