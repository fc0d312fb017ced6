"""Checkpoints: the complete state of a run in one file, named by step and checksum."""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from common.errors import DataError, KnownError, UserError
from common.files import stream_atomically
from common.untrusted import explain_errors, read_regular
from lra.runtime.environment import RandomState, random_state, restore_random_state
from lra.train.schedule import Plateau
from lra.train.trainer import Trainer

logger = logging.getLogger(__name__)

NAME = re.compile(r"step-(\d{9})-([0-9a-f]{16})\.pt")
"""Name of a checkpoint: its step, and the start of the SHA-256 of its content."""
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
NEW_RUN = "use --resume never to start a new run"
RunState = dict[str, Any]
"""The content of a checkpoint, which `Run` and `RunFolder` put together."""


def newest_first(folder: Path) -> list[Path]:
    """List checkpoints by step, and by time where steps are equal."""
    paths = [path for path in folder.glob("step-*.pt") if NAME.fullmatch(path.name)]
    return sorted(paths, key=lambda path: (path.name[:14], path.lstat().st_mtime_ns), reverse=True)


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


def capture(trainer: Trainer) -> dict[str, Any]:
    """Capture everything that later steps depend on; all processes must take part.

    Raises: Diverged, see `Trainer.read`.
    """
    trainer.read()
    metrics = trainer.metrics
    return {
        "step": trainer.step,
        "seconds": metrics.seconds,
        "validated_step": trainer.validated_step,
        "validated_seconds": trainer.validated_seconds,
        "model": trainer.model.state_dict(),
        "optimizer": trainer.optimizer.state_dict(),
        "plateau": asdict(trainer.plateau),
        "random": trainer.group.gather(random_state(trainer.device)),
        "best": trainer.best,
        "sums": metrics.sums,
        "step_seconds": metrics.step_seconds,
        "step_flops": metrics.step_flops,
    }


def restore(trainer: Trainer, state: dict[str, Any]) -> None:
    """Give a trainer a state that `capture` returned.

    Raises: UserError for weights of another version of the model; DataError for a state that does
        not fit the trainer in another way.
    """
    with explain_errors("the checkpoint", NEW_RUN):
        _require_same_weights(trainer, state["model"])
        if state["best"] is not None:
            _require_same_weights(trainer, state["best"]["model"])
        trainer.model.load_state_dict(state["model"])
        _restore_optimizer(trainer.optimizer, state["optimizer"])
        trainer.plateau = Plateau(**state["plateau"])
        trainer.step = state["step"]
        trainer.validated_step = state["validated_step"]
        trainer.validated_seconds = state["validated_seconds"]
        trainer.best = state["best"]
        for name in ("seconds", "sums", "step_seconds", "step_flops"):
            setattr(trainer.metrics, name, state[name])
        _restore_random_state(trainer, state["random"])


def _require_same_weights(trainer: Trainer, saved: Mapping[str, Tensor]) -> None:
    """Refuse weights that differ from the model's in name, shape or type."""
    own, found = (
        {name: (weight.shape, weight.dtype) for name, weight in weights.items()}
        for weights in (trainer.model.state_dict(), saved)
    )
    if own != found:
        other = sorted(n for n in own.keys() | found.keys() if own.get(n) != found.get(n))
        raise UserError(
            f"the checkpoint is of another version of mixer {trainer.config.mixer_name}, whose "
            f"weight {other[0]} differs; {NEW_RUN}"
        )


def _restore_optimizer(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """Load a saved state whose moments fit the parameters, which torch does not check.

    Raises: ValueError if they do not.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for index, moments in saved["state"].items():
        shapes = {moment.shape for name, moment in moments.items() if name != "step"}
        if shapes != {parameters[index].shape}:
            raise ValueError("moments of other parameters in the optimizer")
    optimizer.load_state_dict(saved)


def _restore_random_state(trainer: Trainer, states: list[RandomState]) -> None:
    """Give each process its generators back; if their number has changed, the main one's."""
    if len(states) == trainer.group.world_size:
        restore_random_state(states[trainer.group.rank], trainer.device)
    else:
        restore_random_state(states[0], trainer.device)
        trainer.group.seed_rank(trainer.order.seed, trainer.step)
