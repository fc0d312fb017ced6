"""The estimated training time of a run, from the measured speeds in results/speeds.csv."""

from __future__ import annotations

import csv
import math
from pathlib import Path

from common.progress import duration
from lra.config.schema import RunConfig
from lra.record.schema import is_cpu, select_sections
from lra.train.schedule import RunLength
from lra.train.self_pretraining import pretraining_config
from lra.train.stopping import StopRequest

SPEEDS = Path(__file__).resolve().parents[2] / "results" / "speeds.csv"
"""Speeds of training steps, which `report.py --write-readme` collects from the shipped records."""


def find_speed(config: RunConfig, here: str) -> tuple[float, str] | None:
    """Look up the speed of a run's steps on a device, by its name, or on another CPU or GPU.

    A step is taken to last in proportion to its examples.

    Returns: steps per second, and where and how they were measured; None if none were at its
        preset.
    """
    names = (config.task_name, config.mixer_name, config.preset, config.protocol)
    with SPEEDS.open(newline="", encoding="utf-8") as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if (row["task"], row["mixer"], row["preset"], row["protocol"]) == names
            and is_cpu(row["device"]) == is_cpu(here)
        ]
    if config.plug_ins or not rows:
        return None
    best = min(rows, key=lambda row: row["device"] != here)
    speed = float(best["steps_per_second"]) * int(best["batch_size"]) / config.train.batch_size
    text = "" if best["device"] == here else f" on {best['device']}"
    changed = select_sections(config.changes, "task", "mixer", "model")
    if changed or config.train.precision != "fp32":
        text += ", with the preset's settings"
    return speed, f"earlier runs{text} made {speed:.3g} steps/s"


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


def estimate_time(
    config: RunConfig,
    here: str,
    stop: StopRequest,
    steps_made: int = 0,
    seconds_made: float = 0.0,
) -> tuple[float | None, str]:
    """Estimate the time that a run's training steps take, to its end or to where it is to stop.

    Args:
        here: name of the device.
        steps_made: steps that the run has made, which took `seconds_made`.
    Returns: seconds that are left, None if they are not known; and a text that also describes the
        speed that they were estimated from.
    """
    limits = [] if stop.max_seconds is None else [stop.max_seconds]
    source, total_steps, speed = "", count_steps(config), find_speed(config, here)
    if config.train.minutes is not None:
        limits.append(60 * config.train.minutes - seconds_made)
    elif speed is not None:
        steps_per_second, text = speed
        source = f" ({text})"
        if total_steps is not None:
            last = min(total_steps, stop.max_steps or total_steps)
            limits.append((last - steps_made) / steps_per_second)
    if not limits:
        return None, "not known, because no such step was timed yet; the progress bar shows it"
    seconds = max(0.0, min(limits))
    return seconds, f"{duration(seconds)} of training{' left' * bool(steps_made)}{source}"
