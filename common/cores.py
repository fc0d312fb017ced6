"""How many cores this process may use: its affinity, and the quotas of its control groups.

A container that may use 2 CPUs of a host with 64 cores sees all 64. Linux keeps its quota in the
control group (cgroup) of the process, or in one that this group is part of.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

PROC = Path("/proc/self")


@dataclass(frozen=True)
class Quota:
    """A limit of CPU time on a control group."""

    cores: float
    """How many cores the processes of the group may use together."""
    folder: Path
    """The group's folder."""

    def used_seconds(self) -> float | None:
        """Return the CPU time that the group has used; None if the system does not say."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            if (path := self.folder / "cpu.stat").is_file():
                fields = dict(line.split() for line in path.read_text().splitlines())
                if "usage_usec" in fields:
                    return int(fields["usage_usec"]) / 1e6
            return int((self.folder / "cpuacct.usage").read_text()) / 1e9
        return None


def visible_cores() -> list[int]:
    """List the cores that this process may run on, whatever its quota."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def core_count() -> int:
    """Return how many cores this process may keep busy; a quota of 2.5 CPUs counts as 2 cores."""
    quota = cpu_quota()
    count = len(visible_cores())
    return count if quota is None else max(1, min(count, int(quota.cores)))


def cpu_quota(proc: Path = PROC) -> Quota | None:
    """Return the smallest quota among this process's control group and those that it is part of.

    Args:
        proc: folder with the files `cgroup` and `mountinfo` of the process.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        quotas = [quota for folder in _folders(proc) if (quota := _read(folder)) is not None]
        return min(quotas, key=lambda quota: quota.cores, default=None)
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


def _read(folder: Path) -> Quota | None:
    """Read the quota of one control group; None if it has none."""
    with contextlib.suppress(OSError, ValueError):
        if (path := folder / "cpu.max").is_file():
            quota, period = path.read_text().split()
        else:
            quota, period = (
                (folder / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period")
            )
        if quota.isdecimal() and int(quota) > 0 and int(period) > 0:  # else "max" or -1
            return Quota(int(quota) / int(period), folder)
    return None
