"""The estimated training time of a sweep's runs, from earlier runs and from measurements."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from pathlib import Path

import torch

from lra.runtime.environment import device_name
from lra.runtime.launch import command_words
from lra.runtime.plain_table import plain_table
from lra.runtime.progress import duration
from lra.runtime.terminal import terminal_width
from lra.sweep.plan import Limits, PlannedRun
from lra.train.training_time import Speeds, count_steps

NUMBERS_OF_DEVICES = (4, 8, 32)
"""How many devices of a kind the time of a whole sweep is shown for."""


class RemainingTimes:
    """The estimated training time that runs have left; `Speeds` explains the speeds.

    Args:
        results_dir: folder of the user's own results, with the shipped ones in it.
        device: device of the runs.
        limits: limits of each run.
    """

    def __init__(self, results_dir: Path, device: torch.device, limits: Limits) -> None:
        self.limits = limits
        self.speeds = Speeds.read(results_dir)
        self.device_name = device_name(device)

    def seconds(self, run: PlannedRun, device: str | None = None) -> float | None:
        """Estimate the seconds of training left, without evaluations; None if unknown.

        Args:
            device: name of a device on which the speed must have been measured. None: that of the
                runs, or one of its kind.
        """
        train = run.config.train
        record = run.folder.record()
        limit = math.inf
        if self.limits.minutes is not None:
            limit = 60 * self.limits.minutes - (record.wall_seconds if record else 0.0)
        if train.minutes is not None:
            done = (record.train_seconds or 0.0) if record else 0.0
            return max(0.0, min(limit, 60 * train.minutes - done))
        speed = self.speeds.find(run.config, device or self.device_name)
        steps = count_steps(run.config)
        if speed is None or steps is None or (device is not None and speed.device != device):
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
        start = f"{len(runs)} run{'s' * (len(runs) != 1)} to carry out"
        bench = shlex.join(command_words("bench", "step"))
        unknown = f"because nothing similar was timed (time it with {bench})"
        if runs and not known:
            return f"{start}. Their training time cannot be estimated, {unknown}."
        time = duration(sum(known))
        text = f"{start}: about {time} of training in all, if they run one after the other."
        if missing := len(runs) - len(known):
            text += f" {missing} of them are not included, {unknown}."
        return text

    def by_device(self, runs: Sequence[PlannedRun]) -> list[str]:
        """Write a table of the training time of all runs, on one and on several devices of a kind.

        Returns: a line for each device on which the speed of every run was measured; nothing where
            all runs train for a fixed time.
        """
        if all(run.config.train.minutes is not None for run in runs):
            return []
        rows: list[dict[str, str]] = []
        for device in sorted({record.device for record in self.speeds.records}):
            seconds = [self.seconds(run, device) for run in runs]
            known = [second for second in seconds if second is not None]
            if len(known) < len(seconds):
                continue
            row = {"device": device, "device-hours": f"{sum(known) / 3600:,.2f}"}
            for count in NUMBERS_OF_DEVICES:
                # The longest run is not divided.
                row[f"on {count}"] = duration(max(sum(known) / count, *known))
            rows.append(row)
        return ["", *plain_table(rows, terminal_width()), ""] if rows else []
