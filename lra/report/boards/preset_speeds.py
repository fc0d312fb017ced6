"""Training speed and memory of mixers at one preset, over its tasks, from measurements."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lra.record.benchmark import BenchRecord

_Place = tuple[str, int, int]
"""Task, longest sequence and batch size."""


@dataclass(frozen=True)
class PresetSpeed:
    """How fast a mixer trains, and what memory that takes, over the tasks of a preset."""

    relative: float
    """Geometric mean over tasks of its steps per second, divided by those of the mixer that it is
    compared with."""
    by_task: Mapping[str, float]
    """The same on each task."""
    memory: float
    """Peak memory in MiB, of the task that takes most."""


@dataclass(frozen=True)
class PresetSpeeds:
    """The speeds of all mixers that were measured on every task of a preset, on one device."""

    device: str = ""
    relative_to: str = ""
    by_mixer: Mapping[str, PresetSpeed] = field(default_factory=dict)

    @property
    def tasks(self) -> str:
        """The tasks that were measured, in words."""
        return ", ".join(next((one.by_task for one in self.by_mixer.values()), ()))


def preset_speeds(
    records: Sequence[BenchRecord], preset: str, protocol: str, relative_to: str
) -> PresetSpeeds:
    """Average the measured training speeds of each mixer over the tasks of a preset.

    Only measurements of whole training steps at the settings of the preset count, on the device
    that has most of them, and of each task at the longest sequences. A mixer that was not measured
    on every task has no average.

    Args:
        records: measurements.
        preset: the preset.
        protocol: the protocol.
        relative_to: the mixer that speeds are divided by.
    """
    measured = [
        r
        for r in records
        if (r.mode, r.preset, r.protocol) == ("step", preset, protocol)
        and not r.changes
        and r.mixer_code is None
    ]
    devices = Counter(sorted(r.device for r in measured)).most_common(1)
    device = devices[0][0] if devices else ""
    found: dict[str, dict[_Place, BenchRecord]] = {}
    for r in measured:
        if r.device == device and r.status == "done":
            found.setdefault(r.mixer, {})[r.task or "", r.length, r.batch_size] = r
    base = found.get(relative_to, {})
    longest = {task: (task, length, batch) for task, length, batch in sorted(base)}
    places = list(longest.values())
    return PresetSpeeds(
        device,
        relative_to,
        {
            mixer: _preset_speed({p: own[p] for p in places}, base)
            for mixer, own in found.items()
            if places and own.keys() >= {*places}
        },
    )


def _preset_speed(
    own: Mapping[_Place, BenchRecord], base: Mapping[_Place, BenchRecord]
) -> PresetSpeed:
    by_task = {place[0]: _speed(record) / _speed(base[place]) for place, record in own.items()}
    return PresetSpeed(
        statistics.geometric_mean(by_task.values()),
        by_task,
        max(record.peak_memory_mib or 0.0 for record in own.values()),
    )


def _speed(record: BenchRecord) -> float:
    """Return steps per second, which every measurement that was finished has."""
    assert record.steps_per_second is not None
    return record.steps_per_second
