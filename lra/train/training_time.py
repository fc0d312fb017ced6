"""The estimated training time of a run, from the measured speeds in results/speeds.csv."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path

from lra.config.schema import RunConfig
from lra.record.changes import select_sections
from lra.record.schema import is_cpu
from lra.runtime.progress import duration
from lra.train.schedule import RunLength
from lra.train.self_pretraining import pretraining_config

SPEEDS = Path(__file__).resolve().parents[2] / "results" / "speeds.csv"
"""Speeds of training steps, which `report.py --write-readme` collects from the shipped records."""


@dataclass(frozen=True)
class MeasuredSpeed:
    """The measured speed of training steps."""

    steps_per_second: float
    device: str
    has_settings: bool
    """Whether the model had the settings of the run; otherwise it had those of its preset."""


def find_speed(config: RunConfig, here: str) -> MeasuredSpeed | None:
    """Look up the speed of a run's steps on a device, by its name, or on another CPU or GPU.

    A step is taken to last in proportion to its examples. None if none was measured at its preset.
    """
    if config.plug_ins:
        return None
    names = (config.task_name, config.mixer_name, config.preset, config.protocol)
    with SPEEDS.open(newline="", encoding="utf-8") as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if (row["task"], row["mixer"], row["preset"], row["protocol"]) == names
            and is_cpu(row["device"]) == is_cpu(here)
        ]
    best = min(rows, key=lambda row: row["device"] != here, default=None)
    if best is None:
        return None
    share = int(best["batch_size"]) / config.train.batch_size
    changed = select_sections(config.changes, "task", "mixer", "model")
    has_settings = not changed and config.train.precision == "fp32"
    return MeasuredSpeed(float(best["steps_per_second"]) * share, best["device"], has_settings)


def count_steps(config: RunConfig) -> int | None:
    """Return the optimizer steps of a run; None for a run of minutes, or of unknown data."""
    if config.train.minutes is not None:
        return None
    examples = config.build_task().training_examples()
    if examples is None:
        return None if config.is_pretrained else config.train.steps
    phases = [config, pretraining_config(config)] if config.is_pretrained else [config]
    return sum(
        RunLength(phase.train, math.ceil(examples / phase.train.batch_size)).total(0, 0.0)
        for phase in phases
    )


@dataclass(frozen=True, kw_only=True)
class TrainingTime:
    """The estimated time that the training steps of a run take, or what is left of it."""

    config: RunConfig
    device: str
    """Name of the run's device."""
    max_steps: int | None = None
    max_seconds: float | None = None
    """Time from now on after which the run stops."""
    steps_made: int = 0
    seconds_made: float = 0.0

    @property
    def seconds(self) -> float | None:
        """The time that is left; None if it is not known."""
        limits = [] if self.max_seconds is None else [self.max_seconds]
        if self.config.train.minutes is not None:
            limits.append(60 * self.config.train.minutes - self.seconds_made)
        else:
            steps, speed = count_steps(self.config), find_speed(self.config, self.device)
            if steps is not None and speed is not None:
                left = min(steps, self.max_steps or steps) - self.steps_made
                limits.append(left / speed.steps_per_second)
        return max(0.0, min(limits)) if limits else None

    def __str__(self) -> str:
        """Describe the time that is left, and what is known of its speed."""
        if self.seconds is None:
            return "not known, because no such step was timed yet; the progress bar shows it"
        text = f"{duration(self.seconds)} of training{' left' * bool(self.steps_made)}"
        speed = find_speed(self.config, self.device)
        if speed is None or self.config.train.minutes is not None:
            return text
        place = "" if speed.device == self.device else f" on {speed.device}"
        settings = "" if speed.has_settings else ", with the preset's settings"
        return f"{text} (earlier runs{place}{settings} made {speed.steps_per_second:.3g} steps/s)"
