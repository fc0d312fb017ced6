"""The record of a measurement of speed."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any, Literal

from pydantic import NonNegativeInt, PositiveInt

from lra.record.schema import Amount, Name, Positive, Record, read_record
from lra.runtime.errors import UserError

SCHEMA_VERSION = 1


class BenchRecord(Record):
    """One mixer at one length on one device, measured in rounds with others."""

    schema_version: Literal[1] = SCHEMA_VERSION
    mode: Literal["step", "forward", "op", "decode"]
    """step: whole training steps of the classifier; forward: batches of an evaluation; op: a part
    of a mixer, forward and backward; decode: one more position of a causal mixer."""
    part: Name | None = None
    """op: mixing, kernel or product; decode: recurrence or prefix (all positions so far)."""
    status: Literal["done", "oom"] = "done"
    mixer: Name
    mixer_code: str | None = None
    """Start of the SHA-256 of a plug-in's file; null for a registered mixer."""
    task: Name | None = None
    """Whose classifier it is; null, as preset and protocol, for op and decode."""
    preset: Name | None = None
    protocol: Name | None = None
    overrides: tuple[str, ...] = ()
    """What --set changed: "section.key=value"."""
    lengths: Literal["full", "task"] = "full"
    """Whether sequences are synthetic and all of one length, or the task's own."""
    length: PositiveInt
    """Positions of every sequence, or of the task's longest."""
    batch_size: PositiveInt
    channels: PositiveInt | None = None
    """That an operator works on; null for classifiers."""
    device: str
    precision: Name
    repeats: NonNegativeInt
    """Turns that medians and quartiles are over."""
    steps_per_second: Positive | None
    """Median of times the thing was done a second, with the task's own lengths the mean; this and
    what follows is null where memory did not suffice."""
    low_quartile: Positive | None
    high_quartile: Positive | None
    ratio_to_reference: Positive | None = None
    """How many times as fast as the published code's way: the median over turns, with the task's
    own lengths of all turns together, with quartiles; null where it was not compared."""
    ratio_low_quartile: Positive | None = None
    ratio_high_quartile: Positive | None = None
    peak_memory_mib: Positive | None
    """Of a process of its own on a CPU, allocated on a GPU."""
    base_memory_mib: Amount | None = None
    """Before the first time: the rest of the peak is what the thing itself takes."""
    reserved_memory_mib: Amount | None = None
    """What the allocator holds; null on a CPU."""
    reference_peak_memory_mib: Positive | None = None
    reference_base_memory_mib: Amount | None = None
    params: NonNegativeInt | None
    flops_per_step: Amount | None
    shares: dict[str, Amount] | None = None
    """Percent of a training step's time by what it goes to."""
    measured_with: tuple[str, ...]
    """Mixers of the same turns."""
    versions: dict[str, str]
    git: dict[str, Any]

    @property
    def method(self) -> str:
        """What tables call it: the mixer, a plug-in with the start of its code's digest."""
        return self.mixer if self.mixer_code is None else f"{self.mixer} ({self.mixer_code[:8]})"

    @property
    def extra_memory_mib(self) -> float | None:
        """What doing it took beyond what was there before."""
        if self.peak_memory_mib is None or self.base_memory_mib is None:
            return None
        return self.peak_memory_mib - self.base_memory_mib

    @property
    def name(self) -> str:
        """Its file below the folder of measurements: a newer one of the same takes its place."""
        device = re.sub(r"[^A-Za-z0-9]+", "-", self.device).strip("-")
        parts = [self.mode, self.part, self.task, self.preset, self.protocol, self.mixer]
        parts += [self.mixer_code and self.mixer_code[:8], self.precision]
        parts += [str(self.batch_size), self.channels and str(self.channels)]
        parts += ["task" if self.lengths == "task" else None, str(self.length)]
        if self.overrides:
            parts += [hashlib.sha256("\n".join(self.overrides).encode()).hexdigest()[:8]]
        return f"{device}/{'-'.join(part for part in parts if part)}.json"

    def path(self, results_dir: Path) -> Path:
        """Return where its file is in a results folder."""
        return results_dir / "bench" / self.name

    def save(self, folder: Path) -> Path:
        """Write the file into a folder of measurements, and return where."""
        return self.write(folder / self.name)


def all_bench_records(results_dir: Path) -> tuple[list[BenchRecord], list[str]]:
    """Read every measurement below a results folder, and list the faults of unreadable ones."""
    records: list[BenchRecord] = []
    faults: list[str] = []
    for path in sorted(results_dir.glob("bench/*/*.json")):
        try:
            record = read_record(BenchRecord, path, SCHEMA_VERSION)
            if record.path(results_dir) != path:
                raise UserError(f"{path}: of other names; move it to {record.path(results_dir)}")
        except UserError as error:
            faults.append(str(error))
        else:
            records.append(record)
    return records, faults
