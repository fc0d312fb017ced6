"""The estimated training time of a run, from the measured speeds in results/speeds.csv."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path

from common.progress import duration
from lra.config.schema import RunConfig
from lra.record.changes import select_sections
from lra.record.schema import is_cpu
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
    """Look up the speed of a run's steps; None if none was measured at its preset.

    A step is taken to last in proportion to its examples.

    Args:
        here: name of the run's device; without a speed on it, another CPU or GPU is taken.
    """
    if config.task_component.code is not None or config.mixer_component.code is not None:
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


class TrainingTime:
    """The estimated time of a run's training steps on a device.

    Args:
        here: name of the device.
        stop: has the limits at which the run stops earlier; None: it has none.
    """

    def __init__(self, config: RunConfig, here: str, stop: StopRequest | None = None) -> None:
        self.config = config
        self.here = here
        self.stop = stop or StopRequest()
        self.total_steps = count_steps(config)
        """Steps of the whole run; None if they are not known yet."""
        self.speed = find_speed(config, here)

    def seconds(self, steps_made: int = 0, seconds_made: float = 0.0) -> float | None:
        """Return the time that is left; None if it is not known.

        Args:
            steps_made: steps of the run so far.
            seconds_made: time that they took.
        """
        limits = [] if self.stop.max_seconds is None else [self.stop.max_seconds]
        if self.config.train.minutes is not None:
            limits.append(max(0.0, 60 * self.config.train.minutes - seconds_made))
        elif self.total_steps is not None and self.speed is not None:
            left = max(0, self.stop.last_step(self.total_steps) - steps_made)
            limits.append(left / self.speed.steps_per_second)
        return min(limits, default=None)

    def describe(self, steps_made: int = 0, seconds_made: float = 0.0) -> str:
        """Describe the time that is left, or say why it is not known."""
        seconds = self.seconds(steps_made, seconds_made)
        if seconds is None and self.total_steps is None:
            return "not known before the data is there; the progress bar shows it"
        if seconds is None:
            mixer = self.config.mixer_name
            return (
                f"not known, because no step of {mixer} was timed at this preset; the progress bar "
                f"shows it"
            )
        text = f"{duration(seconds)} of training{' left' * bool(steps_made)}"
        if self.speed is None or self.config.train.minutes is not None:
            return text
        place = "" if self.speed.device == self.here else f" on {self.speed.device}"
        settings = "" if self.speed.has_settings else ", with the preset's settings"
        speed = f"{self.speed.steps_per_second:.3g} steps/s"
        return f"{text} (earlier runs{place}{settings} made {speed})"
