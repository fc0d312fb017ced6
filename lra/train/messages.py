"""What a run says of itself: warnings, how long it takes, how to go on."""

from __future__ import annotations

import torch

from lra.config.schema import RunConfig
from lra.runtime.progress import duration
from lra.train.optimizer import schedule_warning

LONG_RUN_SECONDS = 3600


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
            "train.bucketing with model.norm=batch: batches of like length have statistics "
            "of their own, which the running ones fit badly; use --set train.bucketing=false"
        )
    if train.plateau_patience is not None and validations <= train.plateau_patience + 1:
        found.append(
            f"the learning rate never falls: the run has {validations:.0f} validations, and "
            f"train.plateau_patience is {train.plateau_patience}; use --set "
            f"train.evaluate_every=N, in steps, or another train.schedule"
        )
    if selected_on == "test":
        found.append("the best model is selected on the test set, as published results are")
    return [warning for warning in found if warning]


def warmup_warning(config: RunConfig, total_steps: int) -> str | None:
    """Warn of a warm-up that outlasts a run whose length is a time, once its steps are known."""
    warmup = config.train.warmup_steps
    if config.train.minutes is None or warmup < total_steps:
        return None
    return (
        f"the warm-up of {warmup} steps outlasts the run's time; use --set train.warmup_share=0.1"
    )


def time_left(
    config: RunConfig, device: torch.device, steps_per_second: float | None, steps_left: int
) -> str | None:
    """Tell how long a long run will take; on a CPU name the quick preset. None for a short one."""
    if steps_per_second is None or steps_left / steps_per_second < LONG_RUN_SECONDS:
        return None
    time = duration(steps_left / steps_per_second)
    message = f"at {steps_per_second:.2f} steps/s this run takes about {time} more"
    if device.type == "cpu" and config.preset != "quick":
        message += "; --preset quick trains a small model in minutes"
    return message


def describe_resume(reason: str, steps: int, total_steps: int, *, is_repeat: bool) -> str:
    """Tell what stopped a run and what makes it go on.

    Args:
        is_repeat: whether it was made beside an older one of the same settings and seed.
    """
    how = "with a higher limit or none goes on" if reason == "--max-steps" else "goes on"
    if is_repeat:
        how = f"without --resume never {how}"
    done = f"at step {steps} of {total_steps}"
    return f"stopped by {reason} {done}; everything is saved, the same command {how}"


def out_of_memory(device: torch.device, examples: int) -> str:
    """Tell what to try where a pass over so many examples did not fit."""
    advice = "one example at a time does not fit"
    if examples > 1:
        advice = f"try --set train.micro_batch={examples // 2}, which keeps the batch size"
    return f"out of memory on {device} at {examples} examples a pass; {advice}"
