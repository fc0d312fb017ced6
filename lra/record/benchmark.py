"""The record of a measurement of speed."""

import hashlib
import re
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from lra.record.schema import MeasuredRecord, read_all, write_changes
from lra.schema import (
    Amount,
    Count,
    FileName,
    Positive,
    PositiveCount,
    SettingName,
    Settings,
    ShortText,
)


class BenchRecord(MeasuredRecord):
    """One mixer at one length on one device, measured in interleaved rounds with others."""

    mode: Literal["step", "forward", "op", "decode"]
    """What is measured. step: whole training steps of the classifier; forward: batches of an
    evaluation; op: a part of a mixer, forward and backward; decode: one more position of a causal
    mixer."""
    part: FileName | None = None
    """Part of the mixer. In op: whole, mixing, kernel or product; in decode: recurrence or prefix
    (all positions so far)."""
    status: Literal["done", "oom"] = "done"
    mixer: FileName
    mixer_code: ShortText | None = None
    """Start of the SHA-256 of a plug-in's file; null for a registered mixer."""
    task: FileName | None = None
    """Task that the classifier is for; null for op and decode, as are preset and protocol."""
    preset: FileName | None = None
    preset_code: ShortText | None = None
    """Start of the SHA-256 of the user's own preset; null for a preset of the suite."""
    protocol: FileName | None = None
    changes: Settings = Field(default_factory=dict)
    """Settings that --set and --vary changed."""
    varied: dict[SettingName, tuple[Any, ...]] = Field(default_factory=dict)
    """Settings of which several values were measured in the same interleaved rounds, with these;
    this record's own values are among `changes`."""
    lengths: Literal["full", "task"] = "full"
    """Whether sequences are synthetic and all of one length, or the task's own."""
    length: PositiveCount
    """Positions of every synthetic sequence, or of the task's longest sequence."""
    batch_size: PositiveCount
    channels: PositiveCount | None = None
    """Channels that a part of a mixer works on; null for classifiers."""
    precision: FileName
    repeats: Count
    """Number of rounds that medians and quartiles are taken over."""
    steps_per_second: Positive | None
    """Steps, batches or positions per second: the median over rounds, or the mean with the task's
    own lengths. If memory ran out, this and all later measurements are null."""
    low_quartile: Positive | None
    high_quartile: Positive | None
    ratio_to_reference: Positive | None = None
    """Speed as a multiple of that of the reference, which is written as published code is: the
    median over rounds, or the ratio over all rounds together with the task's own lengths. If the
    two were not compared, this and its quartiles are null."""
    ratio_low_quartile: Positive | None = None
    ratio_high_quartile: Positive | None = None
    peak_memory_mib: Positive | None
    """Peak memory of a separate process: all of its memory on a CPU, what it allocates on a GPU."""
    base_memory_mib: Amount | None = None
    """Memory before the first repetition; the rest of the peak is what the computation takes."""
    reserved_memory_mib: Amount | None = None
    """Memory that the allocator holds; null on a CPU."""
    reference_peak_memory_mib: Positive | None = None
    reference_base_memory_mib: Amount | None = None
    params: Count | None
    flops_per_step: Amount | None
    measured_with: tuple[ShortText, ...]
    """Mixers that were measured in the same interleaved rounds."""

    @property
    def varied_changes(self) -> dict[str, Any]:
        """Those of the changes that are values of the varied settings."""
        return {name: value for name, value in self.changes.items() if name in self.varied}

    @property
    def common_changes(self) -> dict[str, Any]:
        """The changes that all measurements of the same rounds have in common."""
        return {name: value for name, value in self.changes.items() if name not in self.varied}

    @property
    def extra_memory_mib(self) -> float | None:
        """Peak memory less the memory before the first repetition; None if not measured."""
        peak, base = self.peak_memory_mib, self.base_memory_mib
        return None if peak is None or base is None else peak - base

    @property
    def name(self) -> str:
        """The file below the folder of measurements; repeating the measurement replaces it."""
        device = re.sub(r"[^A-Za-z0-9]+", "-", self.device).strip("-")
        parts = [self.mode, self.part, self.task, self.preset, self.protocol, self.mixer]
        parts += [code and code[:8] for code in (self.mixer_code, self.preset_code)]
        parts += [self.precision]
        parts += [self.batch_size, self.channels, "task" if self.lengths == "task" else None]
        parts += [self.length]
        if self.changes:
            text = "\n".join(write_changes(self.changes))
            parts += [hashlib.sha256(text.encode()).hexdigest()[:8]]
        return f"{device}/{'-'.join(str(part) for part in parts if part)}.json"

    def path(self, results_dir: Path) -> Path:
        """Return the path of the file in a results folder."""
        return results_dir / "bench" / self.name

    def save(self, folder: Path) -> Path:
        """Write the file into a folder of measurements; return its path."""
        return self.write(folder / self.name)


def all_bench_records(results_dir: Path) -> tuple[list[BenchRecord], list[str]]:
    """Read the measurements of a results folder; list the faults of files."""
    return read_all(BenchRecord, results_dir, "bench/*/*.json", lambda record: record.path(Path()))
