"""How many cores this process may use: its affinity, and the quotas of its control groups.

A container that may use 2 CPUs of a host with 64 cores sees all 64. Linux keeps its quota in the
control group (cgroup) of the process, or in one that this group is part of.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

GROUPS, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
"""The folder of all control groups, and the file that names those of this process."""


def visible_cores() -> list[int]:
    """List the cores that this process may run on, whatever its quota."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def core_count() -> int:
    """Return how many cores this process may keep busy; a quota of 2.5 CPUs counts as 2 cores."""
    quota = cpu_quota()
    count = len(visible_cores())
    return count if quota is None else max(1, min(count, int(quota)))


def cpu_quota() -> float | None:
    """Return the fewest cores that this process's control group, or one above it, may use."""
    quotas: list[float] = []
    with contextlib.suppress(OSError, ValueError):
        for line in OWN.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            top = GROUPS / "cpu" if controllers else GROUPS  # of version 1 and 2
            if not controllers or "cpu" in controllers.split(","):
                # A container may see its group as the top, but named from outside.
                folder = top / path.replace("..", "").strip("/")
                quotas += map(
                    _read, (f for f in (folder, *folder.parents) if f.is_relative_to(top))
                )
    return min((quota for quota in quotas if quota > 0), default=None)


def _read(folder: Path) -> float:
    """Read how many cores one control group may use; 0 if it has no quota."""
    with contextlib.suppress(OSError, ValueError):
        if (path := folder / "cpu.max").is_file():
            quota, period = path.read_text().split()
        else:
            quota, period = ((folder / f"cpu.cfs_{x}_us").read_text() for x in ("quota", "period"))
        return int(quota) / (int(period) or 1)  # "max" or -1 where there is none
    return 0
