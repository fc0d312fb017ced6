"""How long a run will take, from the speeds of earlier runs and of measurements."""

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
from lra.record.run import RunRecord, all_records
from lra.record.schema import shipped_dir, was_busy
from lra.runtime.console import as_typed
from lra.runtime.launch import command_words
from lra.runtime.progress import duration
from lra.train.run_length import RunLength
from lra.train.self_pretraining import pretraining_config
from lra.train.stopping import StopRequest

_CHANGE_A_STEP = {"train.bucketing", "train.checkpoint_activations", "train.micro_batch"}
"""Settings of training that change how long a step takes; of the others only the batch does."""
SMALL_STEP = 4096
"""Positions of a step; in a smaller one each of them takes longer."""
MOST_SCALED = 4
"""Times as many positions as in a small step to which its speed is still scaled."""


@dataclass(frozen=True)
class EstimatedSpeed:
    """How fast a run's training steps will be, and how that is known."""

    steps_per_second: float
    device: str
    """The device that it was measured on."""
    origin: str
    """What was measured, and what was scaled from it."""
    has_settings: bool
    """Whether the settings of the model were the run's; else they were those of its preset."""


class Timings:
    """Speeds of finished training steps, by runs and by `lra.bench step`.

    What was measured on a device is preferred to what was measured on others of its kind, CPU or
    GPU; a run's settings to others; runs to benchmarks of a task's own lengths, and these to
    benchmarks of full length. A step is taken to last in proportion to its examples and positions.

    Args:
        runs: records of runs.
        measured: records of benchmarks.
        results_dir: folder of one's own records; None: the default one.
    """

    def __init__(
        self,
        runs: Sequence[RunRecord],
        measured: Sequence[BenchRecord],
        results_dir: Path | None = None,
    ) -> None:
        self.results_dir = results_dir
        self.runs = runs
        self.measured = [bench for bench in measured if bench.mode == "step"]

    @property
    def all(self) -> list[RunRecord | BenchRecord]:
        """All records of speeds."""
        return [*self.runs, *self.measured]

    @classmethod
    def read(cls, results_dir: Path, config: RunConfig | None = None) -> Timings:
        """Read the records of a results folder, one's own and the shipped ones.

        Args:
            results_dir: the folder.
            config: the only run whose speed will be asked for; None: any.
        """
        task, mixer = (config.task_name, config.mixer_name) if config else ("*", "*")
        runs: list[RunRecord] = []
        measured: list[BenchRecord] = []
        for root in (results_dir, shipped_dir(results_dir)):  # of equals one's own come first
            runs += all_records(root, task, mixer)[0]
            measured += all_bench_records(root, f"step-{task}-*")[0]
        return cls(runs, measured, results_dir)

    def command(self, *flags: str, device: str) -> list[str]:
        """Return the words of the command that times a step on a kind of device."""
        words = command_words("bench", "step", *flags)
        if not is_cpu(device):
            words += ["--device", "cuda"]
        results = "results" if self.results_dir is None else as_typed(str(self.results_dir))
        return words if results == "results" else [*words, "--out", f"{results}/bench"]

    def steps(self, config: RunConfig) -> int | None:
        """Return the optimizer steps of a run; None for a run of a time, or of unknown data."""
        train = config.train
        if train.minutes is not None:
            return None
        data = select_sections(config.changes, "task")
        examples = next(
            (
                record.data.sizes["train"]
                for record in self.runs
                if (record.task, record.task_code, record.preset, record.protocol)
                == (config.task_name, config.task_component.code, config.preset, config.protocol)
                and select_sections(record.changes, "task") == data
                and "train" in record.data.sizes
            ),
            config.build_task().training_examples(),
        )
        if examples is None:
            return None if config.is_pretrained else train.steps
        phases = [config, pretraining_config(config)] if config.is_pretrained else [config]
        return sum(_total_steps(phase.train, examples) for phase in phases)

    def speed(self, config: RunConfig, here: str) -> EstimatedSpeed | None:
        """Return how fast a run's steps will be; None if nothing like it was measured.

        Args:
            config: the run's.
            here: name of the device that it will be on.
        """
        length = config.build_task().info.max_length
        found = [
            record
            for record in self.all
            if record.steps_per_second is not None
            and _is_comparable(record, config)
            and _says_enough(record, config, length)
            and is_cpu(record.device) == is_cpu(here)
        ]
        best = min(found, key=lambda r: _rank(r, config, length, here), default=None)
        return None if best is None else _scale_speed(best, config, length)


def _total_steps(train: TrainConfig, examples: int) -> int:
    return RunLength(train, math.ceil(examples / train.batch_size)).total(0, 0.0)


class TrainingTime:
    """The estimated time that a run trains on a device, without its evaluations.

    Args:
        config: the run's.
        timings: speeds of earlier runs and of measurements.
        here: name of the device.
        stop: has the limits at which the run stops earlier; None: it has none.
    """

    def __init__(
        self, config: RunConfig, timings: Timings, here: str, stop: StopRequest | None = None
    ) -> None:
        self.config = config
        self.timings = timings
        self.here = here
        self.stop = stop or StopRequest()
        self.total_steps = timings.steps(config)
        """Steps of the whole run; None where they are not known yet."""
        self.speed = timings.speed(config, here)

    @property
    def steps(self) -> int | None:
        """Steps after which the run ends or stops; None where they are not known yet."""
        return None if self.total_steps is None else self.stop.last_step(self.total_steps)

    def seconds(self, steps_made: int = 0, seconds_made: float = 0.0) -> float | None:
        """Return the time that is left; None where it is not known.

        Args:
            steps_made: steps of the run so far.
            seconds_made: time that they took.
        """
        limits = [] if self.stop.max_seconds is None else [self.stop.max_seconds]
        if self.config.train.minutes is not None:
            limits.append(max(0.0, 60 * self.config.train.minutes - seconds_made))
        elif self.steps is not None and self.speed is not None:
            limits.append(max(0, self.steps - steps_made) / self.speed.steps_per_second)
        return min(limits, default=None)

    def describe(self, steps_made: int = 0, seconds_made: float = 0.0) -> str:
        """Describe the time that is left and its source, or what is missing to estimate it."""
        seconds = self.seconds(steps_made, seconds_made)
        left = " left" if steps_made else ""
        if seconds is None:
            return self._describe_missing()
        if seconds == self.stop.max_seconds:
            return f"{duration(seconds)} of training, as {self.stop.time_flag} says"
        if self.config.train.minutes is not None or self.speed is None:
            return f"{duration(seconds)} of training{left}, as train.minutes says"
        kind = _kind_of(self.here)
        device = self.speed.device
        where = f"this {kind}" if device == self.here else f"{device}, not this {kind}"
        return (
            f"{duration(seconds)} of training{left} on {where} ({self._describe_steps()} at "
            f"{self.speed.steps_per_second:.3g} steps/s; source: {self.speed.origin})"
        )

    def _describe_steps(self) -> str:
        whole = "" if self.steps == self.total_steps else f" of {self.total_steps:,}"
        return f"{self.steps:,}{whole} steps"

    def _describe_missing(self) -> str:
        if self.steps is None:
            return "not known: the number of examples per epoch is known once the data is there"
        config = self.config
        task, mixer = config.task_component.spec, config.mixer_component.spec
        flags = ["--task", task, "--mixers", mixer, "--preset", config.preset]
        command = self.timings.command(*flags, "--protocol", config.protocol, device=self.here)
        return (
            f"not known: {config.mixer_name} has no timed step for this task and preset on a "
            f"{_kind_of(self.here)}; {self._describe_steps()} (to time one: {shlex.join(command)})"
        )


def _kind_of(device: str) -> str:
    return "CPU" if is_cpu(device) else "GPU"


def is_cpu(device: str) -> bool:
    """Whether the name of a device is a processor's."""
    return "CPU" in device


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


def _rank(
    record: RunRecord | BenchRecord, config: RunConfig, length: int, here: str
) -> tuple[float, ...]:
    """Order records by how much they say of a run on a device, the best first."""
    is_full = isinstance(record, BenchRecord) and record.lengths == "full"
    return (
        record.device != here,
        not _has_settings(record, config),
        isinstance(record, BenchRecord) + is_full,
        abs(math.log(record.length / length)),
        abs(math.log(record.batch_size / config.train.batch_size)),
    )


def _scale_speed(record: RunRecord | BenchRecord, config: RunConfig, length: int) -> EstimatedSpeed:
    """Turn what was measured into the speed of a run's steps."""
    batch = config.train.batch_size
    has_settings = _has_settings(record, config)
    said = ["a run" if isinstance(record, RunRecord) else "lra.bench step"]
    if isinstance(record, BenchRecord) and record.lengths == "full":
        said.append("every sequence of full length")
    if not has_settings:
        said.append("at other settings")
    if record.batch_size != batch:
        said.append(f"batch {record.batch_size} scaled to {batch}")
    if was_busy(record.threads, record.gpu_shared):
        said.append("on a busy machine")
    if record.length != length:
        said.append(f"{record.length:,} positions scaled to {length:,}")
    speed = (record.steps_per_second or 0.0) * _scale(record, config, length)
    return EstimatedSpeed(speed, record.device, ", ".join(said), has_settings)


def _says_enough(record: RunRecord | BenchRecord, config: RunConfig, length: int) -> bool:
    """Whether what was measured is not much smaller than a run's step."""
    is_large = record.batch_size * record.length >= SMALL_STEP
    return is_large or _scale(record, config, length) >= 1 / MOST_SCALED


def _scale(record: RunRecord | BenchRecord, config: RunConfig, length: int) -> float:
    """Return how many times the positions of a run's step were in what was measured."""
    return record.batch_size / config.train.batch_size * (record.length / length)
