"""The measured speed of training steps, from records of runs and of `lra.bench step`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from lra.config.compose import compose
from lra.config.request import RunRequest
from lra.config.schema import RunConfig
from lra.record.benchmark import BenchRecord
from lra.record.run import RunRecord
from lra.record.schema import select_sections
from lra.report.data import Data

TimedRecord = RunRecord | BenchRecord

_CHANGE_A_STEP = {"train.bucketing", "train.checkpoint_activations", "train.micro_batch"}
"""Settings of training that change the duration of a step, besides the batch size."""
SMALL_STEP = 4096
"""Positions of a step; in a smaller one each of them takes longer."""
MOST_SCALED = 4
"""A small step is scaled to at most this many times its positions."""


def timed_records(data: Data) -> list[TimedRecord]:
    """List the records that have the speed of training steps."""
    return [
        record
        for record in (*data.records, *data.bench)
        if record.steps_per_second is not None and getattr(record, "mode", "step") == "step"
    ]


def find_speed(records: Sequence[TimedRecord], config: RunConfig, device: str) -> float | None:
    """Return the steps per second that were measured on a device with the settings of a run.

    The speed is scaled by the examples and positions of a step. Runs are preferred to measurements,
    then like lengths and batch sizes; of equally good records the first counts.

    Returns: the speed; None if none was measured.
    """
    length, batch = config.build_task().info.max_length, config.train.batch_size
    of_run = (
        device, config.task_name, config.mixer_name, config.mixer_component.code, config.preset,
        config.protocol, config.train.precision, _select_relevant(config.changes),
    )  # fmt: skip

    def distance(record: TimedRecord) -> tuple[float, ...]:
        is_full = isinstance(record, BenchRecord) and record.lengths == "full"
        return (
            isinstance(record, BenchRecord) + is_full,
            abs(math.log(record.length / length)),
            abs(math.log(record.batch_size / batch)),
        )

    fewest = min(SMALL_STEP, batch * length / MOST_SCALED)
    found = [
        r
        for r in records
        if r.batch_size * r.length >= fewest
        and of_run
        == (r.device, r.task, r.mixer, r.mixer_code, r.preset, r.protocol, r.precision,
            _select_relevant(r.changes))
    ]  # fmt: skip
    best = min(found, key=distance, default=None)
    if best is None:
        return None
    return (best.steps_per_second or 0.0) * best.batch_size / batch * (best.length / length)


def _select_relevant(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Keep the changed settings that the duration of a step depends on, except for the batch."""
    of_training = {name: changes[name] for name in _CHANGE_A_STEP & changes.keys()}
    return select_sections(changes, "task", "mixer", "model") | of_training


def speeds_csv(data: Data) -> str:
    """Write the speed of each mixer on each task at the settings of a preset, by device."""
    import pandas as pd

    records = timed_records(data)
    known = {
        (r.task, r.mixer, r.preset, r.protocol, r.device)
        for r in records
        if r.mixer_code is None and getattr(r, "task_code", None) is None and r.task is not None
    }
    rows: list[dict[str, object]] = []
    for task, mixer, preset, protocol, device in sorted(known, key=str):
        config = compose(
            RunRequest(task=str(task), mixer=mixer, preset=str(preset), protocol=str(protocol))
        )
        speed = find_speed(records, config, device)
        if speed is not None:
            row = {"task": task, "mixer": mixer, "preset": preset, "protocol": protocol}
            row |= {"device": device, "batch_size": config.train.batch_size}
            rows.append({**row, "steps_per_second": f"{speed:.4g}"})
    return pd.DataFrame(rows).to_csv(index=False)
