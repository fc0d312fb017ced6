"""The course of a run: its length, its validations, and the learning rate of each step."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass

from lra.config.schema import TrainConfig

logger = logging.getLogger(__name__)

VALIDATIONS_OF_TIME = 4
"""Validations of a run of minutes, evenly over its time, unless a setting says how many."""
FIRST_ESTIMATE = 1000
"""Assumed length of a run of minutes, in steps, before any step was timed."""
PLATEAU_THRESHOLD = 1e-4
"""Share of the best accuracy by which a better one must exceed it."""


class RunLength:
    """The number of steps of a run, and the steps after which it is validated."""

    def __init__(self, config: TrainConfig, batches_per_epoch: int) -> None:
        self.limit = None if config.minutes is None else 60 * config.minutes
        """Seconds of training steps; None for a run of a number of steps."""
        self._steps = config.steps or math.ceil((config.epochs or 0) * batches_per_epoch)
        per_epoch = batches_per_epoch if self.limit is None else None
        self._every = config.evaluate_every or per_epoch

    def total(self, step: int, seconds: float) -> int:
        """Return the steps of the whole run; for a run of minutes, an estimate.

        Args:
            step: steps made so far, which took so many seconds.
        """
        if self.limit is None:
            return self._steps
        if not seconds:
            return FIRST_ESTIMATE
        share = seconds / self.limit
        return step if share >= 1 else 1 + math.floor(step / share)

    def is_due(self, step: int, seconds: float, validated: tuple[int, float]) -> bool:
        """Whether the model, last validated at such a step and time, must be validated now."""
        if step in (0, validated[0]):
            return False
        if step == self.total(step, seconds):
            return True
        if self._every is not None:
            return step % self._every == 0
        part = (self.limit or math.inf) / VALIDATIONS_OF_TIME
        return seconds // part > validated[1] // part


SCHEDULES: dict[str, Callable[[float, int, int], float]] = {
    "cosine": lambda done, warmup, steps: 0.5 * (1.0 + math.cos(math.pi * done)),
    "linear": lambda done, warmup, steps: 1.0 - done,
    "rsqrt": lambda done, warmup, steps: math.sqrt(max(warmup, 1) / max(warmup, steps)),
    "constant": lambda done, warmup, steps: 1.0,
    "plateau": lambda done, warmup, steps: 1.0,
}
"""Factor of the learning rate after warm-up, from the share of the schedule that is done, the steps
of warm-up, and all steps so far."""


def rate_factor(step: int, total_steps: int, config: TrainConfig) -> float:
    """Return the learning rate of a 0-based step as a share of the highest, in [0, 1]."""
    warmup = config.warmup_steps
    if config.warmup_share is not None:
        warmup = round(config.warmup_share * total_steps)
    if step < warmup:
        return (step + 1) / warmup
    end = config.schedule_steps or total_steps
    done = min(1.0, (step - warmup) / max(1, end - warmup))
    return SCHEDULES[config.schedule](done, warmup, step + 1)


@dataclass
class Plateau:
    """The state of schedule plateau, by the rule of torch's `ReduceLROnPlateau`, mode max."""

    factor: float = 1.0
    """Factor of the learning rate; with other schedules it stays 1."""
    best: float | None = None
    waited: int = 0
    """Validations since the best one, or since the rate fell."""

    def update(self, merit: float, config: TrainConfig) -> None:
        """Take the result of a validation, in percent: more is better."""
        if config.plateau_patience is None:
            return
        if self.best is None or merit > self.best * (1 + PLATEAU_THRESHOLD):
            self.best, self.waited = merit, 0
            return
        self.waited += 1
        if self.waited > config.plateau_patience:
            self.factor *= config.plateau_factor
            self.waited = 0
            logger.info(f"the learning rate falls to {self.factor:.3g} of its highest")


def list_warnings(config: TrainConfig, total_steps: int) -> list[str]:
    """List what a user should know of the schedule before the first of so many steps."""
    if config.minutes is not None:
        return []
    if config.warmup_steps >= total_steps:
        return [
            f"the warm-up of {config.warmup_steps} steps outlasts the run's {total_steps} steps"
        ]
    end = config.schedule_steps or total_steps
    if end != total_steps:
        return [f"the cosine ends at step {end}, but the run has {total_steps} steps; use --set "
                f"train.schedule_steps=null"]  # fmt: skip
    return []
