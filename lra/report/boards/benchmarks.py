"""Measurements of speed, sorted into boards of those that compare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lra.record.benchmark import BenchRecord
from lra.record.changes import write_changes
from lra.report.boards.cells import IsOwn, none_own
from lra.report.boards.row_names import RowNames
from lra.report.boards.slugs import bench_anchor, slugify
from lra.report.boards.speeds import Speed, SpeedBoard, Workload, is_busy

_NOTES = {
    "step": "Speed of whole training steps, the median over interleaved rounds.",
    "forward": "Speed of evaluation batches, the median over interleaved rounds.",
    "pretraining": "Speed of training steps of the language model of task lm on synthetic tokens, "
    "the median over interleaved rounds. The position encoder has the number of hidden layers that "
    "is named. In section 5.1 of Moreno et al. (2023), the causal fd-tnn with 512 positions on an "
    "A100 is 10 % faster than tnn with 3 layers, and 15 % faster with 6.",
    "op": "Speed of one part of the mixer, forward and backward, the median over interleaved "
    "rounds.",
    "decode": "Speed of computing one more position, the median over interleaved rounds. It uses "
    "the mixer's recurrence or, where marked prefix, mixes all positions so far again.",
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
    "full": "All sequences are synthetic and have the length that is named.",
    "task": "Sequences come from the task and are at most as long as named.",
}


_MEMORY = (
    "Memory is the peak memory of a separate process on a CPU, and the peak of allocated memory on "
    "a GPU."
)


_EXTRA_MEMORY = "Memory is the additional memory that it needs, measured in a separate process."


def bench_boards(
    records: Sequence[BenchRecord],
    names: RowNames | None = None,
    is_own: IsOwn[BenchRecord] = none_own,
) -> list[SpeedBoard]:
    """Sort measurements by device, what was measured, and settings; arguments as for `boards`."""
    names = names or RowNames([], records)
    found: dict[tuple[Any, ...], dict[str, dict[Workload, Speed]]] = {}
    for r in sorted(records, key=_bench_order):
        memory = _EXTRA_MEMORY if r.mode == "op" else _MEMORY
        note = f"{_NOTES[r.mode]} {_SEQUENCES[r.lengths]} {memory}"
        slug = " ".join(["bench", r.mode, *_bench_setting(r, r.preset, r.protocol)])
        board = (r.device, _bench_title(r), slug, note, _UNITS[r.mode])
        board += r.measured_with, r.rounds_rpe_layers, str(r.varied)
        row = found.setdefault(board, {})
        varied = " ".join(write_changes(r.varied_changes)) or None
        workload = Workload(
            r.task or r.part or r.mode, r.length, r.batch_size, r.rpe_layers, varied
        )
        row.setdefault(names.of_mixer(r), {})[workload] = Speed(
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
            has_own=is_own(r),
        )
    return [
        SpeedBoard(device, title, slugify(slug, device), note, rows, unit)
        for (device, title, slug, note, unit, *_), rows in found.items()
    ]


def _bench_order(r: BenchRecord) -> tuple[object, ...]:
    return (list(_NOTES).index(r.mode), r.task or "", r.preset or "", r.protocol or "", r.device,
            write_changes(r.changes), r.precision, r.objective != "next", r.method, r.part or "",
            r.length, r.rpe_layers or 0)  # fmt: skip


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
    return [*parts, r.precision, *write_changes(r.common_changes)]
