"""What a run says about the time that it takes: before its first step, and after a few."""

from __future__ import annotations

import logging

import torch

from lra.config.schema import RunConfig
from lra.train.messages import time_left, warmup_warning, warn_of_long_run
from lra.train.phases import Phases
from lra.train.stopping import StopRequest
from lra.train.training_time import TrainingTime

logger = logging.getLogger(__name__)

ESTIMATE_AT_STEP = 5
"""Step of a session after which the time left is estimated from the session's own speed."""
ESTIMATE_AFTER_SECONDS = 20.0
"""Time after which it is estimated even if fewer steps are made."""


class TimeEstimates:
    """Logs how long a run will take, and warns once if that is more than a day.

    Args:
        config: settings of the run.
        device: that it computes on.
        expected: estimate from earlier runs; None where none was made.
        stop: has the limits at which the run stops earlier.
    """

    def __init__(
        self,
        config: RunConfig,
        device: torch.device,
        expected: TrainingTime | None,
        stop: StopRequest,
    ) -> None:
        self.config = config
        self.device = device
        self.expected = expected
        self.stop = stop
        self._has_warned = False
        self._is_known = False

    def announce(self, phases: Phases) -> None:
        """Log the size of a run and its expected time, before the first step of a session."""
        trainer = phases.trainer
        parameters = f"{trainer.num_parameters:,} parameters"
        kind = "pretraining steps" if phases.is_pretraining else "steps"
        has_steps = trainer.length.limit is None
        total, last = phases.total_steps, self.stop.last_step(phases.total_steps)
        steps = f"{total:,}" if last == total else f"{last:,} of {total:,}"
        logger.info(f"{steps} {kind}, {parameters}" if has_steps else parameters)
        made = phases.step, trainer.seconds
        seconds = self.expected.seconds(*made) if self.expected else None
        self._is_known = seconds is not None
        if self.expected is None or seconds is None:
            text = f"not known yet; it follows within {ESTIMATE_AT_STEP} steps"
        else:
            text = self.expected.describe(*made)
        logger.info(f"estimated time: {text}")
        self._warn(seconds or 0.0)

    def is_due(self, steps: int, seconds: float) -> bool:
        """Whether the time left is to be estimated from the steps of this session.

        Args:
            steps: made in this session.
            seconds: since its first step began.
        """
        return steps == ESTIMATE_AT_STEP or (
            0 < steps < ESTIMATE_AT_STEP and seconds >= ESTIMATE_AFTER_SECONDS
        )

    def update(self, phases: Phases, steps_per_second: float) -> None:
        """Log the time left at a measured speed, if that is news to the user."""
        trainer = phases.trainer
        if (warning := warmup_warning(trainer.config, trainer.total_steps)) is not None:
            logger.warning(warning)
        seconds = (self.stop.last_step(phases.total_steps) - phases.step) / steps_per_second
        if self.stop.max_seconds is not None:
            seconds = min(seconds, self.stop.max_seconds)
        text = time_left(
            self.config, self.device, steps_per_second, seconds, is_known=self._is_known
        )
        if text is not None:
            logger.info(text)
        self._is_known = True
        self._warn(seconds)

    def _warn(self, seconds: float) -> None:
        warning = warn_of_long_run(self.config, seconds)
        if warning is not None and not self._has_warned:
            self._has_warned = True
            logger.warning(warning)
