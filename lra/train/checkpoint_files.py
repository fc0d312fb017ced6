"""The files of checkpoints: their names, and which is the newest."""

from __future__ import annotations

import re
from pathlib import Path

NAME = re.compile(r"step-(\d{9})-([0-9a-f]{16})\.pt")
"""Name of a checkpoint: its step, and the start of the SHA-256 of its content."""


def newest_first(folder: Path) -> list[Path]:
    """List checkpoints by step, and by time where steps are equal."""
    paths = [path for path in folder.glob("step-*.pt") if NAME.fullmatch(path.name)]
    return sorted(paths, key=lambda path: (path.name[:14], path.lstat().st_mtime_ns), reverse=True)
