"""Metrics of a run for TensorBoard and Weights & Biases, in addition to its metrics.jsonl."""

from __future__ import annotations

import importlib
import secrets
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.files import name_file_in_errors, write_atomically
from common.untrusted import read_text
from lra.config.schema import RunConfig

WriteMetrics = Callable[[int, Mapping[str, float]], None]
"""Writes the numbers of a step."""


def open_tensorboard(folder: Path, step: int, held: ExitStack) -> WriteMetrics:
    """Open event files in a run's folder, for `tensorboard --logdir results/runs`.

    Args:
        step: where the run goes on; what a killed session wrote after it is dropped.
        held: closes the files.
    Raises: UserError without the package.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UserError("log.tensorboard=true needs the package: pip install tensorboard") from None
    events = folder / "tensorboard"
    writer = SummaryWriter(str(events), purge_step=step + 1)
    held.callback(name_file_in_errors(events)(writer.close))

    @name_file_in_errors(events)
    def write(step: int, numbers: Mapping[str, float]) -> None:
        for name, number in numbers.items():
            writer.add_scalar(_name_in_group(name), number, step)

    return write


def open_wandb(config: RunConfig, seed: int, folder: Path, held: ExitStack) -> WriteMetrics:
    """Open a run of Weights & Biases, which resumes by an id that is kept in the run's folder.

    Args:
        held: ends it.
    Raises: UserError without the package or an account.
    """
    try:
        wandb = importlib.import_module("wandb")
    except ImportError:
        raise UserError("log.wandb=true needs the package: pip install wandb") from None
    kept = folder / "wandb-id"
    if not kept.exists():
        write_atomically(kept, secrets.token_hex(8).encode())
    try:
        run: Any = wandb.init(
            project="lra", id=read_text(kept), resume="allow", dir=str(folder),
            name=f"{config.task_name}-{config.mixer_name}-{folder.name}",
            config={**config.values(), "seed": seed},
        )  # fmt: skip
    except wandb.Error as error:
        raise UserError(f"log.wandb=true: {' '.join(str(error).split())}") from None
    held.callback(run.finish)
    return lambda step, numbers: run.log(
        {_name_in_group(name): number for name, number in numbers.items()}, step=step
    )


def _name_in_group(name: str) -> str:
    """Name a number so that those of training and of validation are in one group each."""
    kind = "validation" if name.startswith("val_") else "training"
    return f"{kind}/{name.removeprefix('val_')}"
