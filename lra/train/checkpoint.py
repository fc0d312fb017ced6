"""Checkpoints: one complete file each, named by step and checksum."""

from __future__ import annotations

import hashlib
import io
import logging
import re
from pathlib import Path
from typing import Any

import torch

from lra.runtime.files import write_atomically

logger = logging.getLogger(__name__)

KEPT = 2
"""Checkpoints kept, so that a damaged one has a predecessor."""

_NAME = re.compile(r"step-(\d{9})-([0-9a-f]{16})\.pt")


def save_checkpoint(folder: Path, step: int, state: dict[str, Any]) -> Path:
    """Write a checkpoint and remove all but the newest two; one process at a time.

    Args:
        state: tensors, numbers, strings, lists and dicts only.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for leftover in folder.glob(".step-*.tmp"):
        leftover.unlink()  # of a process that was killed while it wrote
    buffer = io.BytesIO()
    torch.save(state, buffer)
    content = buffer.getvalue()
    path = folder / f"step-{step:09d}-{_digest(content)}.pt"
    write_atomically(path, content)
    for old in [other for other in _newest_first(folder) if other != path][KEPT - 1 :]:
        old.unlink()
    return path


def load_newest(folder: Path) -> dict[str, Any] | None:
    """Load the newest checkpoint that is whole, to the CPU, or None where there is none.

    A damaged one is set aside under another name, and said so.
    """
    for path in _newest_first(folder):
        if (state := _load_whole(path)) is not None:
            return state
        path.rename(path.with_name(f"{path.name}.damaged"))
        logger.info(
            f"checkpoint {path} is damaged and set aside; falling back to the one before it"
        )
    return None


def read_newest(folder: Path) -> dict[str, Any] | None:
    """Load the newest checkpoint that is whole and leave all as they are; None without one."""
    return next((s for path in _newest_first(folder) if (s := _load_whole(path)) is not None), None)


def _load_whole(path: Path) -> dict[str, Any] | None:
    """Load a checkpoint to the CPU; None if its content is not what its name says."""
    content = path.read_bytes()
    match = _NAME.fullmatch(path.name)
    if match is None or _digest(content) != match[2]:
        return None
    return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)


def _newest_first(folder: Path) -> list[Path]:
    """List checkpoints by step, and by time where steps are equal."""
    paths = [path for path in folder.glob("step-*.pt") if _NAME.fullmatch(path.name)]
    return sorted(paths, key=lambda path: (path.name[:14], path.stat().st_mtime_ns), reverse=True)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
