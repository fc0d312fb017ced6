"""Speed and memory: measurements in interleaved rounds, and the training speeds of a preset."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lra.record.benchmark import BenchRecord
from lra.record.schema import write_changes
from lra.report.boards import Board
from lra.report.data import Data
from lra.report.names import RowNames, bench_anchor, natural_order, slugify
from lra.report.scores import Entry, IsOwn, group_by
from lra.report.tables.table import Column, Line, Table, fill_columns

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

    The tables of a mode follow each other, the largest first. Numbers in brackets are relative to
    one of the rows.
    """

    def together(r: BenchRecord) -> tuple[object, ...]:
        return _setting(r), r.device, *sorted(r.measured_with), str(r.varied)

    records = sorted(records, key=lambda r: (natural_order(_series(r)), r.length))
    groups = [*group_by(records, together).values()]
    groups.sort(key=lambda group: ([*_MODES].index(group[0].mode), -len(group)))
    return [_speed_table(group, names, relative_to, is_own) for group in groups]


def _speed_table(
    group: Sequence[BenchRecord], names: RowNames, relative_to: str, is_own: IsOwn
) -> Table:
    first = group[0]
    rows: dict[str, dict[str, Entry]] = {row: {} for row in sorted(map(names.of_mixer, group))}
    workloads = group_by(group, _workload)
    for workload, records in workloads.items():
        base = next((r for r in records if names.of_mixer(r) == relative_to), None)
        for r in records:
            rows[names.of_mixer(r)] |= {
                workload: _entry(r, base, is_own, of_memory=False),
                f"{workload}: MiB": _entry(r, base, is_own, of_memory=True),
                f"{workload}: against the reference": Entry(_ratio(r)),
            }
    columns = [Column(name) for name in workloads]
    columns += [Column(f"{name}: MiB", digits=0, lowest_is_best=True) for name in workloads]
    columns += [Column(f"{name}: against the reference") for name in workloads]
    lines = [
        Line(series, {f"{_workload(r)}{end}": r.length for r in same}, title, is_logarithmic=True)
        for end, title in (("", _MODES[first.mode][0]), (": MiB", "memory, MiB"))
        for series, same in group_by(group, _series).items()
        if len({r.length for r in same}) > 1
    ]
    parts = [
        f"{_MODES[first.mode][1]}, the median over interleaved rounds. "
        f"{_SEQUENCES[first.lengths]} Memory is the peak memory of a separate process on a CPU, "
        f"and the peak of allocated memory on a GPU; of one part of a mixer, it is what the part "
        f"needs in addition to its input."
    ]
    if relative_to in rows:
        parts.append(f"The number in brackets is relative to {relative_to}.")
    if any(r.gpu_shared for r in group):
        parts.append("Busy means that other processes used the GPU.")
    if any(r.ratio_to_reference is not None for r in group):
        parts.append(_COMPARED)
    more = f" and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
    title = f"{_setting(first)}, {first.device}: {', '.join([*rows][:SHOWN])}{more}"
    caption, filled = " ".join(parts), fill_columns(columns, rows)
    return Table(slugify(title), title, caption, filled, lines=lines).without_empty_columns()


def _entry(r: BenchRecord, base: BenchRecord | None, is_own: IsOwn, *, of_memory: bool) -> Entry:
    """Write a speed or a memory, and how it compares with that of another mixer."""

    def number(record: BenchRecord) -> float | None:
        if not of_memory:
            return record.steps_per_second
        return record.extra_memory_mib if record.mode == "op" else record.peak_memory_mib

    value, against = number(r), base and number(base)
    remarks = ["oom"] if r.status == "oom" else []
    if value is not None and not of_memory and r.gpu_shared:
        remarks.append("busy")
    text = "" if value is None else f"{value:,.{0 if of_memory else 2}f}"
    if value is not None and against:
        text += f" ({value / against:.2f} x)"
    quartiles = (r.low_quartile, r.high_quartile) if r.low_quartile and r.high_quartile else None
    return Entry(
        ", ".join(filter(None, [text, *remarks])) or None,
        value,
        interval=None if of_memory else quartiles,
        remarks=remarks,
        anchors=[bench_anchor(r)],
        is_own=is_own(r),
    )


def _ratio(r: BenchRecord) -> str | None:
    """Write how many times as fast as the reference a mixer is, with the quartiles."""
    if r.ratio_to_reference is None:
        return None
    quartiles = f"{r.ratio_low_quartile:.2f} to {r.ratio_high_quartile:.2f}"
    return f"{r.ratio_to_reference:.2f} ({quartiles}){', busy' * bool(r.gpu_shared)}"


@dataclass(frozen=True)
class PresetSpeed:
    """How fast a mixer trains, and what memory that takes, over the tasks of a preset."""

    by_task: Mapping[str, float]
    """Its steps per second, divided by those of the mixer that it is compared with."""
    memory: float
    """Peak memory in MiB, of the task that takes most."""

    @property
    def mean(self) -> float:
        """Geometric mean over tasks of the relative speed."""
        return statistics.geometric_mean(self.by_task.values())


@dataclass(frozen=True)
class PresetSpeeds:
    """The speeds of all mixers that were measured on every task of a preset, on one device."""

    device: str = ""
    relative_to: str = ""
    by_mixer: Mapping[str, PresetSpeed] = field(default_factory=dict)

    @property
    def heading(self) -> str:
        """The name of the column of these speeds beside results."""
        return f"speed, {self.relative_to} = 1"

    @property
    def tasks(self) -> str:
        """The tasks that were measured, in words."""
        return ", ".join(next((speed.by_task for speed in self.by_mixer.values()), ()))


def preset_speeds(data: Data, board: Board) -> PresetSpeeds:
    """Average the measured training speeds of each mixer over the tasks of a board's preset.

    Only measurements of whole training steps at the settings of the preset count, on the device
    that has most of them, and of each task at the longest sequences. A mixer that was not measured
    on every task has no average.
    """
    relative_to = data.relative_to  # raises UserError for a mixer without runs
    setting = ("step", board.preset, None, board.protocol, {}, None)
    measured = [
        r
        for r in data.bench
        if (r.mode, r.preset, r.preset_code, r.protocol, r.changes, r.mixer_code) == setting
    ]
    if not measured:
        return PresetSpeeds()
    device = statistics.mode(sorted(r.device for r in measured))
    measurements: dict[str, dict[tuple[str, int, int], BenchRecord]] = {}
    for r in measured:
        if r.device == device and r.status == "done":
            measurements.setdefault(r.mixer, {})[r.task or "", r.length, r.batch_size] = r
    base = measurements.get(relative_to, {})
    longest = {task: (task, length, batch) for task, length, batch in sorted(base)}
    by_mixer: dict[str, PresetSpeed] = {}
    for mixer, records in measurements.items():
        if base and records.keys() >= {*longest.values()}:
            by_task = {
                task: (records[key].steps_per_second or 0) / (base[key].steps_per_second or 1)
                for task, key in longest.items()
            }
            memory = max(records[key].peak_memory_mib or 0.0 for key in longest.values())
            by_mixer[mixer] = PresetSpeed(by_task, memory)
    return PresetSpeeds(device, relative_to, by_mixer)
