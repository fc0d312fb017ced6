"""Metrics of a run for TensorBoard and Weights & Biases, in addition to its metrics.jsonl."""

from __future__ import annotations

import importlib
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from common.files import name_file_in_errors, write_atomically
from common.untrusted import read_text
from lra.config.schema import RunConfig
from lra.runtime.errors import UserError


class TensorBoard:
    """Event files in the run's folder, for `tensorboard --logdir results/runs`.

    Args:
        step: where the run goes on; what a killed session wrote after it is dropped.
    Raises: UserError without the package.
    """

    def __init__(self, folder: Path, step: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise UserError(
                "log.tensorboard=true needs the package: pip install tensorboard"
            ) from None
        self._folder = folder / "tensorboard"
        self._writer = SummaryWriter(str(self._folder), purge_step=step + 1)

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Write the numbers of a step."""
        for name, number in numbers.items():
            with name_file_in_errors(self._folder):
                self._writer.add_scalar(_name_in_group(name), number, step)

    def close(self) -> None:
        """Write what is left."""
        with name_file_in_errors(self._folder):
            self._writer.close()


class WeightsAndBiases:
    """A run of Weights & Biases, which resumes by an id that is kept in the run's folder.

    Raises: UserError without the package or an account.
    """

    def __init__(self, config: RunConfig, seed: int, folder: Path) -> None:
        try:
            wandb = importlib.import_module("wandb")
        except ImportError:
            raise UserError("log.wandb=true needs the package: pip install wandb") from None
        name = f"{config.task_name}-{config.mixer_name}-{folder.name}"
        kept = folder / "wandb-id"
        if not kept.exists():
            write_atomically(kept, secrets.token_hex(8).encode())
        try:
            self._run: Any = wandb.init(
                project="lra", id=read_text(kept), name=name, resume="allow", dir=str(folder),
                config={**config.values(), "seed": seed},
            )  # fmt: skip
        except wandb.Error as error:
            raise UserError(f"log.wandb=true: {' '.join(str(error).split())}") from None

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Send the numbers of a step."""
        self._run.log({_name_in_group(name): n for name, n in numbers.items()}, step=step)

    def close(self) -> None:
        """End the session."""
        self._run.finish()


MetricsLogger = TensorBoard | WeightsAndBiases


def _name_in_group(name: str) -> str:
    """Name a number so that those of training and of validation are in one group each."""
    if name.startswith("val_"):
        return f"validation/{name.removeprefix('val_')}"
    return f"training/{name}"


def open_loggers(config: RunConfig, seed: int, folder: Path, step: int) -> list[MetricsLogger]:
    """Open the loggers that `log` asks for, for a run that goes on from a step.

    Raises: UserError for a missing package.
    """
    opened: list[MetricsLogger] = []
    if config.log.tensorboard:
        opened.append(TensorBoard(folder, step))
    if config.log.wandb:
        opened.append(WeightsAndBiases(config, seed, folder))
    return opened
