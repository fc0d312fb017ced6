"""Speed and memory: a table per device, in the form of Table 2 of the Long Range Arena."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lra.record.benchmark import BenchRecord
from lra.record.run import RunRecord
from lra.report.accuracy import anchor
from lra.report.cells import counted
from lra.report.drawing import slugify
from lra.report.names import Names, with_hash
from lra.report.table import Table
from lra.runtime.console import MISSING
from tasks.base import BENCHMARK

BUSY = "busy"
"""Word on speeds that were measured while other processes kept the machine busy."""
BUSY_NOTE = " Busy: measured beside other processes, which slow it down."


@dataclass(frozen=True)
class Place:
    """A column of a table of speeds: speeds are compared if all of these fields are equal."""

    task: str
    length: int
    """Positions of the longest sequence."""
    batch_size: int
    rpe_layers: int | None = None
    """Hidden layers of the encoder of positions, where measurements differ in them."""

    @property
    def order(self) -> tuple[object, ...]:
        """Sort key: the benchmark's tasks first, in their order, then other tasks by name."""
        return (self.task not in BENCHMARK, *map(BENCHMARK.index, {self.task} & set(BENCHMARK)),
                self.task, self.length, self.batch_size, self.rpe_layers or 0)  # fmt: skip

    @property
    def facts(self) -> dict[str, object]:
        """The fields that say anything, by name."""
        fields = dataclasses.asdict(self)
        return {name: value for name, value in fields.items() if value is not None}

    def __str__(self) -> str:
        text = f"{self.task} {self.length:,} (batch {self.batch_size})"
        return text if self.rpe_layers is None else f"{text}, {layers_in_words(self.rpe_layers)}"


def layers_in_words(count: int) -> str:
    """Name a number of hidden layers of an encoder of positions."""
    return f"{count} encoder layer{'s' * (count != 1)}"


@dataclass(frozen=True)
class Speed:
    """Speed and memory of one mixer at one place on one device."""

    steps_per_second: float | None
    peak_memory_mib: float | None
    batch_size: int
    words: str = ""
    """Text in place of a speed, or after it: oom if memory ran out."""
    busy: bool = False
    """Whether other processes kept the machine busy meanwhile."""
    low: float | None = None
    high: float | None = None
    """Upper quartile of steps per second, `low` being the lower one; only for benchmarks."""
    link: str = ""
    ratio_to_reference: float | None = None
    """Speed as a multiple of the reference's; None unless a benchmark compared them."""
    ratio_low: float | None = None
    ratio_high: float | None = None
    time_breakdown: Mapping[str, float] | None = None
    """Percent of a step's time by purpose."""

    @property
    def examples_per_second(self) -> float:
        """Speed that can be compared if batch sizes differ; nan without a speed."""
        return self.batch_size * (self.steps_per_second or math.nan)

    @property
    def memory(self) -> float:
        """Peak memory in MiB; nan where none was measured."""
        return self.peak_memory_mib or math.nan


@dataclass(frozen=True)
class SpeedBoard:
    """Speeds that can be compared, all measured on one device."""

    device: str
    title: str
    slug: str
    """What was measured, and on which device, in the names of files."""
    note: str
    """Sentence on how the speeds were measured."""
    rows: Mapping[str, Mapping[Place, Speed]]
    """Speeds, by method and then by place."""
    unit: str = "training speed, steps/s"
    """Label of an axis of speeds."""

    @property
    def places(self) -> list[Place]:
        """The columns: every place at which some row has a speed, in order."""
        return sorted(
            {place for cells in self.rows.values() for place in cells},
            key=lambda place: place.order,
        )


def is_busy(record: RunRecord | BenchRecord) -> bool:
    """Say whether other processes kept the machine busy while a record was made."""
    return record.threads is not None and record.threads.busy


def marked(text: str, *, busy: bool) -> str:
    """Mark a number that hangs on time if it was measured on a busy machine."""
    return f"{text}, {BUSY}" if busy else text


def speed_of(runs: Iterable[RunRecord]) -> Speed:
    """Join runs that differ only in their seed: the median speed and the largest memory."""
    runs = list(runs)
    fits = [run for run in runs if run.status != "oom"]
    speeds = [run.steps_per_second for run in fits if run.steps_per_second is not None]
    failed = len(runs) - len(fits)
    return Speed(
        steps_per_second=statistics.median(speeds) if speeds else None,
        peak_memory_mib=max(run.peak_memory_mib for run in fits) if fits else None,
        batch_size=runs[0].batch_size,
        words="oom" if not fits else f"{failed} oom" if failed else "",
        busy=any(map(is_busy, fits)),
        link=anchor((fits or runs)[0]),
    )


def speed_boards(records: Sequence[RunRecord], names: Names | None = None) -> list[SpeedBoard]:
    """Sort the speeds of runs by device, preset and protocol; `names` as for `boards`."""
    names = names or Names(records)
    found: dict[tuple[str, str, str], dict[str, dict[Place, list[RunRecord]]]] = {}
    hashes: dict[tuple[object, ...], set[str]] = {}
    for r in records:
        hashes.setdefault(_cell(r, names), set()).add(r.config_hash)
    for r in sorted(records, key=lambda r: (r.preset != "paper", r.preset, r.protocol, r.device)):
        rows = found.setdefault((r.preset, r.protocol, r.device), {})
        # Runs on data of another kind, but of one length, meet here alone.
        is_shared = len(hashes[_cell(r, names)]) > 1
        name = with_hash(names.of(r), r) if is_shared else names.of(r)
        rows.setdefault(name, {}).setdefault(_place(r), []).append(r)
    return [
        SpeedBoard(
            device,
            f"Preset {preset}, protocol {protocol}",
            slugify(preset, protocol, device),
            "One over the median duration of a training step; sequences are of all lengths up to "
            "the one named. Memory is the peak of the process on a CPU, of what is allocated on a "
            "GPU.",
            {
                name: {
                    place: speed_of(counted(sorted(runs, key=lambda r: r.run_id)))
                    for place, runs in by_place.items()
                }
                for name, by_place in sorted(rows.items())
            },
        )
        for (preset, protocol, device), rows in found.items()
    ]


def _place(record: RunRecord) -> Place:
    return Place(record.task, record.length, record.batch_size)


def _cell(record: RunRecord, names: Names) -> tuple[object, ...]:
    return record.preset, record.protocol, record.device, names.of(record), _place(record)


def speed_table(board: SpeedBoard, relative_to: str, slug: str) -> Table:
    """Tabulate steps per second, and how they compare with those of the mixer `relative_to`."""
    return _table(board, relative_to, slug, _PER_SECOND)


def memory_table(board: SpeedBoard, relative_to: str, slug: str) -> Table:
    """Tabulate peak memory in MiB, and how it compares with that of the mixer `relative_to`."""
    return _table(board, relative_to, slug, _MEMORY)


def tables_of(board: SpeedBoard, relative_to: str) -> list[Table]:
    """Make the tables of a board that have anything in them."""
    tables = [
        speed_table(board, relative_to, f"speed-{board.slug}"),
        memory_table(board, relative_to, f"memory-{board.slug}"),
    ]
    return [table for table in tables if table.facts or table.slug.startswith("speed-")]


@dataclass(frozen=True)
class _Quantity:
    title: str
    name: str
    digits: int
    takes_time: bool
    """Whether a busy machine changes it."""


_PER_SECOND = _Quantity("steps per second", "steps_per_second", 2, takes_time=True)
_MEMORY = _Quantity("peak memory in MiB", "peak_memory_mib", 0, takes_time=False)


def _table(board: SpeedBoard, relative_to: str, slug: str, quantity: _Quantity) -> Table:
    places = board.places
    compared_with = board.rows.get(relative_to, {})
    rows: list[list[str]] = []
    links: dict[tuple[int, int], str] = {}
    facts: list[dict[str, object]] = []
    any_busy = False
    for i, (method, cells) in enumerate(board.rows.items()):
        rows.append([method])
        for j, place in enumerate(places, start=1):
            speed, against = cells.get(place), compared_with.get(place)
            value = getattr(speed, quantity.name, None)
            base = getattr(against, quantity.name, None)
            relative = value / base if value is not None and base else None
            text = _text(speed, value, relative, quantity.digits)
            busy = speed is not None and value is not None and quantity.takes_time and speed.busy
            any_busy |= busy
            rows[i].append(marked(text, busy=busy))
            if speed is not None and speed.link:
                links[i, j] = speed.link
            if value is not None:
                facts.append(
                    {
                        "device": board.device,
                        "setting": board.title,
                        "mixer": method,
                        **place.facts,
                        quantity.name: value,
                        "low_quartile": getattr(speed, "low", None),
                        "high_quartile": getattr(speed, "high", None),
                        f"relative_to_{relative_to}": relative,
                    }
                )
    in_brackets = f" In brackets: relative to {relative_to}." if compared_with else ""
    return Table(
        slug=slug,
        title=f"{board.title}, {board.device}: {quantity.title}",
        caption=board.note + in_brackets + (BUSY_NOTE if any_busy else ""),
        columns=["mixer", *map(str, places)],
        rows=rows,
        links=links,
        facts=facts,
    )


def _text(speed: Speed | None, value: float | None, relative: float | None, digits: int) -> str:
    if value is None:
        return (speed.words if speed else "") or MISSING
    text = f"{value:,.{digits}f}"
    if relative is not None:
        text += f" ({relative:.2f} x)"
    return f"{text}, {speed.words}" if speed is not None and speed.words else text
