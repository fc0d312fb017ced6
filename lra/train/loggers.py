"""Metrics of a run for TensorBoard and Weights & Biases, in addition to its metrics.jsonl."""

from __future__ import annotations

import importlib
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.files import name_file_in_errors, write_atomically
from common.untrusted import read_text
from lra.config.schema import RunConfig

WriteMetrics = Callable[[int, Mapping[str, float]], None]
"""Writes the numbers of a step."""


def open_loggers(
    config: RunConfig, seed: int, folder: Path, step: int, held: ExitStack
) -> Iterator[WriteMetrics]:
    """Open what the settings of `log` ask for: event files in a run's folder, or a run of wandb.

    Args:
        step: where the run goes on; what a killed session wrote to event files after it is dropped.
        held: closes the files, and ends the run of wandb.
    Raises: UserError without the package or an account.
    """
    if config.log.tensorboard:
        events = folder / "tensorboard"
        package = _load("torch.utils.tensorboard", "tensorboard")
        writer = package.SummaryWriter(str(events), purge_step=step + 1)
        held.callback(name_file_in_errors(events)(writer.close))

        @name_file_in_errors(events)
        def write(step: int, numbers: Mapping[str, float]) -> None:
            for name, number in numbers.items():
                writer.add_scalar(name, number, step)

        yield write
    if config.log.wandb:
        wandb = _load("wandb", "wandb")
        kept = folder / "wandb-id"  # by which the run resumes
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
        yield lambda step, numbers: run.log(numbers, step=step)


def _load(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise UserError(f"log.{package}=true needs the package: pip install {package}") from None
