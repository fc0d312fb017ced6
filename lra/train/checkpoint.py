"""Checkpoints: the complete state of a run in one file, named by step and checksum."""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import re
import textwrap
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import torch

from common.errors import DataError, KnownError, UserError
from common.files import stream_atomically
from common.untrusted import explain_errors, open_regular, read_regular
from lra.runtime.environment import random_state, restore_random_state
from lra.train.optimizer import Plateau
from lra.train.trainer import Trainer

logger = logging.getLogger(__name__)

NAME = re.compile(r"step-(\d{9})-([0-9a-f]{16})\.pt")
"""Name of a checkpoint: its step, and the start of the SHA-256 of its content."""
LARGEST = 64 * 2**30
"""Most bytes of a checkpoint."""
KEPT = 2
"""Number of checkpoints that are kept, so that a damaged one has a predecessor."""
DAMAGED = ".damaged"
"""End of the names of checkpoints that could not be loaded."""
VERSION = 3
"""Version of the content of a checkpoint; no other one is loaded."""
OF_TRAINER = ("step", "validated_step", "validated_seconds", "best")
OF_METRICS = ("seconds", "sums", "step_seconds", "step_flops")
"""Plain values that later steps depend on: attributes of a trainer, and of its metrics."""
NEW_RUN = "use --resume never to start a new run"
RunState = dict[str, Any]
"""The content of a checkpoint, which `Run` and `RunFolder` put together."""


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
        state: a `RunState`.
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
    return {
        **{name: getattr(trainer, name) for name in OF_TRAINER},
        **{name: getattr(trainer.metrics, name) for name in OF_METRICS},
        "model": trainer.model.state_dict(),
        "optimizer": trainer.optimizer.state_dict(),
        "plateau": asdict(trainer.plateau),
        "random": trainer.group.gather(random_state(trainer.device)),
    }


def restore(trainer: Trainer, state: dict[str, Any]) -> None:
    """Give a trainer a state that `capture` returned.

    Raises: UserError for weights of another version of the model; DataError for a state that does
        not fit the trainer in another way.
    """
    with explain_errors("the checkpoint", NEW_RUN):
        best, group = state["best"], trainer.group
        # The best model is only checked, so that it does not fail in the test.
        for weights in [state["model"]] if best is None else [best["model"], state["model"]]:
            try:
                trainer.model.load_state_dict(weights)
            except RuntimeError as error:
                raise UserError(
                    f"the checkpoint is of another version of mixer {trainer.config.mixer_name}: "
                    f"{textwrap.shorten(str(error), 200)}; {NEW_RUN}"
                ) from None
        groups = trainer.optimizer.param_groups
        parameters = [parameter for one in groups for parameter in one["params"]]
        for index, moments in state["optimizer"]["state"].items():
            shapes = {moment.shape for name, moment in moments.items() if name != "step"}
            if shapes != {parameters[index].shape}:  # torch does not check them
                raise ValueError("moments of other parameters in the optimizer")
        trainer.optimizer.load_state_dict(state["optimizer"])
        trainer.plateau = Plateau(**state["plateau"])
        for name in OF_TRAINER:
            setattr(trainer, name, state[name])
        for name in OF_METRICS:
            setattr(trainer.metrics, name, state[name])
        is_same = len(state["random"]) == group.world_size
        restore_random_state(state["random"][group.rank if is_same else 0], trainer.device)
        if not is_same:
            group.seed_rank(trainer.order.seed, trainer.step)
