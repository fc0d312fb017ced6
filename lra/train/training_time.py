"""How long a run trains, from the speeds that its steps had before."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lra.config.schema import RunConfig, TrainConfig
from lra.record.benchmark import BenchRecord, all_bench_records
from lra.record.changes import select_sections
from lra.record.run import RunRecord
from lra.record.schema import is_cpu, shipped_dir
from lra.record.table import read_runs
from lra.runtime.launch import command_words
from lra.runtime.progress import duration
from lra.train.run_length import RunLength
from lra.train.self_pretraining import pretraining_config
from lra.train.stopping import StopRequest

_CHANGE_A_STEP = {"train.bucketing", "train.checkpoint_activations", "train.micro_batch"}
"""Settings of training that change how long a step takes; of the others only the batch does."""


@dataclass(frozen=True)
class MeasuredSpeed:
    """How fast training steps were."""

    steps_per_second: float
    device: str
    has_settings: bool
    """Whether the settings of the model were the run's; else they were those of its preset."""


class Speeds:
    """Speeds of training steps, from runs and from `lra.bench step`.

    Args:
        records: of runs and measurements; of equals the first counts.
    """

    def __init__(self, records: Sequence[RunRecord | BenchRecord]) -> None:
        self.records = [
            r
            for r in records
            if r.steps_per_second is not None and getattr(r, "mode", "step") == "step"
        ]

    @classmethod
    def read(cls, results_dir: Path, config: RunConfig | None = None) -> Speeds:
        """Read the records of a results folder, one's own and the shipped ones.

        Args:
            results_dir: the folder.
            config: the only run whose speed will be asked for; None: any.
        """
        task, mixer = (config.task_name, config.mixer_name) if config else ("*", "*")
        runs, _ = read_runs(results_dir, shipped=True, task=task, mixer=mixer)
        records: list[RunRecord | BenchRecord] = [record for _, record in reversed(runs)]
        for root in (results_dir, shipped_dir(results_dir)):
            records += all_bench_records(root, f"step-{task}-*")[0]
        return cls(records)

    def find(self, config: RunConfig, here: str) -> MeasuredSpeed | None:
        """Return how fast a run's steps will be; None if nothing like it was measured.

        A step is taken to last in proportion to its examples and positions. What was measured on
        the device comes first, then what has the run's settings, then what a run has measured.

        Args:
            config: the run's.
            here: name of the device that it will be on.
        """
        length, batch = config.build_task().info.max_length, config.train.batch_size

        def order(r: RunRecord | BenchRecord) -> tuple[float, ...]:
            is_full = isinstance(r, BenchRecord) and r.lengths == "full"
            return (
                r.device != here,
                not _has_settings(r, config),
                isinstance(r, BenchRecord) + is_full,
                abs(math.log(r.length / length)),
                abs(math.log(r.batch_size / batch)),
            )

        found = [
            r
            for r in self.records
            if _is_comparable(r, config)
            and is_cpu(r.device) == is_cpu(here)
            and r.batch_size * r.length >= min(SMALL_STEP, batch * length / MOST_SCALED)
        ]
        if not found:
            return None
        best = min(found, key=order)
        share = best.batch_size / batch * (best.length / length)
        speed = (best.steps_per_second or 0.0) * share
        return MeasuredSpeed(speed, best.device, _has_settings(best, config))


SMALL_STEP = 4096
"""Positions of a step; in a smaller one each of them takes longer."""
MOST_SCALED = 4
"""Times as many positions as in a small step to which its speed is still scaled."""


def _select_relevant(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Keep the changed settings that a step's duration depends on, its batch apart."""
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
    """Return the optimizer steps of a run; None for a run of a time, or of unknown data."""
    if config.train.minutes is not None:
        return None
    examples = config.build_task().training_examples()
    if examples is None:
        return None if config.is_pretrained else config.train.steps
    phases = [config, pretraining_config(config)] if config.is_pretrained else [config]
    return sum(_total_steps(phase.train, examples) for phase in phases)


def _total_steps(train: TrainConfig, examples: int) -> int:
    return RunLength(train, math.ceil(examples / train.batch_size)).total(0, 0.0)


class TrainingTime:
    """The estimated time that a run trains on a device, without its evaluations.

    Args:
        config: the run's.
        speeds: of earlier runs and measurements.
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
        """Steps of the whole run; None where they are not known yet."""
        self.speed = speeds.find(config, here)

    def seconds(self, steps_made: int = 0, seconds_made: float = 0.0) -> float | None:
        """Return the time that is left; None where it is not known.

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
        """Describe the time that is left, or say how to measure what is missing."""
        seconds = self.seconds(steps_made, seconds_made)
        if seconds is None:
            return self._describe_missing()
        text = f"{duration(seconds)} of training{' left' * bool(steps_made)}"
        if self.speed is None or self.config.train.minutes is not None:
            return text
        place = "" if self.speed.device == self.here else f" on {self.speed.device}"
        settings = "" if self.speed.has_settings else ", with the preset's settings"
        return (
            f"{text} (an earlier run{place}{settings} made {self.speed.steps_per_second:.3g} "
            f"steps/s)"
        )

    def _describe_missing(self) -> str:
        if self.total_steps is None:
            return "not known before the data is there; the progress bar shows it"
        config = self.config
        flags = ["--task", config.task_component.spec, "--mixers", config.mixer_component.spec]
        flags += ["--preset", config.preset, "--protocol", config.protocol]
        flags += [] if is_cpu(self.here) else ["--device", "cuda"]
        command = shlex.join(command_words("bench", "step", *flags))
        return (
            f"not known, because no step of {config.mixer_name} was timed at this preset; the "
            f"progress bar shows it (to time one: {command})"
        )
