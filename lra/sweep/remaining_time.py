"""Estimates of the time that the runs of a sweep have left, from earlier runs and measurements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import torch

from lra.runtime.environment import device_name
from lra.runtime.progress import duration
from lra.sweep.plan import Limits, PlannedRun
from lra.train.training_time import Timings


class RemainingTimes:
    """The estimated time that runs have left; `Timings` says what their speeds are taken from.

    Args:
        results_dir: folder of one's own results, with the shipped ones in it.
        device: device that the runs are planned for.
        limits: limits of each run.
    """

    def __init__(self, results_dir: Path, device: torch.device, limits: Limits) -> None:
        self.limits = limits
        self.timings = Timings.read(results_dir)
        self.device_name = device_name(device)

    def seconds(self, run: PlannedRun) -> float | None:
        """Estimate the seconds of training left, without evaluations; None if not known."""
        train = run.config.train
        record = run.folder.record()
        limit = math.inf
        if self.limits.minutes is not None:
            limit = 60 * self.limits.minutes - (record.wall_seconds if record else 0.0)
        if train.minutes is not None:
            done = (record.train_seconds or 0.0) if record else 0.0
            return max(0.0, min(limit, 60 * train.minutes - done))
        speed, steps = (
            self.timings.speed(run.config, self.device_name),
            self.timings.steps(run.config),
        )
        if speed is None or steps is None:
            return None
        steps = min(steps, self.limits.max_steps or steps)
        left = (steps - (record.steps if record else 0)) / speed.steps_per_second
        return max(0.0, min(limit, left))

    def text(self, run: PlannedRun) -> str:
        """Write the estimate for a run as text."""
        seconds = self.seconds(run)
        return "not known" if seconds is None else f"about {duration(seconds)}"

    def total(self, runs: Sequence[PlannedRun]) -> str:
        """Write the estimate for all runs, made one after the other, as text."""
        known = [s for run in runs if (s := self.seconds(run)) is not None]
        start = f"{len(runs)} runs to carry out"
        unknown = "of which no speed is known (python -m lra.bench step)"
        if runs and not known:
            return f"{start}, {unknown}"
        text = f"{start}, training about {duration(sum(known))} in all, one after the other"
        if missing := len(runs) - len(known):
            text += f", without {missing} {unknown}"
        return text
