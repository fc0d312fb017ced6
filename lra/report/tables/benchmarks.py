"""Tables of speeds measured in interleaved rounds, some compared with a reference."""

from __future__ import annotations

from collections.abc import Sequence

from lra.record.benchmark import BenchRecord
from lra.record.changes import write_changes
from lra.report.boards.benchmarks import _LEARNED, _bench_order
from lra.report.boards.row_names import RowNames
from lra.report.boards.speeds import BUSY, Speed, SpeedBoard, is_busy, layers_in_words
from lra.report.tables.speed import speed_and_memory_tables
from lra.report.tables.table import Table, name_column, text_column, text_columns

_COMPARED = (
    "The number says how many times as fast as the reference the suite is. Both were timed in "
    "interleaved rounds, each in a process of its own. The reference is written like published "
    "code (lra/classifier/reference.py and the reference form of each fast function). It "
    "computes Fourier transforms over positions, padded to twice the length, in single precision. "
    "It pads every sequence to the task's longest, and leaves autograd, allocator and threads at "
    "their defaults. The number is the median over rounds or, with the task's own lengths, the "
    "ratio over all rounds together. The quartiles of the rounds are in brackets."
)


def benchmark_tables(board: SpeedBoard, relative_to: str) -> list[Table]:
    """Tabulate speed and memory and, if they were measured, ratios and times by purpose."""
    tables = speed_and_memory_tables(board, relative_to)
    speeds = [speed for cells in board.rows.values() for speed in cells.values()]
    if any(speed.ratio_to_reference is not None for speed in speeds):
        tables.append(_ratio_table(board, f"against-reference-{board.slug}"))
    if any(speed.time_breakdown for speed in speeds):
        tables.append(_time_table(board, f"time-breakdown-{board.slug}"))
    return tables


def _ratio_table(board: SpeedBoard, slug: str) -> Table:
    columns = [name_column("mixer", board.rows, board.own_rows)]
    for workload in board.workloads:
        speeds = [cells.get(workload) for cells in board.rows.values()]
        texts = [_ratio_of(speed) if speed is not None else None for speed in speeds]
        columns.append(text_column(str(workload), texts))
    return Table(
        slug=slug,
        title=f"{board.title}, {board.device}: speed relative to the reference",
        caption=_COMPARED,
        columns=columns,
        facts=[
            {
                "device": board.device,
                "setting": board.title,
                "mixer": method,
                **workload.facts,
                "ratio_to_reference": speed.ratio_to_reference,
                "low_quartile": speed.ratio_low,
                "high_quartile": speed.ratio_high,
            }
            for method, cells in board.rows.items()
            for workload in board.workloads
            if (speed := cells.get(workload)) is not None and speed.ratio_to_reference is not None
        ],
    )


def _ratio_of(speed: Speed) -> str | None:
    if speed.ratio_to_reference is None:
        return None
    text = _ratio(speed.ratio_to_reference, speed.ratio_low, speed.ratio_high)
    return f"{text}, {BUSY}" if speed.busy else text


def _ratio(ratio: float | None, low: float | None, high: float | None) -> str:
    """Write a ratio with its quartiles."""
    return f"{ratio:.2f} ({low:.2f} to {high:.2f})"


def _time_table(board: SpeedBoard, slug: str) -> Table:
    rows: list[list[str]] = []
    facts: list[dict[str, object]] = []
    names: dict[str, None] = {}
    broken_down = [
        (method, workload, speed.time_breakdown)
        for method, cells in board.rows.items()
        for workload in board.workloads
        if (speed := cells.get(workload)) is not None and speed.time_breakdown
    ]
    for _, _, times in broken_down:
        names |= dict.fromkeys(times)
    for method, workload, times in broken_down:
        rows.append([method, str(workload), *(f"{times.get(name, 0):.1f}" for name in names)])
        facts.append({"device": board.device, "setting": board.title, "mixer": method,
                      "place": str(workload), **times})  # fmt: skip
    return Table(
        slug=slug,
        title=f"{board.title}, {board.device}: parts of a training step's time, in percent",
        caption="Measured by PyTorch's profiler. Each part includes its backward pass. The part "
        "kernels is the time to generate them, including the products and transforms for that.",
        columns=text_columns(["mixer", "", *names], rows),
        facts=facts,
    )


def against_reference(
    records: Sequence[BenchRecord], names: RowNames | None = None
) -> Table | None:
    """Tabulate every measurement that was compared with its reference, if any was.

    Args:
        records: measurements.
        names: as for `boards`.
    """
    names = names or RowNames([], records)
    compared = [r for r in sorted(records, key=_bench_order) if r.ratio_to_reference is not None]
    if not compared:
        return None
    rows = []
    for r in compared:
        memory = _memory_share(r)
        ratios = r.ratio_to_reference, r.ratio_low_quartile, r.ratio_high_quartile
        rows.append(
            [
                ", ".join([_measured(r), *write_changes(r.changes)]),
                names.of_mixer(r),
                f"{r.batch_size} x {r.length:,}" + (f" x {r.channels}" if r.channels else ""),
                "the task's own" if r.lengths == "task" else "full",
                r.precision,
                _ratio(*ratios) + (f", {BUSY}" if is_busy(r) else ""),
                None if memory is None else f"{memory:.0%}",
            ]
        )
    return Table(
        slug="against-reference",
        title="Speed relative to the reference",
        caption=f"{_COMPARED} Memory is the suite's peak memory as a share of the reference's. For "
        "single parts of a mixer it is the additional memory that they need.",
        columns=text_columns(
            [
                "",
                "mixer",
                "batch x positions (x channels)",
                "lengths",
                "precision",
                "times as fast",
                "memory",
            ],
            rows,
        ),
        facts=[{"device": r.device, **_facts(r)} for r in compared],
    )


def _measured(r: BenchRecord) -> str:
    if r.objective is not None and r.rpe_layers is not None:
        return f"{r.mode}, {_LEARNED[r.objective]}, {layers_in_words(r.rpe_layers)}"
    return f"{r.part} alone" if r.part else f"{r.mode}, {r.task}"


def _memory_share(r: BenchRecord) -> float | None:
    ours, reference = r.peak_memory_mib, r.reference_peak_memory_mib
    if ours is None or reference is None:
        return None
    if r.mode == "op":
        ours -= r.base_memory_mib or 0.0
        reference -= r.reference_base_memory_mib or 0.0
    return ours / reference if reference > 0 else None


def _facts(r: BenchRecord) -> dict[str, object]:
    names = ("mode", "part", "objective", "rpe_layers", "task", "preset", "mixer", "length",
             "batch_size", "channels", "lengths", "precision", "steps_per_second",
             "ratio_to_reference", "ratio_low_quartile", "ratio_high_quartile")  # fmt: skip
    facts: dict[str, object] = {name: getattr(r, name) for name in names}
    facts["memory_share"] = _memory_share(r)
    return facts
