"""Speeds that can be compared: boards of mixers by task, length and batch size, on one device."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lra.record.benchmark import BenchRecord
from lra.record.run import RunRecord
from lra.record.schema import was_busy
from lra.report.boards.cells import IsOwn, counted, none_own
from lra.report.boards.row_names import RowNames, with_hash
from lra.report.boards.slugs import run_anchor, slugify
from tasks.base import BENCHMARK

BUSY = "busy"
"""Word on speeds that were measured while other processes kept the machine busy."""


@dataclass(frozen=True)
class Workload:
    """A column of a table of speeds: speeds are compared if all of these fields are equal."""

    task: str
    length: int
    """Positions of the longest sequence."""
    batch_size: int
    rpe_layers: int | None = None
    """Hidden layers of the encoder of positions, where measurements differ in them."""
    varied: str | None = None
    """Values of the settings that measurements differ in: "section.key=value"."""

    @property
    def order(self) -> tuple[object, ...]:
        """Sort key: the benchmark's tasks first, in their order, then other tasks by name."""
        return (self.task not in BENCHMARK, *map(BENCHMARK.index, {self.task} & set(BENCHMARK)),
                self.task, self.length, self.batch_size, self.rpe_layers or 0,
                len(self.varied or ""), self.varied or "")  # fmt: skip

    @property
    def facts(self) -> dict[str, object]:
        """The fields that say anything, by name."""
        fields = dataclasses.asdict(self)
        return {name: value for name, value in fields.items() if value is not None}

    def __str__(self) -> str:
        text = f"{self.task} {self.length:,} (batch {self.batch_size})"
        return ", ".join([text, *self.differences])

    @property
    def differences(self) -> list[str]:
        """What measurements of one task, length and batch differ in, in words."""
        layers = [] if self.rpe_layers is None else [layers_in_words(self.rpe_layers)]
        return layers if self.varied is None else [*layers, self.varied]


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
    other_links: Sequence[str] = ()
    """Anchors, on the page, of the other runs that it is the median of."""
    ratio_to_reference: float | None = None
    """Speed as a multiple of the reference's; None unless a benchmark compared them."""
    ratio_low: float | None = None
    ratio_high: float | None = None
    time_breakdown: Mapping[str, float] | None = None
    """Percent of a step's time by purpose."""
    has_own: bool = False
    """Whether it was measured by any record of the user's own, rather than shipped ones alone."""

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
    rows: Mapping[str, Mapping[Workload, Speed]]
    """Speeds, by method and then by place."""
    unit: str = "training speed, steps/s"
    """Label of an axis of speeds."""

    @property
    def own_rows(self) -> list[str]:
        """The rows with any speed that the user's own records have measured."""
        return [name for name, cells in self.rows.items() if any(c.has_own for c in cells.values())]

    @property
    def workloads(self) -> list[Workload]:
        """The columns: every place at which some row has a speed, in order."""
        return sorted(
            {workload for cells in self.rows.values() for workload in cells},
            key=lambda workload: workload.order,
        )


def is_busy(record: RunRecord | BenchRecord) -> bool:
    """Say whether other processes kept the machine busy while a record was made."""
    return was_busy(record.threads, record.gpu_shared)


def speed_of(runs: Iterable[RunRecord], is_own: IsOwn[RunRecord] = none_own) -> Speed:
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
        link=run_anchor((fits or runs)[0]),
        other_links=[run_anchor(run) for run in (fits or runs)[1:]],
        has_own=any(map(is_own, runs)),
    )


def speed_boards(
    records: Sequence[RunRecord],
    names: RowNames | None = None,
    is_own: IsOwn[RunRecord] = none_own,
) -> list[SpeedBoard]:
    """Sort the speeds of runs by device, preset and protocol; arguments as for `boards`."""
    names = names or RowNames(records)
    found: dict[tuple[str, str, str], dict[str, dict[Workload, list[RunRecord]]]] = {}
    hashes: dict[tuple[object, ...], set[str]] = {}
    for r in records:
        hashes.setdefault(_cell(r, names), set()).add(r.config_hash)
    for r in sorted(records, key=lambda r: (r.preset != "paper", r.preset, r.protocol, r.device)):
        rows = found.setdefault((r.preset, r.protocol, r.device), {})
        # Runs on data of another kind, but of one length, meet here alone.
        is_shared = len(hashes[_cell(r, names)]) > 1
        name = with_hash(names.of(r), r) if is_shared else names.of(r)
        rows.setdefault(name, {}).setdefault(_workload(r), []).append(r)
    return [
        SpeedBoard(
            device,
            f"Preset {preset}, protocol {protocol}",
            slugify(preset, protocol, device),
            "Speed is 1 divided by the median duration of a training step. Sequences have "
            "different lengths, up to the one in the heading. Memory is the peak memory of the "
            "process on a CPU, and the peak of allocated memory on a GPU.",
            {
                name: {
                    workload: speed_of(counted(sorted(runs, key=lambda r: r.run_id)), is_own)
                    for workload, runs in by_place.items()
                }
                for name, by_place in sorted(rows.items())
            },
        )
        for (preset, protocol, device), rows in found.items()
    ]


def _workload(record: RunRecord) -> Workload:
    return Workload(record.task, record.length, record.batch_size)


def _cell(record: RunRecord, names: RowNames) -> tuple[object, ...]:
    return record.preset, record.protocol, record.device, names.of(record), _workload(record)
