"""Messages of a run: warnings, how long it takes, how to resume it."""

from __future__ import annotations

import torch

from lra.config.schema import RunConfig
from lra.runtime.progress import duration
from lra.train.optimizer import schedule_warning

DAY = 24 * 3600
SMALL_PRESETS = ("quick", "budget")
RIGHT, WRONG = 90.0, 50.0
"""Accuracies in percent from which a model is called right, and below which it is called wrong."""


def warnings_at_start(
    config: RunConfig, total_steps: int, selected_on: str, validations: float
) -> list[str]:
    """List what a user should know before the first step.

    Args:
        selected_on: val or test, what the best model is selected on.
        validations: of the whole run.
    """
    train = config.train
    found: list[str | None] = []
    if train.minutes is None:
        found.append(schedule_warning(total_steps, train))
    if train.bucketing and config.model.norm == "batch":
        found.append(
            "train.bucketing with model.norm=batch: the statistics of a batch then depend on its "
            "length, and the running ones fit no length well; use --set train.bucketing=false"
        )
    if train.plateau_patience is not None and validations <= train.plateau_patience + 1:
        found.append(
            f"the learning rate never falls: the run has {validations:.0f} validations, and "
            f"train.plateau_patience is {train.plateau_patience}; use --set "
            f"train.evaluate_every=N, in steps, or another train.schedule"
        )
    if selected_on == "test":
        found.append(
            "the best model is selected on the test set, because the validation examples are test "
            "examples"
        )
    return [warning for warning in found if warning]


def advise_small_presets() -> str:
    """Name the presets of small models."""
    return "--preset quick trains a small model in minutes, --preset budget one in minutes to hours"


def warn_of_long_run(config: RunConfig, seconds: float) -> str | None:
    """Warn of a run of more than a day; None for a shorter one."""
    if seconds < DAY:
        return None
    advice = "" if config.preset in SMALL_PRESETS else f"; {advise_small_presets()}"
    return f"this run trains for about {duration(seconds)}{advice}"


def describe_resume(reason: str, steps: int, total_steps: int, *, is_repeat: bool) -> str:
    """Describe what stopped a run and how to resume it.

    Args:
        reason: what stopped it.
        steps: steps made.
        total_steps: steps of the whole run.
        is_repeat: whether it is a second run of the same settings and seed.
    """
    how = "with a higher limit or none " if reason == "--max-steps" else ""
    if is_repeat:
        how = f"without --resume never {how}"
    done = f"at step {steps:,} of {total_steps:,}"
    return f"stopped by {reason} {done}; everything is saved, the same command {how}resumes it"


def out_of_memory(device: torch.device, examples: int) -> str:
    """Say what to try where a forward pass over so many examples did not fit."""
    advice = "one example at a time does not fit"
    if examples > 1:
        advice = f"try --set train.micro_batch={examples // 2}, which keeps the batch size"
    return f"out of memory on {device} at {examples} examples per forward pass; {advice}"
