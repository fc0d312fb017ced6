"""Checkpoints: the complete state of a run in one file, named by step and checksum."""

import contextlib
import hashlib
import io
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import torch
from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from lra.common.errors import DataError, UserError
from lra.common.files import stream_atomically
from lra.common.untrusted import explain_errors, open_regular, read_regular
from lra.record.run import PretrainingRecord
from lra.schema import Count, RowLabel, fault_of
from lra.train.run_record import SessionState
from lra.train.state import TrainerState

logger = logging.getLogger(__name__)

NAME = re.compile(r"step-(\d{9})-([0-9a-f]{16})\.pt")
"""Name of a checkpoint: its step, and the start of the SHA-256 of its content."""
LARGEST = 64 * 2**30
"""Most bytes of a checkpoint."""
KEPT = 2
"""Number of checkpoints that are kept, so that a damaged one has a predecessor."""
DAMAGED = ".damaged"
"""End of the names of checkpoints that could not be loaded."""
VERSION = 5
"""Version of the content of a checkpoint; no other one is loaded."""
LAST_COMMITS = {3: "ef19c7a3", 4: "40fe0e88"}
"""By an earlier version, the last commit that loads it."""
NEW_RUN = "use --resume never to start a new run"


class Identity(TypedDict):
    """What a run must have in common with the one that it resumes; `hash` is of its settings."""

    hash: str
    seed: int
    source: str
    data: str


@with_config(
    ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, arbitrary_types_allowed=True)
)
class RunState(TypedDict):
    """The content of a checkpoint, which `Run` and `RunFolder` put together."""

    identity: Identity
    label: RowLabel | None
    trainer: TrainerState
    pretraining: PretrainingRecord | None
    session: SessionState
    metrics_bytes: Count
    internals_bytes: Count
    """Sizes of the logs."""


SCHEMA = TypeAdapter(RunState)


def newest_first(folder: Path) -> list[Path]:
    """List checkpoints by step, and by time where steps are equal."""
    paths = [path for path in folder.glob("step-*.pt") if NAME.fullmatch(path.name)]
    return sorted(paths, key=lambda path: (path.name[:14], path.lstat().st_mtime_ns), reverse=True)


def _name(step: int, file: IO[bytes]) -> str:
    digest = hashlib.file_digest(file, "sha256")  # pyright: ignore[reportArgumentType]
    return f"step-{step:09d}-{digest.hexdigest()[:16]}.pt"


def save_checkpoint(folder: Path, step: int, state: Mapping[str, Any]) -> Path:
    """Write a checkpoint and remove all but the newest two; one process at a time.

    Args:
        state: a `RunState`, whose record of a pretraining is a dictionary.
    Raises: OSError naming the file, for instance for a full disk, and MemoryError; the older
        checkpoints stay.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for leftover in folder.glob(".step-*.tmp"):
        leftover.unlink()  # of a process that was killed while it wrote

    def write(file: IO[bytes]) -> Path:
        try:
            torch.save({"version": VERSION, **state}, file)
        except RuntimeError as error:
            if isinstance(error.__context__, OSError):  # of the disk, which torch does not mention
                raise error.__context__ from None
            raise
        file.flush()
        with open_regular(Path(file.name)) as written:
            return folder / _name(step, written)

    path = stream_atomically(folder / f"step-{step:09d}.pt", write)
    for old in [other for other in newest_first(folder) if other != path][KEPT - 1 :]:
        old.unlink()
    return path


def load_newest(folder: Path, fault: str | None = None) -> RunState | None:
    """Load the newest valid checkpoint to the CPU; None if there is none.

    A damaged one is renamed, and a warning says so.

    Args:
        fault: why the newest one, which is valid, does not fit; it is damaged, too.
    Raises: UserError for a checkpoint of another version of the suite.
    """
    for path in newest_first(folder):
        try:
            if fault is None:
                return _load(path)
        except DataError as error:
            fault = str(error)
        renamed = path.rename(path.with_name(f"{path.name}{DAMAGED}"))
        logger.warning(
            f"checkpoint {path} is damaged ({fault}); it is now called {renamed.name}, and the run "
            f"resumes from an earlier one if there is one"
        )
        fault = None
    return None


def read_newest(folder: Path) -> RunState | None:
    """Load the newest valid checkpoint, as `load_newest` does, without renaming any.

    Raises: UserError for a checkpoint of another version of the suite.
    """
    for path in newest_first(folder):
        with contextlib.suppress(DataError, OSError):
            return _load(path)
    return None


def _load(path: Path) -> RunState:
    """Load a checkpoint to the CPU.

    Raises: DataError for a damaged file, UserError for one of another version of the suite.
    """
    content = io.BytesIO(read_regular(path, largest=LARGEST))
    if path.name != _name(int(path.name[5:14]), content):
        raise DataError("its content does not have the checksum in its name")
    content.seek(0)
    with explain_errors("its content"):
        state = torch.load(content, map_location="cpu", weights_only=True)
        version = int(state.pop("version", 0))
    if version != VERSION:
        commit = LAST_COMMITS.get(version)
        advice = f"go on at commit {commit} of the suite, or " if commit else ""
        raise UserError(
            f"{path} is a checkpoint of version {version}, expected {VERSION}: another version of "
            f"the suite wrote it; {advice}{NEW_RUN}"
        )
    try:
        state = SCHEMA.validate_python(state)
    except ValidationError as error:
        raise DataError(f"its content does not fit: {fault_of(error)}") from None
    best, model = state["trainer"]["best"], state["trainer"]["model"]
    if best and best["model"].keys() != model.keys():  # torch loads without a batch norm's counter
        raise DataError("its best model has other weights than the last one")
    before = state["pretraining"].steps if state["pretraining"] else 0
    if before + state["trainer"]["step"] != int(path.name[5:14]):
        raise DataError("its content is of another step than its name")
    return state
