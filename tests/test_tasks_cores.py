"""How many cores a process may use, read from made control groups."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from common import cores
from common.cores import core_count, cpu_quota

V2 = "0::{path}\n"
V1 = "12:memory:/\n4:cpu,cpuacct:{path}\n0::/\n"


def made(
    folder: Path, files: Mapping[str, str], *, version: int = 2, path: str = "/", root: str = "/"
) -> Path:
    """Make /proc/self of a process in a control group, and the groups' files; return the former."""
    point = folder / "cpu-groups"
    for name, text in files.items():
        (point / name).parent.mkdir(parents=True, exist_ok=True)
        (point / name).write_text(text)
    proc = folder / "proc"
    proc.mkdir()
    (proc / "cgroup").write_text((V2 if version == 2 else V1).format(path=path))
    kind, options = ("cgroup2", "rw") if version == 2 else ("cgroup", "rw,cpu,cpuacct")
    (proc / "mountinfo").write_text(
        "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        "30 22 0:9 / /other rw - cgroup cgroup rw,memory\n"
        f"31 22 0:8 {root} {point} rw,nosuid shared:4 - {kind} cgroup {options}\n"
    )
    return proc


@pytest.mark.parametrize(
    ("files", "where", "expected"),
    [
        ({"cpu.max": "200000 100000\n"}, {}, 2.0),
        ({"cpu.max": "150000 100000\n"}, {}, 1.5),
        ({"cpu.max": "max 100000\n"}, {}, None),
        ({"cpu.max": "nonsense\n"}, {}, None),
        ({"cpu.max": "0 0\n"}, {}, None),
        ({}, {}, None),
        # The smallest on the way up counts, whichever it is.
        ({"a/cpu.max": "400000 100000", "a/b/cpu.max": "max 100000"}, {"path": "/a/b"}, 4.0),
        ({"a/cpu.max": "100000 50000", "a/b/cpu.max": "300000 100000"}, {"path": "/a/b"}, 2.0),
        ({"a/cpu.max": "300000 100000", "a/b/cpu.max": "100000 100000"}, {"path": "/a/b"}, 1.0),
        # A sibling's does not.
        ({"c/cpu.max": "100000 100000", "a/cpu.max": "max 100000"}, {"path": "/a"}, None),
        # The container's group is mounted as the root, and named from outside.
        ({"cpu.max": "300000 100000"}, {"path": "/docker/x", "root": "/docker/x"}, 3.0),
        ({"cpu.max": "300000 100000"}, {"path": "/docker/x", "root": "/docker/y"}, 3.0),
        ({"cpu.max": "300000 100000"}, {"path": "/../../x"}, 3.0),
        (
            {"cpu.cfs_quota_us": "250000\n", "cpu.cfs_period_us": "100000\n"},
            {"version": 1},
            2.5,
        ),
        ({"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n"}, {"version": 1}, None),
        (
            {"k/cpu.cfs_quota_us": "50000\n", "k/cpu.cfs_period_us": "100000\n"},
            {"version": 1, "path": "/k/pod"},
            0.5,
        ),
    ],
)
def test_the_smallest_quota_on_the_way_up_is_found(
    tmp_path: Path, files: dict[str, str], where: dict[str, object], expected: float | None
) -> None:
    quota = cpu_quota(made(tmp_path, files, **where))  # pyright: ignore[reportArgumentType]
    assert quota == expected


@pytest.mark.parametrize(
    ("quota", "expected"), [(None, 64), (0.5, 1), (2.0, 2), (2.5, 2), (100.0, 64)]
)
def test_a_quota_counts_in_whole_cores(
    quota: float | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cores, "visible_cores", lambda: list(range(64)))
    monkeypatch.setattr(cores, "cpu_quota", lambda: quota)
    assert core_count() == expected


def test_the_affinity_limits_the_visible_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {3, 1}, raising=False)
    monkeypatch.setattr(cores, "cpu_quota", lambda: None)
    assert core_count() == 2


def test_a_system_without_control_groups_has_no_quota(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path) is None
