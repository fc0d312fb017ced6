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
"""Digits of the SHA-256 of its content that a checkpoint's name has."""

KEPT = 2
"""Checkpoints kept, so that a damaged one has a predecessor."""

DAMAGED = ".damaged"
"""End of the names of checkpoints that could not be loaded."""


def save_checkpoint(folder: Path, step: int, state: Mapping[str, Any]) -> Path:
    """Write a checkpoint and remove all but the newest two; one process at a time.

    The checkpoint is hashed while it is written, so that no copy of it is held in memory.

    Args:
        state: a `RunState`.
    Raises: OSError naming the file, of a full disk for one, and MemoryError; the older checkpoints
        are left then.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for leftover in folder.glob(".step-*.tmp"):
        leftover.unlink()  # of a process that was killed while it wrote
    name = f"step-{step:09d}"

    def write(file: IO[bytes]) -> Path:
        hashing = _HashingFile(file)
        _serialize(state, hashing)
        return folder / f"{name}-{hashing.digest()}.pt"

    path = stream_atomically(folder / f"{name}.pt", write)
    for old in [other for other in newest_first(folder) if other != path][KEPT - 1 :]:
        old.unlink()
    return path


class _HashingFile:
    """A file to write to that hashes what passes, and keeps the error that ended a write.

    torch raises another error in its place, which says nothing of a disk or of memory.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self.error: OSError | MemoryError | None = None

    def write(self, content: memoryview) -> int:
        """Hash and write a piece."""
        try:
            self._hash.update(content)
            return self._file.write(content)
        except (OSError, MemoryError) as error:
            self.error = error
            raise

    def flush(self) -> None:
        """Do nothing: torch asks for it, and the file is flushed when it is whole."""

    def digest(self) -> str:
        """Return the start of the SHA-256 of all that was written."""
        return self._hash.hexdigest()[:DIGEST_DIGITS]


def _serialize(state: Mapping[str, Any], file: _HashingFile) -> None:
    """Write a state to a file.

    Raises: OSError of the file, or MemoryError.
    """
    try:
        torch.save(state, file)  # pyright: ignore[reportArgumentType]
    except Exception:
        if file.error is not None:
            raise file.error from None
        raise


def load_newest(folder: Path) -> RunState | None:
    """Load the newest sound checkpoint, to the CPU, or None where there is none.

    A damaged one, or one that holds something else, is renamed, and a warning says so.
    """
    for path in newest_first(folder):
        state = _load_sound(path)
        if not isinstance(state, str):
            return state
        renamed = path.rename(path.with_name(f"{path.name}{DAMAGED}"))
        logger.warning(
            f"checkpoint {path} is damaged ({state}); it is now called {renamed.name}, and the run "
            f"resumes from an earlier one if there is one"
        )
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


def read_newest(folder: Path) -> RunState | None:
    """Load the newest sound checkpoint and leave all as they are; None without one."""
    for path in newest_first(folder):
        with contextlib.suppress(OSError):
            state = _load_sound(path)
            if not isinstance(state, str):
                return state
    return None


def _load_sound(path: Path) -> RunState | str:
    """Load a checkpoint to the CPU, or say why it cannot be: it need not be one of ours."""
    match = NAME.fullmatch(path.name)
    try:
        content = read_regular(path, largest=LARGEST)
        if match is None or _digest(content) != match[2]:
            return "its content does not have the checksum in its name"
        with explain_errors("its content"):
            state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        return check_run_state(state)
    except ValidationError as error:
        return f"its content is not the state of a run: {fault_of(error)}"
    except (DataError, ValueError) as error:
        return str(error)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:DIGEST_DIGITS]
