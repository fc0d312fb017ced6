"""Tables of measurements of speed, made in interleaved rounds, each beside its reference."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lra.record.benchmark import BenchRecord
from lra.report.drawing import slugify
from lra.report.names import Names
from lra.report.speed import Place, Speed, SpeedBoard, is_busy, layers_in_words, marked, tables_of
from lra.report.table import Table
from lra.runtime.console import MISSING

_COMPARED = (
    "Both were timed in interleaved rounds, each in a process of its own. The reference is written "
    "as published code is (lra/classifier/reference.py, and the reference form beside each fast "
    "one): transforms along the positions at twice the length, autograd, allocator and waiting "
    "threads as they come, single precision, every sequence padded to the task's longest. Medians "
    "of the ratios of rounds, with the task's own lengths the ratio of all rounds together; in "
    "brackets the quartiles of rounds."
)


def bench_anchor(record: BenchRecord) -> str:
    """Return where the page lists a measurement."""
    path = record.path(Path())
    return slugify(f"bench-{path.parent.name}") + f"-{path.stem}"


_NOTES = {
    "step": "Whole training steps, medians over interleaved rounds.",
    "forward": "Batches of an evaluation, medians over interleaved rounds.",
    "pretraining": "Training steps of the language model of task lm on synthetic tokens, whose "
    "encoder of positions has the hidden layers named; medians over interleaved rounds. Moreno et "
    "al. (2023), section 5.1, have fd-tnn 10 % faster than tnn at 3 layers and 15 % at 6, causal, "
    "at 512 positions, on an A100.",
    "op": "A part of the mixer alone, forward and backward, medians over interleaved rounds.",
    "decode": "One more position by the mixer's recurrence, or (prefix) by mixing all positions so "
    "far again; medians over interleaved rounds.",
}
_UNITS = {
    "step": "training speed, steps/s",
    "forward": "evaluation, batches/s",
    "pretraining": "pretraining, steps/s",
    "op": "forward and backward, times/s",
    "decode": "decoding, positions/s",
}
_LEARNED = {"next": "causal, next tokens", "masked": "bidirectional, masked tokens"}
"""What is learned in pretraining, and by which models."""
_SEQUENCES = {
    "full": "All sequences are synthetic and of the length named.",
    "task": "Sequences are the task's own, up to the length named.",
}
_MEMORY = "Memory is the peak of a process of its own on a CPU, of what is allocated on a GPU."
_EXTRA_MEMORY = "Memory is what doing it took beyond what was there, in a process of its own."


def bench_boards(records: Sequence[BenchRecord], names: Names | None = None) -> list[SpeedBoard]:
    """Sort measurements by device, what was measured, and settings; `names` as for `boards`."""
    names = names or Names([], records)
    found: dict[tuple[Any, ...], dict[str, dict[Place, Speed]]] = {}
    for r in sorted(records, key=_bench_order):
        memory = _EXTRA_MEMORY if r.mode == "op" else _MEMORY
        note = f"{_NOTES[r.mode]} {_SEQUENCES[r.lengths]} {memory}"
        slug = " ".join(["bench", r.mode, *_bench_setting(r, r.preset, r.protocol)])
        board = (r.device, _bench_title(r), slug, note, _UNITS[r.mode])
        board += r.measured_with, r.rounds_rpe_layers
        row = found.setdefault(board, {})
        place = Place(r.task or r.part or r.mode, r.length, r.batch_size, r.rpe_layers)
        row.setdefault(names.of_mixer(r), {})[place] = Speed(
            r.steps_per_second,
            r.extra_memory_mib if r.mode == "op" else r.peak_memory_mib,
            r.batch_size,
            words="oom" if r.status == "oom" else "",
            busy=is_busy(r),
            low=r.low_quartile,
            high=r.high_quartile,
            link=bench_anchor(r),
            ratio_to_reference=r.ratio_to_reference,
            ratio_low=r.ratio_low_quartile,
            ratio_high=r.ratio_high_quartile,
            time_breakdown=r.time_breakdown,
        )
    return [
        SpeedBoard(device, title, slugify(slug, device), note, rows, unit)
        for (device, title, slug, note, unit, *_), rows in found.items()
    ]


def _bench_order(r: BenchRecord) -> tuple[object, ...]:
    return (list(_NOTES).index(r.mode), r.task or "", r.preset or "", r.protocol or "", r.device,
            r.overrides, r.precision, r.objective != "next", r.method, r.part or "", r.length,
            r.rpe_layers or 0)  # fmt: skip


def _bench_title(r: BenchRecord) -> str:
    setting = _bench_setting(r, f"preset {r.preset}", f"protocol {r.protocol}")
    return ", ".join([f"Benchmark, {r.mode}", *setting])


def _bench_setting(r: BenchRecord, preset: str | None, protocol: str | None) -> list[str]:
    """List what was measured; preset and protocol in the words given."""
    parts = [str(r.task), str(preset), str(protocol)] if r.task is not None else []
    if r.objective is not None:
        parts.append(_LEARNED[r.objective])
    if r.channels is not None:
        parts.append(f"{r.channels} channels")
    if r.lengths == "task":
        parts.append("own lengths")
    return [*parts, r.precision, *r.overrides]


def benchmark_tables(board: SpeedBoard, relative_to: str) -> list[Table]:
    """Tabulate speed and memory and, if they were measured, ratios and times by purpose."""
    tables = tables_of(board, relative_to)
    speeds = [speed for cells in board.rows.values() for speed in cells.values()]
    if any(speed.ratio_to_reference is not None for speed in speeds):
        tables.append(_ratio_table(board, f"against-reference-{board.slug}"))
    if any(speed.time_breakdown for speed in speeds):
        tables.append(_time_table(board, f"time-breakdown-{board.slug}"))
    return tables


def _ratio_table(board: SpeedBoard, slug: str) -> Table:
    rows: list[list[str]] = []
    facts: list[dict[str, object]] = []
    for method, cells in board.rows.items():
        rows.append([method])
        for place in board.places:
            speed = cells.get(place)
            ratio = speed.ratio_to_reference if speed is not None else None
            if speed is None or ratio is None:
                rows[-1].append(MISSING)
                continue
            text = _ratio(ratio, speed.ratio_low, speed.ratio_high)
            rows[-1].append(marked(text, busy=speed.busy))
            facts.append(
                {
                    "device": board.device,
                    "setting": board.title,
                    "mixer": method,
                    **place.facts,
                    "ratio_to_reference": ratio,
                    "low_quartile": speed.ratio_low,
                    "high_quartile": speed.ratio_high,
                }
            )
    return Table(
        slug=slug,
        title=f"{board.title}, {board.device}: times as fast as the reference",
        caption=_COMPARED,
        columns=["mixer", *map(str, board.places)],
        rows=rows,
        facts=facts,
    )


def _ratio(ratio: float | None, low: float | None, high: float | None) -> str:
    """Write a ratio with its quartiles."""
    return f"{ratio:.2f} ({low:.2f} to {high:.2f})"


def _time_table(board: SpeedBoard, slug: str) -> Table:
    rows: list[list[str]] = []
    facts: list[dict[str, object]] = []
    names: dict[str, None] = {}
    broken_down = [
        (method, place, speed.time_breakdown)
        for method, cells in board.rows.items()
        for place in board.places
        if (speed := cells.get(place)) is not None and speed.time_breakdown
    ]
    for _, _, times in broken_down:
        names |= dict.fromkeys(times)
    for method, place, times in broken_down:
        rows.append([method, str(place), *(f"{times.get(name, 0):.1f}" for name in names)])
        facts.append({"device": board.device, "setting": board.title, "mixer": method,
                      "place": str(place), **times})  # fmt: skip
    return Table(
        slug=slug,
        title=f"{board.title}, {board.device}: what a training step's time goes to, in percent",
        caption="By torch's profiler, backward passes with their forward ones. Kernels: generating "
        "them, with the products and transforms that takes.",
        columns=["mixer", "", *names],
        rows=rows,
        facts=facts,
    )


def against_reference(
    records: Sequence[BenchRecord], slug: str, names: Names | None = None
) -> Table | None:
    """Tabulate every measurement that was made beside its reference, if any was.

    Args:
        records: measurements.
        slug: the table's.
        names: as for `boards`.
    """
    names = names or Names([], records)
    compared = [r for r in sorted(records, key=_bench_order) if r.ratio_to_reference is not None]
    if not compared:
        return None
    rows = []
    for r in compared:
        memory = _memory_share(r)
        ratios = r.ratio_to_reference, r.ratio_low_quartile, r.ratio_high_quartile
        rows.append(
            [
                ", ".join([_measured(r), *r.overrides]),
                names.of_mixer(r),
                f"{r.batch_size} x {r.length:,}" + (f" x {r.channels}" if r.channels else ""),
                "the task's own" if r.lengths == "task" else "full",
                r.precision,
                marked(_ratio(*ratios), busy=is_busy(r)),
                MISSING if memory is None else f"{memory:.0%}",
            ]
        )
    return Table(
        slug=slug,
        title="Times as fast as the reference",
        caption=f"{_COMPARED} Memory: peak of ours as a share of the reference's, of parts alone "
        "what they take beyond what was there.",
        columns=["", "mixer", "batch x positions", "lengths", "precision", "times as fast",
                 "memory"],
        rows=rows,
        facts=[{"device": r.device, **_facts(r)} for r in compared],
    )  # fmt: skip


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
