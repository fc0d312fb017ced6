"""The length of a run: its steps, its validations, and its time by speeds in results/speeds.csv."""

import csv
import math
from pathlib import Path

from lra.common.progress import duration
from lra.config.compose import compose
from lra.config.request import RunRequest
from lra.config.schema import RunConfig, TrainConfig
from lra.record.schema import select_sections
from lra.train.self_pretraining import pretraining_config
from lra.train.stopping import StopRequest

SPEEDS = Path(__file__).resolve().parents[1] / "results" / "speeds.csv"
"""Speeds of training steps, which `report.py --write-readme` collects from the shipped records."""
VALIDATIONS_OF_TIME = 4
"""Validations of a run of minutes, evenly over its time, unless a setting says how many."""
FIRST_ESTIMATE = 1000
"""Assumed length of a run of minutes, in steps, before any step was timed."""


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


def list_warnings(config: TrainConfig, total_steps: int) -> list[str]:
    """List what a user should know of the schedule before the first of so many steps."""
    if config.minutes is not None:
        return []
    if config.warmup_steps >= total_steps:
        return [
            f"the warm-up of {config.warmup_steps} steps outlasts the run's {total_steps} steps"
        ]
    end = config.schedule_steps or total_steps
    text = f"the cosine ends at step {end}, but the run has {total_steps} steps; use --set "
    return [] if end == total_steps else [f"{text}train.schedule_steps=null"]


def look_up_speed(config: RunConfig, here: str) -> tuple[float, str] | None:
    """Look up the speed of a run's steps on a device, by its name, or on another CPU or GPU.

    A step is taken to last in proportion to its examples.

    Returns: steps per second, and where and how they were measured; None if none were at its
        preset, or if those were of a smaller model or shorter sequences.
    """
    names = (config.task_name, config.mixer_name, config.preset, config.protocol)
    with SPEEDS.open(newline="", encoding="utf-8") as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if (row["task"], row["mixer"], row["preset"], row["protocol"]) == names
            and ("CPU" in row["device"]) == ("CPU" in here)
        ]
    if config.plug_ins or config.preset_code or not rows or _is_larger(config):
        return None
    best = min(rows, key=lambda row: row["device"] != here)
    speed = float(best["steps_per_second"]) * int(best["batch_size"]) / config.train.batch_size
    text = "" if best["device"] == here else f" on {best['device']}"
    changed = select_sections(config.changes, "task", "mixer", "model")
    if changed or config.train.precision != "fp32":
        text += ", with the preset's settings"
    return speed, f"earlier runs{text} made {speed:.3g} steps/s"


def _is_larger(config: RunConfig) -> bool:
    """Whether a run has a larger model than its preset, or longer sequences."""
    task, mixer, protocol = config.task_name, config.mixer_name, config.protocol
    preset = compose(RunRequest(task=task, mixer=mixer, preset=config.preset, protocol=protocol))
    for name, value in select_sections(config.changes, "mixer", "model").items():
        before = preset.settings[name]
        if type(value) is int and (type(before) is not int or value > before):
            return True
    return config.build_task().info.max_length > preset.build_task().info.max_length


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
    config: RunConfig, here: str, stop: StopRequest, steps_made: int = 0, seconds_made: float = 0.0
) -> tuple[float | None, str]:
    """Estimate the time that a run's training steps take, to its end or to where it is to stop.

    Args:
        here: name of the device.
        steps_made: steps that the run has made, which took `seconds_made`.
    Returns: seconds that are left, None if they are not known; and a text that also describes the
        speed that they were estimated from.
    """
    limits = [] if stop.max_seconds is None else [stop.max_seconds]
    source, total_steps, speed = "", count_steps(config), look_up_speed(config, here)
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
