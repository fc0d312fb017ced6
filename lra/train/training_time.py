"""The estimated training time of a run, from speeds that were measured before."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lra.config.schema import RunConfig
from lra.record.benchmark import BenchRecord, all_bench_records
from lra.record.changes import select_sections
from lra.record.run import RunRecord
from lra.record.schema import is_cpu, shipped_dir
from lra.record.table import read_runs
from lra.runtime.progress import duration
from lra.train.schedule import RunLength
from lra.train.self_pretraining import pretraining_config
from lra.train.stopping import StopRequest

_CHANGE_A_STEP = {"train.bucketing", "train.checkpoint_activations", "train.micro_batch"}
"""Settings of training that change the duration of a step, besides the batch size."""
SMALL_STEP = 4096
"""Positions of a step; in a smaller one each of them takes longer."""
MOST_SCALED = 4
"""A small step is scaled to at most this many times its positions."""


@dataclass(frozen=True)
class MeasuredSpeed:
    """The measured speed of training steps."""

    steps_per_second: float
    device: str
    has_settings: bool
    """Whether the model had the settings of the run; otherwise it had those of its preset."""


class Speeds:
    """The speeds of training steps in records of runs and of `lra.bench step`.

    Args:
        records: of equally good ones the first counts.
    """

    def __init__(self, records: Sequence[RunRecord | BenchRecord]) -> None:
        self.records = [
            record
            for record in records
            if record.steps_per_second is not None and getattr(record, "mode", "step") == "step"
        ]

    @classmethod
    def read(cls, results_dir: Path, config: RunConfig | None = None) -> Speeds:
        """Read the records of a results folder and the shipped ones.

        Args:
            config: the only run whose speed is of interest; None: all.
        """
        task, mixer = (config.task_name, config.mixer_name) if config else ("*", "*")
        runs, _ = read_runs(results_dir, shipped=True, task=task, mixer=mixer)
        records: list[RunRecord | BenchRecord] = [record for _, record in reversed(runs)]
        for root in (results_dir, shipped_dir(results_dir)):
            records += all_bench_records(root, f"step-{task}-*")[0]
        return cls(records)

    def find(self, config: RunConfig, here: str) -> MeasuredSpeed | None:
        """Return the speed of a run's steps; None if nothing comparable was measured.

        The speed is scaled by the examples and positions of a step. Records of the same device are
        preferred, then those with the run's settings, then runs to measurements, then like sizes.

        Args:
            here: name of the run's device; other devices of its kind are compared, too.
        """
        length, batch = config.build_task().info.max_length, config.train.batch_size

        def distance(record: RunRecord | BenchRecord) -> tuple[float, ...]:
            is_full = isinstance(record, BenchRecord) and record.lengths == "full"
            return (
                record.device != here,
                not _has_settings(record, config),
                isinstance(record, BenchRecord) + is_full,
                abs(math.log(record.length / length)),
                abs(math.log(record.batch_size / batch)),
            )

        fewest = min(SMALL_STEP, batch * length / MOST_SCALED)
        found = [
            record
            for record in self.records
            if _is_comparable(record, config)
            and is_cpu(record.device) == is_cpu(here)
            and record.batch_size * record.length >= fewest
        ]
        best = min(found, key=distance, default=None)
        if best is None:
            return None
        share = best.batch_size / batch * (best.length / length)
        return MeasuredSpeed(
            (best.steps_per_second or 0.0) * share, best.device, _has_settings(best, config)
        )


def _select_relevant(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Keep the changed settings that the duration of a step depends on, except for the batch."""
    of_training = {name: changes[name] for name in _CHANGE_A_STEP & changes.keys()}
    return select_sections(changes, "task", "mixer", "model") | of_training


def _is_comparable(record: RunRecord | BenchRecord, config: RunConfig) -> bool:
    """Whether a record is of a run's task and mixer, at its settings or at the preset's."""
    of_record = (record.task, record.mixer, record.mixer_code, record.preset, record.protocol)
    of_run = (config.task_name, config.mixer_name, config.mixer_component.code)
    if of_record != (*of_run, config.preset, config.protocol):
        return False
    is_at_preset = _select_relevant(record.changes) == select_sections(record.changes, "task")
    return is_at_preset or _has_settings(record, config)


def _has_settings(record: RunRecord | BenchRecord, config: RunConfig) -> bool:
    same_precision = record.precision == config.train.precision
    return same_precision and _select_relevant(record.changes) == _select_relevant(config.changes)


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

    def __init__(
        self, config: RunConfig, speeds: Speeds, here: str, stop: StopRequest | None = None
    ) -> None:
        self.config = config
        self.here = here
        self.stop = stop or StopRequest()
        self.total_steps = count_steps(config)
        """Steps of the whole run; None if they are not known yet."""
        self.speed = speeds.find(config, here)

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
        return f"{text} (an earlier run{place}{settings} made {speed})"
