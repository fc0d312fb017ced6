"""Checkpoints: one complete file each, named by step and checksum."""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import torch
from typing_extensions import TypedDict

from common.errors import DataError, KnownError
from common.files import stream_atomically
from common.untrusted import explain_errors, read_regular
from lra.runtime.errors import UserError
from lra.train.checkpoint_files import NAME, newest_first
from lra.train.self_pretraining import PretrainingResult
from lra.train.state import NEW_RUN, TrainerState

logger = logging.getLogger(__name__)

LARGEST = 64 * 2**30
"""Most bytes of a checkpoint."""
DIGEST_DIGITS = 16
"""Digits of the SHA-256 of its content in a checkpoint's name."""
KEPT = 2
"""Number of checkpoints that are kept, so that a damaged one has a predecessor."""
DAMAGED = ".damaged"
"""End of the names of checkpoints that could not be loaded."""
VERSION = 3
"""Version of the content of a checkpoint; no other one is loaded."""


class RunState(TypedDict):
    """The content of a checkpoint."""

    version: int
    identity: dict[str, Any]
    """What a run must have in common with the one that it resumes."""
    label: str | None
    """Name of the run in tables."""
    metrics_bytes: int
    """Size of metrics.jsonl; what a killed session wrote after it is dropped."""
    trainer: TrainerState
    pretraining: PretrainingResult | None
    """Result of a pretraining that is over; before, the trainer is that of the pretraining."""
    wall_seconds: float
    peak_memory_mib: float
    device: str
    commits: list[str]


class _HashingFile:
    """A file that hashes what is written to it, and keeps the error that ended a write.

    torch replaces that error by one that does not mention the disk or memory.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.hash = hashlib.sha256()
        self.error: OSError | MemoryError | None = None

    def write(self, content: memoryview) -> int:
        """Hash and write a piece."""
        try:
            self.hash.update(content)
            return self._file.write(content)
        except (OSError, MemoryError) as error:
            self.error = error
            raise

    def flush(self) -> None:
        """Do nothing: the file is flushed when it is complete."""


def save_checkpoint(folder: Path, step: int, state: Mapping[str, Any]) -> Path:
    """Write a checkpoint and remove all but the newest two; one process at a time.

    It is hashed while it is written, so that no copy of it is held in memory.

    Args:
        state: a `RunState`.
    Raises: OSError naming the file, for instance for a full disk, and MemoryError; the older
        checkpoints stay.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for leftover in folder.glob(".step-*.tmp"):
        leftover.unlink()  # of a process that was killed while it wrote
    name = f"step-{step:09d}"

    def write(file: IO[bytes]) -> Path:
        hashing = _HashingFile(file)
        try:
            torch.save({"version": VERSION, **state}, hashing)  # pyright: ignore[reportArgumentType]
        except Exception:
            if hashing.error is not None:
                raise hashing.error from None
            raise
        return folder / f"{name}-{hashing.hash.hexdigest()[:DIGEST_DIGITS]}.pt"

    path = stream_atomically(folder / f"{name}.pt", write)
    for old in [other for other in newest_first(folder) if other != path][KEPT - 1 :]:
        old.unlink()
    return path


def load_newest(folder: Path) -> RunState | None:
    """Load the newest valid checkpoint to the CPU; None if there is none.

    A damaged one is renamed, and a warning says so.

    Raises: UserError for a checkpoint of another version of the suite.
    """
    for path in newest_first(folder):
        try:
            return _load(path)
        except DataError as error:
            renamed = path.rename(path.with_name(f"{path.name}{DAMAGED}"))
            logger.warning(
                f"checkpoint {path} is damaged ({error}); it is now called {renamed.name}, and "
                f"the run resumes from an earlier one if there is one"
            )
    return None


def read_newest(folder: Path) -> RunState | None:
    """Load the newest valid checkpoint, as `load_newest` does, without renaming any."""
    for path in newest_first(folder):
        with contextlib.suppress(KnownError, OSError):
            return _load(path)
    return None


def describe_missing(folder: Path) -> str:
    """Say why no checkpoint in a folder can be loaded, and what to do about it."""
    unreadable = [*newest_first(folder), *sorted(folder.glob(f"step-*{DAMAGED}"), reverse=True)]
    if not unreadable:
        return "there is no checkpoint of this run"
    return (
        f"the checkpoint {unreadable[0]} is damaged, or of another version of the suite; train the "
        f"run again with --resume never, or copy the file again from where it is whole"
    )


def _load(path: Path) -> RunState:
    """Load a checkpoint to the CPU.

    Raises: DataError for a damaged file, UserError for one of another version of the suite.
    """
    match = NAME.fullmatch(path.name)
    content = read_regular(path, largest=LARGEST)
    if match is None or hashlib.sha256(content).hexdigest()[:DIGEST_DIGITS] != match[2]:
        raise DataError("its content does not have the checksum in its name")
    with explain_errors("its content"):
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        version = state.get("version")
    if version != VERSION:
        raise UserError(
            f"{path} is a checkpoint of version {version}, expected {VERSION}: another version of "
            f"the suite wrote it; {NEW_RUN}"
        )
    return state
