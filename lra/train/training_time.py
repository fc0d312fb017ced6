"""The estimated training time of a run, from the measured speeds in results/speeds.csv."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path

from common.progress import duration
from lra.config.schema import RunConfig
from lra.record.schema import select_sections
from lra.train.schedule import RunLength
from lra.train.self_pretraining import pretraining_config
from lra.train.stopping import StopRequest

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
            and ("CPU" in row["device"]) == ("CPU" in here)
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


class TrainingTime:
    """The estimated time of a run's training steps, to its end or to where it is to stop."""

    def __init__(self, config: RunConfig, here: str, stop: StopRequest | None = None) -> None:
        self.config = config
        self.here = here
        self.stop = stop or StopRequest()
        self.total_steps = count_steps(config)
        self.speed = find_speed(config, here)

    def seconds(self, steps_made: int = 0, seconds_made: float = 0.0) -> float | None:
        """Return the time that is left after some steps; None if it is not known."""
        limits = [] if self.stop.max_seconds is None else [self.stop.max_seconds]
        if self.config.train.minutes is not None:
            limits.append(60 * self.config.train.minutes - seconds_made)
        elif self.total_steps is not None and self.speed is not None:
            last = min(self.total_steps, self.stop.max_steps or self.total_steps)
            limits.append((last - steps_made) / self.speed.steps_per_second)
        return max(0.0, min(limits)) if limits else None

    def describe(self, steps_made: int = 0, seconds_made: float = 0.0) -> str:
        """Describe the time that is left, and the speed that it was estimated from."""
        seconds = self.seconds(steps_made, seconds_made)
        if seconds is None:
            return "not known, because no such step was timed yet; the progress bar shows it"
        text = f"{duration(seconds)} of training{' left' * bool(steps_made)}"
        if self.speed is None or self.config.train.minutes is not None:
            return text
        place = "" if self.speed.device == self.here else f" on {self.speed.device}"
        settings = "" if self.speed.has_settings else ", with the preset's settings"
        speed = f"{self.speed.steps_per_second:.3g} steps/s"
        return f"{text} (earlier runs{place}{settings} made {speed})"
