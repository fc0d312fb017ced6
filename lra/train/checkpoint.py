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
from pydantic import ValidationError

from common.errors import DataError
from common.files import stream_atomically
from common.untrusted import explain_errors, read_regular
from lra.record.schema import fault_of
from lra.train.checkpoint_files import NAME, newest_first
from lra.train.state import RunState, check_run_state

logger = logging.getLogger(__name__)

LARGEST = 64 * 2**30
"""Most bytes of a checkpoint."""
DIGEST_DIGITS = 16
"""Digits of the SHA-256 of its content in a checkpoint's name."""
KEPT = 2
"""Number of checkpoints that are kept, so that a damaged one has a predecessor."""
DAMAGED = ".damaged"
"""End of the names of checkpoints that could not be loaded."""


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
            torch.save(state, hashing)  # pyright: ignore[reportArgumentType]
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

    A damaged one, or a file with other content, is renamed, and a warning says so.
    """
    for path in newest_first(folder):
        state = _load(path)
        if not isinstance(state, str):
            return state
        renamed = path.rename(path.with_name(f"{path.name}{DAMAGED}"))
        logger.warning(
            f"checkpoint {path} is damaged ({state}); it is now called {renamed.name}, and the run "
            f"resumes from an earlier one if there is one"
        )
    return None


def read_newest(folder: Path) -> RunState | None:
    """Load the newest valid checkpoint, as `load_newest` does, without renaming any."""
    for path in newest_first(folder):
        with contextlib.suppress(OSError):
            state = _load(path)
            if not isinstance(state, str):
                return state
    return None


def describe_missing(folder: Path) -> str:
    """Say why no checkpoint in a folder can be loaded, and what to do about it."""
    damaged = [*newest_first(folder), *sorted(folder.glob(f"step-*{DAMAGED}"), reverse=True)]
    if not damaged:
        return "there is no checkpoint of this run"
    return (
        f"the checkpoint {damaged[0]} is damaged; train the run again with --resume never, or copy "
        f"the file again from where it is whole"
    )


def _load(path: Path) -> RunState | str:
    """Load a checkpoint to the CPU, or say why the file is none."""
    match = NAME.fullmatch(path.name)
    try:
        content = read_regular(path, largest=LARGEST)
        if match is None or hashlib.sha256(content).hexdigest()[:DIGEST_DIGITS] != match[2]:
            return "its content does not have the checksum in its name"
        with explain_errors("its content"):
            state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        return check_run_state(state)
    except ValidationError as error:
        return f"its content is not the state of a run: {fault_of(error)}"
    except (DataError, ValueError) as error:
        return str(error)
