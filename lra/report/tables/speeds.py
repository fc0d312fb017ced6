"""Speed and memory: measurements in interleaved rounds, and the training speeds of a preset."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from lra.record.benchmark import BenchRecord
from lra.record.changes import write_changes
from lra.report.names import RowNames, bench_anchor, natural_order, slugify
from lra.report.scores import IsOwn, is_busy, none_own
from lra.report.tables.table import (
    Column,
    Entry,
    Line,
    Table,
    name_column,
    number_entry,
    text_column,
)
from tasks.base import BENCHMARK

BUSY = "busy"
"""Word on speeds that were measured while other processes kept the machine busy."""
_NOTES = {
    "step": "Training steps per second, the median over interleaved rounds.",
    "forward": "Evaluation batches per second, the median over interleaved rounds.",
    "op": "Passes per second of one part of the mixer, forward and backward, the median over "
    "interleaved rounds.",
    "decode": "Positions generated per second, the median over interleaved rounds. It uses the "
    "mixer's recurrence or, where marked prefix, mixes all positions so far again.",
}
_UNITS = {
    "step": "training speed, steps/s",
    "forward": "evaluation, batches/s",
    "op": "forward and backward, times/s",
    "decode": "decoding, positions/s",
}
_SEQUENCES = {
    "full": "All sequences are synthetic and have the length that is named.",
    "task": "Sequences come from the task and are at most as long as named.",
}
_MEMORY = (
    "Memory is the peak memory of a separate process on a CPU, and the peak of allocated memory on "
    "a GPU."
)
_EXTRA_MEMORY = "Memory is the additional memory that it needs, measured in a separate process."
_COMPARED = (
    "Against the reference: how many times as fast the suite is, with the quartiles of the rounds. "
    "Both were timed in interleaved rounds, each in a process of its own. The reference is written "
    "like published code (lra/classifier/reference.py and the reference form of each fast "
    "function): Fourier transforms of twice the length, in single precision, every sequence padded "
    "to the task's longest, and default settings of autograd, allocator and threads."
)


def _order(r: BenchRecord) -> tuple[object, ...]:
    return (list(_NOTES).index(r.mode), r.task or "", r.preset or "", r.protocol or "", r.device,
            write_changes(r.changes), r.precision, r.method, r.part or "", r.length)  # fmt: skip


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
    is_own: IsOwn[BenchRecord] = none_own,
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
    return [
        table
        for group in groups.values()
        for table in (_speed_table(group, names, relative_to, is_own), *_time_table(group, names))
    ]


def _speed_table(
    group: Sequence[BenchRecord], names: RowNames, relative_to: str, is_own: IsOwn[BenchRecord]
) -> Table:
    first = group[0]
    rows = list(dict.fromkeys(map(names.of_mixer, group)))
    own = {names.of_mixer(r) for r in group if is_own(r)}
    by_task = sorted(
        group, key=lambda r: (_task_order(r.task), natural_order(_series(r)), r.length)
    )
    places: dict[str, dict[str, BenchRecord]] = {}
    for r in by_task:
        places.setdefault(_workload(r), {})[names.of_mixer(r)] = r
    columns = [name_column("mixer", rows, own)]
    for end, digits, number in _QUANTITIES:
        for place, found in places.items():
            against = number(found[relative_to]) if relative_to in found else None
            entries = [_entry(found.get(row), number, digits, against, is_own) for row in rows]
            columns.append(Column(f"{place}{end}", entries, digits, lowest_is_best=bool(end)))
    columns += [
        text_column(f"{place}: against the reference", [_ratio(found.get(row)) for row in rows])
        for place, found in places.items()
    ]
    columns = [columns[0], *(column for column in columns[1:] if not column.is_empty)]
    lines: dict[str, Line] = {}
    for end, what, unit in (("", "speed", _UNITS[first.mode]), (": MiB", "memory", "memory, MiB")):
        for series in dict.fromkeys(map(_series, by_task)):
            lengths = {f"{_workload(r)}{end}": r.length for r in by_task if _series(r) == series}
            found = {c.name: float(lengths[c.name]) for c in columns if c.name in lengths}
            if len(found) > 1:
                lines[f"{series}: {what}"] = Line(found, y=unit, is_logarithmic=True)
    memory = _EXTRA_MEMORY if first.mode == "op" else _MEMORY
    parts = [_NOTES[first.mode], _SEQUENCES[first.lengths], memory]
    if relative_to in rows:
        parts.append(f"The number in brackets is relative to {relative_to}.")
    if any(map(is_busy, group)):
        parts.append("Busy means that other processes slowed the measurement down.")
    if any(r.ratio_to_reference is not None for r in group):
        parts.append(_COMPARED)
    few = ", ".join(rows) if len(rows) < 4 else f"{len(rows)} mixers"  # noqa: PLR2004
    title = f"{_setting(first)}, {first.device}: {few}"
    return Table(slugify(title), title, " ".join(parts), columns, lines=lines)


def _task_order(task: str | None) -> tuple[int, str]:
    return BENCHMARK.index(task) if task in BENCHMARK else len(BENCHMARK), task or ""


def _memory_of(r: BenchRecord) -> float | None:
    return r.extra_memory_mib if r.mode == "op" else r.peak_memory_mib


_QUANTITIES: Sequence[tuple[str, int, Callable[[BenchRecord], float | None]]] = (
    ("", 2, lambda r: r.steps_per_second), (": MiB", 0, _memory_of),
)  # fmt: skip
"""What is measured: the end of a column's name, decimals, and the number of a record."""


def _entry(
    r: BenchRecord | None,
    number: Callable[[BenchRecord], float | None],
    digits: int,
    against: float | None,
    is_own: IsOwn[BenchRecord],
) -> Entry:
    """Write a speed or a memory, and how it compares with that of another mixer."""
    if r is None:
        return Entry()
    value = number(r)
    remarks = ["oom"] if r.status == "oom" else []
    if value is not None and digits and is_busy(r):
        remarks.append(BUSY)
    text = [] if value is None else [f"{value:,.{digits}f}"]
    if value is not None and against:
        text = [f"{text[0]} ({value / against:.2f} x)"]
    return Entry(
        ", ".join([*text, *remarks]) or None, value, remarks=remarks, anchors=[bench_anchor(r)],
        interval=(r.low_quartile, r.high_quartile) if digits and r.low_quartile and r.high_quartile
        else None, is_own=is_own(r),
    )  # fmt: skip


def _ratio(r: BenchRecord | None) -> str | None:
    """Write how many times as fast as the reference a mixer is, with the quartiles."""
    if r is None or r.ratio_to_reference is None:
        return None
    quartiles = f"{r.ratio_low_quartile:.2f} to {r.ratio_high_quartile:.2f}"
    return f"{r.ratio_to_reference:.2f} ({quartiles}){f', {BUSY}' * is_busy(r)}"


def _time_table(group: Sequence[BenchRecord], names: RowNames) -> list[Table]:
    """Tabulate the parts of a step's time, if they were measured."""
    found = {(names.of_mixer(r), _workload(r)): r.time_breakdown for r in group if r.time_breakdown}
    if not found:
        return []
    parts = list(dict.fromkeys(part for times in found.values() for part in times))
    title = f"{_setting(group[0])}, {group[0].device}: parts of a training step's time, in percent"
    columns = [
        text_column("mixer", [f"{row}, {place}" for row, place in found]),
        *(
            Column(part, [number_entry(times.get(part, 0.0), 1) for times in found.values()], 1)
            for part in parts
        ),
    ]
    caption = (
        "Measured by PyTorch's profiler. Each part includes its backward pass. The part kernels is "
        "the time to generate them, including the products and transforms for that."
    )
    return [Table(slugify(title), title, caption, columns)]


def against_reference(records: Sequence[BenchRecord], names: RowNames) -> list[Table]:
    """Tabulate every measurement that was compared with its reference, if any was."""
    compared = [r for r in sorted(records, key=_order) if r.ratio_to_reference is not None]
    if not compared:
        return []
    texts: dict[str, list[str | None]] = {
        "measured": [", ".join([_measured(r), *write_changes(r.changes)]) for r in compared],
        "mixer": [names.of_mixer(r) for r in compared],
        "batch x positions (x channels)": [
            f"{r.batch_size} x {r.length:,}" + (f" x {r.channels}" if r.channels else "")
            for r in compared
        ],
        "lengths": ["the task's own" if r.lengths == "task" else "full" for r in compared],
        "precision": [r.precision for r in compared],
        "times as fast": [_ratio(r) for r in compared],
        "memory": [_memory_share(r) for r in compared],
    }
    return [
        Table(
            "against-reference",
            "Speed relative to the reference",
            f"{_COMPARED} Memory is the suite's peak memory as a share of the reference's. For "
            "single parts of a mixer it is the additional memory that they need.",
            [text_column(name, column) for name, column in texts.items()],
            beneath=len(compared),
        )
    ]


def _measured(r: BenchRecord) -> str:
    return f"{r.part} alone" if r.part else f"{r.mode}, {r.task}"


def _memory_share(r: BenchRecord) -> str | None:
    ours, reference = r.peak_memory_mib, r.reference_peak_memory_mib
    if ours is None or reference is None:
        return None
    if r.mode == "op":
        ours -= r.base_memory_mib or 0.0
        reference -= r.reference_base_memory_mib or 0.0
    return f"{ours / reference:.0%}" if reference > 0 else None


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
