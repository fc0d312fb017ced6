"""The speeds of training steps, from records of runs and of `lra.bench step`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from lra.config.compose import compose
from lra.config.request import RunRequest
from lra.config.schema import RunConfig
from lra.record.benchmark import BenchRecord
from lra.record.changes import select_sections
from lra.record.run import RunRecord
from lra.record.schema import is_cpu
from lra.report.data import Data
from lra.runtime.console import csv_table
from lra.train.training_time import MeasuredSpeed

_CHANGE_A_STEP = {"train.bucketing", "train.checkpoint_activations", "train.micro_batch"}
"""Settings of training that change the duration of a step, besides the batch size."""
SMALL_STEP = 4096
"""Positions of a step; in a smaller one each of them takes longer."""
MOST_SCALED = 4
"""A small step is scaled to at most this many times its positions."""


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


def speeds_csv(data: Data) -> str:
    """Write the speed of each mixer on each task at the settings of a preset, by device."""
    import pandas as pd

    speeds = Speeds([*data.records, *data.bench])
    known = {
        (r.task, r.mixer, r.preset, r.protocol, r.device)
        for r in speeds.records
        if r.mixer_code is None and getattr(r, "task_code", None) is None and r.task is not None
    }
    rows: list[dict[str, object]] = []
    for task, mixer, preset, protocol, device in sorted(known, key=str):
        config = compose(
            RunRequest(task=str(task), mixer=mixer, preset=str(preset), protocol=str(protocol))
        )
        speed = speeds.find(config, device)
        if speed is not None and speed.has_settings and speed.device == device:
            row = {"task": task, "mixer": mixer, "preset": preset, "protocol": protocol}
            row |= {"device": device, "batch_size": config.train.batch_size}
            rows.append({**row, "steps_per_second": f"{speed.steps_per_second:.4g}"})
    return csv_table(pd.DataFrame(rows))
