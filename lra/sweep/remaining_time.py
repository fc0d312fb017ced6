"""The estimated training time of a sweep's runs, from earlier runs and from measurements."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence

import torch

from common.progress import duration
from lra.runtime.environment import device_name
from lra.runtime.launch import command_words
from lra.sweep.plan import Limits, PlannedRun
from lra.train.training_time import count_steps, find_speed


class RemainingTimes:
    """The estimated training time that runs have left; see `find_speed`.

    Args:
        device: device of the runs.
        limits: limits of each run.
    """

    def __init__(self, device: torch.device, limits: Limits) -> None:
        self.limits = limits
        self.device_name = device_name(device)

    def seconds(self, run: PlannedRun) -> float | None:
        """Estimate the seconds of training left, without evaluations; None if unknown."""
        train, record = run.config.train, run.folder.record()
        limit = math.inf
        if self.limits.minutes is not None:
            limit = 60 * self.limits.minutes - (record.wall_seconds if record else 0.0)
        if train.minutes is not None:
            left = 60 * train.minutes - ((record.train_seconds or 0.0) if record else 0.0)
        else:
            speed = find_speed(run.config, self.device_name)
            steps = count_steps(run.config)
            if speed is None or steps is None:
                return None
            steps = min(steps, self.limits.max_steps or steps)
            left = (steps - (record.steps if record else 0)) / speed.steps_per_second
        return max(0.0, min(limit, left))

    def text(self, run: PlannedRun) -> str:
        """Describe the estimated training time of a run."""
        seconds = self.seconds(run)
        return "unknown" if seconds is None else f"about {duration(seconds)}"

    def total(self, runs: Sequence[PlannedRun]) -> str:
        """Describe the estimated training time of all runs, one after the other."""
        known = [s for run in runs if (s := self.seconds(run)) is not None]
        text = f"{len(runs)} run{'s' * (len(runs) != 1)} to carry out"
        if known:
            time = duration(sum(known))
            text += f": about {time} of training in all, if they run one after the other"
        if missing := len(runs) - len(known):
            bench = shlex.join(command_words("bench", "step"))
            text += f"; nothing like {missing} of them was timed (time it with {bench})"
        return f"{text}."
