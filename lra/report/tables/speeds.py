"""Speed and memory: measurements in interleaved rounds, and the training speeds of a preset."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lra.record.benchmark import BenchRecord
from lra.record.schema import write_changes
from lra.report.names import RowNames, bench_anchor, natural_order, slugify
from lra.report.scores import IsOwn, is_busy
from lra.report.tables.table import Column, Entry, Line, Table, name_column, text_column

_MODES = {
    "step": ("training speed, steps/s", "Training steps per second"),
    "forward": ("evaluation, batches/s", "Evaluation batches per second"),
    "op": ("forward and backward, times/s", "Passes per second of one part of the mixer, forward "
           "and backward"),
    "decode": ("decoding, positions/s", "Positions generated per second, by the mixer's recurrence "
               "or, where marked prefix, by mixing all positions so far again"),
}  # fmt: skip
"""By mode of a measurement, the title of an axis of speed, and what a speed is."""
SHOWN = 3
"""Mixers that a title names."""
_SEQUENCES = {
    "full": "All sequences are synthetic and have the length that is named.",
    "task": "Sequences come from the task and are at most as long as named.",
}
_COMPARED = (
    "Against the reference: how many times as fast the suite is, with the quartiles of the rounds. "
    "The reference is written like published code and was timed in the same rounds "
    "(lra/classifier/reference.py and the reference form of each fast function)."
)


def _order(r: BenchRecord) -> tuple[object, ...]:
    return ([*_MODES].index(r.mode), r.task or "", r.preset or "", r.protocol or "", r.device,
            write_changes(r.changes), r.precision, r.method, r.part or "",
            r.length)  # fmt: skip


def _series(r: BenchRecord) -> str:
    """Name what measurements at several lengths have in common."""
    varied = [" ".join(write_changes(r.varied_changes))] if r.varied_changes else []
    return ", ".join([f"{r.task or r.part or r.mode}, batch {r.batch_size}", *varied])


def _workload(r: BenchRecord) -> str:
    """Name the column of a measurement: "text 4,096 (batch 8)"."""
    what, _, more = _series(r).partition(f", batch {r.batch_size}")
    return f"{what} {r.length:,} (batch {r.batch_size}){more}"


def _setting(r: BenchRecord) -> str:
    """Write what all measurements of a table have in common but the device."""
    parts = [] if r.task is None else [f"preset {r.preset}", f"protocol {r.protocol}"]
    parts += [f"{r.channels} channels"] if r.channels is not None else []
    parts += ["own lengths"] if r.lengths == "task" else []
    return ", ".join(
        [f"Benchmark, {r.mode}", *parts, r.precision, *write_changes(r.common_changes)]
    )


def speed_tables(
    records: Sequence[BenchRecord],
    names: RowNames,
    relative_to: str,
    is_own: IsOwn = lambda _: False,
) -> list[Table]:
    """Tabulate speed, memory and ratios to the reference, a table for what was measured together.

    Args:
        records: measurements.
        names: names of their rows.
        relative_to: the row that the others are compared with.
        is_own: says which measurements are the user's own.
    """
    groups: dict[tuple[object, ...], list[BenchRecord]] = {}
    for r in sorted(records, key=_order):
        rounds = (*sorted(r.measured_with), str(r.varied))
        groups.setdefault((r.device, _setting(r), rounds), []).append(r)
    return [_speed_table(group, names, relative_to, is_own) for group in groups.values()]


def _speed_table(
    group: Sequence[BenchRecord], names: RowNames, relative_to: str, is_own: IsOwn
) -> Table:
    first = group[0]
    rows = list(dict.fromkeys(map(names.of_mixer, group)))
    group = sorted(group, key=lambda r: (natural_order(_series(r)), r.length))
    cells: dict[str, dict[str, BenchRecord]] = {}
    lengths: dict[str, dict[str, float]] = {}
    for r in group:
        cells.setdefault(_workload(r), {})[names.of_mixer(r)] = r
        lengths.setdefault(_series(r), {})[_workload(r)] = r.length
    columns = [name_column("mixer", rows, {names.of_mixer(r) for r in group if is_own(r)})]
    lines: list[Line] = []
    for end, title in (("", _MODES[first.mode][0]), (": MiB", "memory, MiB")):
        for workload, found in cells.items():
            base = found.get(relative_to)
            entries = [_entry(found.get(row), base, is_own, of_memory=bool(end)) for row in rows]
            digits = 0 if end else 2
            columns.append(Column(f"{workload}{end}", entries, digits, lowest_is_best=bool(end)))
        lines += [
            Line(series, {f"{name}{end}": x for name, x in places.items()}, title,
                 is_logarithmic=True)
            for series, places in lengths.items() if len(places) > 1
        ]  # fmt: skip
    columns += [
        text_column(f"{workload}: against the reference", [_ratio(found.get(row)) for row in rows])
        for workload, found in cells.items()
    ]
    parts = [
        f"{_MODES[first.mode][1]}, the median over interleaved rounds. "
        f"{_SEQUENCES[first.lengths]} Memory is the peak memory of a separate process on a CPU, "
        f"and the peak of allocated memory on a GPU; of one part of a mixer, it is what the part "
        f"needs in addition to its input."
    ]
    if relative_to in rows:
        parts.append(f"The number in brackets is relative to {relative_to}.")
    if any(map(is_busy, group)):
        parts.append("Busy means that other processes slowed the measurement down.")
    if any(r.ratio_to_reference is not None for r in group):
        parts.append(_COMPARED)
    more = f" and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
    title = f"{_setting(first)}, {first.device}: {', '.join(rows[:SHOWN])}{more}"
    table = Table(slugify(title), title, " ".join(parts), columns, lines=lines)
    return table.without_empty_columns()


def _number(r: BenchRecord, *, of_memory: bool) -> float | None:
    if not of_memory:
        return r.steps_per_second
    return r.extra_memory_mib if r.mode == "op" else r.peak_memory_mib


def _entry(
    r: BenchRecord | None, base: BenchRecord | None, is_own: IsOwn, *, of_memory: bool
) -> Entry:
    """Write a speed or a memory, and how it compares with that of another mixer."""
    if r is None:
        return Entry()
    value = _number(r, of_memory=of_memory)
    against = base and _number(base, of_memory=of_memory)
    remarks = ["oom"] if r.status == "oom" else []
    text = [] if value is None else [f"{value:,.{0 if of_memory else 2}f}"]
    if value is not None and not of_memory and is_busy(r):
        remarks.append("busy")
    if value is not None and against:
        text = [f"{text[0]} ({value / against:.2f} x)"]
    quartiles = (r.low_quartile, r.high_quartile) if r.low_quartile and r.high_quartile else None
    return Entry(
        ", ".join([*text, *remarks]) or None, value, remarks=remarks, anchors=[bench_anchor(r)],
        interval=None if of_memory else quartiles, is_own=is_own(r),
    )  # fmt: skip


def _ratio(r: BenchRecord | None) -> str | None:
    """Write how many times as fast as the reference a mixer is, with the quartiles."""
    if r is None or r.ratio_to_reference is None:
        return None
    quartiles = f"{r.ratio_low_quartile:.2f} to {r.ratio_high_quartile:.2f}"
    return f"{r.ratio_to_reference:.2f} ({quartiles}){', busy' * is_busy(r)}"


@dataclass(frozen=True)
class PresetSpeed:
    """How fast a mixer trains, and what memory that takes, over the tasks of a preset."""

    mean: float
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
    """
    setting = ("step", preset, protocol, {}, None)
    measured = [
        r for r in records if (r.mode, r.preset, r.protocol, r.changes, r.mixer_code) == setting
    ]
    devices = Counter(sorted(r.device for r in measured)).most_common(1)
    device = devices[0][0] if devices else ""
    found: dict[str, dict[tuple[str, int, int], BenchRecord]] = {}
    for r in measured:
        if r.device == device and r.status == "done":
            found.setdefault(r.mixer, {})[r.task or "", r.length, r.batch_size] = r
    base = found.get(relative_to, {})
    places = [*{task: (task, length, batch) for task, length, batch in sorted(base)}.values()]
    by_mixer: dict[str, PresetSpeed] = {}
    for mixer, own in found.items():
        if places and own.keys() >= {*places}:
            by_task = {
                place[0]: (own[place].steps_per_second or 0) / (base[place].steps_per_second or 1)
                for place in places
            }
            mean = statistics.geometric_mean(by_task.values())
            memory = max(own[place].peak_memory_mib or 0.0 for place in places)
            by_mixer[mixer] = PresetSpeed(mean, by_task, memory)
    return PresetSpeeds(device, relative_to, by_mixer)
