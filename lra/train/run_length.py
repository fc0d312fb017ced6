"""How long a run is: steps, passes over the data, or a time; and when it is validated."""

from __future__ import annotations

import math

from lra.config.schema import TrainConfig

VALIDATIONS_OF_TIME = 4
"""Validations of a run whose length is a time, evenly over it, where no setting says how many."""
FIRST_ESTIMATE = 1000
"""Steps of such a run before it is known how long they take."""


class RunLength:
    """The steps of a run, and those after which it is validated.

    Args:
        batches_per_epoch: batches that the training set has.
    """

    def __init__(self, config: TrainConfig, batches_per_epoch: int) -> None:
        self.limit = None if config.minutes is None else 60 * config.minutes
        """Seconds of training steps; None for a run of a number of steps."""
        self._steps = config.steps or math.ceil((config.epochs or 0) * batches_per_epoch)
        self._every = config.evaluate_every
        if self._every is None and self.limit is None:
            self._every = batches_per_epoch

    def total(self, step: int, seconds: float) -> int:
        """Return the steps of the whole run; of a time, what they will amount to.

        Args:
            step: steps made.
            seconds: time that they took.
        """
        if self.limit is None:
            return self._steps
        if not seconds:
            return FIRST_ESTIMATE
        share = seconds / self.limit
        return step if share >= 1 else 1 + math.floor(step / share)

    def validations(self) -> float:
        """Return how many validations the whole run has."""
        if self._every is None:
            return VALIDATIONS_OF_TIME
        return math.inf if self.limit is not None else math.ceil(self._steps / self._every)

    def is_due(self, step: int, seconds: float, validated: tuple[int, float]) -> bool:
        """Whether a step is to be validated before the next one is made.

        Args:
            validated: step and seconds of the last validation.
        """
        if step in (0, validated[0]):
            return False
        if step == self.total(step, seconds):
            return True
        if self._every is not None:
            return step % self._every == 0
        part = (self.limit or math.inf) / VALIDATIONS_OF_TIME
        return seconds // part > validated[1] // part
