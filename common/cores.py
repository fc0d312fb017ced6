"""How many cores this process may use: its affinity, and the quotas of its control groups.

A container that may use 2 CPUs of a host with 64 cores sees all 64. Linux keeps its quota in the
control group (cgroup) of the process, or in one that this group is part of.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

PROC = Path("/proc/self")


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


def cpu_quota(proc: Path = PROC) -> float | None:
    """Return the fewest cores that this process's control group, or one above it, may use.

    Args:
        proc: folder with the files `cgroup` and `mountinfo` of the process.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        quotas = [quota for folder in _folders(proc) if (quota := _read(folder)) is not None]
        return min(quotas, default=None)
    return None


def _folders(proc: Path) -> Iterator[Path]:
    """List the folders of the control groups that limit CPU time, of version 1 and 2."""
    paths: dict[str, str] = {}
    for line in (proc / "cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        kind = "cgroup2" if number == "0" else "cgroup"
        if kind == "cgroup2" or "cpu" in controllers.split(","):
            paths[kind] = path
    for line in (proc / "mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split()[:3]
        if kind not in paths or (kind == "cgroup" and "cpu" not in options.split(",")):
            continue
        root, point = before.split()[3:5]
        path = PurePosixPath(paths[kind])
        is_below = path.is_relative_to(root) and ".." not in path.parts
        inner = path.relative_to(root) if is_below else PurePosixPath()
        for part in (inner, *inner.parents):
            yield Path(point) / part


def _read(folder: Path) -> float | None:
    """Read how many cores one control group may use; None if it has no quota."""
    with contextlib.suppress(OSError, ValueError):
        if (path := folder / "cpu.max").is_file():
            quota, period = path.read_text().split()
        else:
            quota, period = (
                (folder / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period")
            )
        if quota.isdecimal() and int(quota) > 0 and int(period) > 0:  # else "max" or -1
            return int(quota) / int(period)
    return None
