"""Estimates of how long runs will take, from earlier runs and measurements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import torch

from lra.record.benchmark import BenchRecord, all_bench_records
from lra.record.run import RunRecord, with_shipped
from lra.record.schema import SHIPPED
from lra.runtime.environment import device_name
from lra.runtime.progress import duration
from lra.sweep.plan import Limits, PlannedRun


class Estimates:
    """Estimates from the speeds of earlier runs and measurements on the same kind of device.

    Runs are preferred to measurements, which are at full length, and speeds on the same device to
    speeds on others of its kind, CPU or GPU.

    Args:
        results_dir: folder of one's own results, with the shipped ones in it.
        device: device that the runs are planned for.
        limits: limits of each run.
    """

    def __init__(self, results_dir: Path, device: torch.device, limits: Limits) -> None:
        self.limits = limits
        runs = [record for _, record in with_shipped(results_dir)[0]]
        roots = (results_dir / SHIPPED, results_dir)
        measured = [
            bench for root in roots for bench in all_bench_records(root)[0] if bench.mode == "step"
        ]
        here = device_name(device)
        known: list[BenchRecord | RunRecord] = [*measured, *runs]
        known = [r for r in known if ("CPU " in r.device) == (device.type == "cpu")]
        known = [r for r in known if all(text.startswith("task.") for text in r.overrides)]
        self.speeds = {
            (record.task, record.method, record.preset, record.protocol): record.steps_per_second
            for record in sorted(known, key=lambda record: record.device == here)
            if record.steps_per_second
        }
        """Steps per second by task, mixer, preset and protocol."""
        self.training_examples = {
            (record.task, record.preset, record.protocol): record.data.sizes["train"]
            for record in runs
        }

    def seconds(self, run: PlannedRun) -> float | None:
        """Estimate the seconds of training left, without evaluations; None if not known."""
        config = run.config
        train = config.train
        record = run.folder.record()
        limit = math.inf
        if self.limits.minutes is not None:
            limit = 60 * self.limits.minutes - (record.wall_seconds if record else 0.0)
        if train.minutes is not None:
            done = (record.train_seconds or 0.0) if record else 0.0
            return max(0.0, min(limit, 60 * train.minutes - done))
        task, preset, protocol = config.task_name, config.preset, config.protocol
        speed = self.speeds.get((task, config.mixer_name, preset, protocol))
        examples = self.training_examples.get((task, preset, protocol))
        steps = train.steps
        if steps is None and train.epochs is not None and examples is not None:
            steps = round(train.epochs * examples / train.batch_size)
        if speed is None or steps is None:
            return None
        steps = min(steps, self.limits.max_steps or steps)
        return max(0.0, min(limit, (steps - (record.steps if record else 0)) / speed))

    def text(self, run: PlannedRun) -> str:
        """Write the estimate for a run as text."""
        seconds = self.seconds(run)
        return "not known" if seconds is None else f"about {duration(seconds)}"

    def total(self, runs: Sequence[PlannedRun]) -> str:
        """Write the estimate for all runs, made one after the other, as text."""
        known = [s for run in runs if (s := self.seconds(run)) is not None]
        text = (
            f"{len(runs)} runs to carry out, training about {duration(sum(known))} in all, one "
            f"after the other"
        )
        missing = len(runs) - len(known)
        if missing:
            text += f", without {missing} of which no speed is known (python -m lra.bench step)"
        return text
