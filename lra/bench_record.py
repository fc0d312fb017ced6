"""The record of a measurement of speed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt

from lra.errors import UserError
from lra.files import write_atomically
from lra.record import Amount, Name, Positive, read_record

SCHEMA_VERSION = 1


class BenchRecord(BaseModel):
    """One mixer at one length on one device, measured in turns with others."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    schema_version: Literal[1] = SCHEMA_VERSION
    mode: Literal["step"]
    """step: whole training steps of the classifier on a synthetic batch of full length."""
    status: Literal["done", "oom"] = "done"
    mixer: Name
    mixer_code: str | None = None
    """Start of the SHA-256 of a plug-in's file; null for a registered mixer."""
    task: Name
    preset: Name
    protocol: Name
    length: PositiveInt
    """Positions of every sequence."""
    batch_size: PositiveInt
    device: str
    precision: Name
    repeats: NonNegativeInt
    """Turns that median and quartiles are over."""
    steps_per_second: Positive | None
    """Median; this and what follows is null where memory did not suffice."""
    low_quartile: Positive | None
    high_quartile: Positive | None
    peak_memory_mib: Positive | None
    """Of a process of its own on a CPU, allocated on a GPU."""
    params: NonNegativeInt | None
    flops_per_step: Amount | None
    measured_with: tuple[str, ...]
    """Mixers of the same turns."""
    versions: dict[str, str]
    git: dict[str, Any]

    @property
    def method(self) -> str:
        """What tables call it: the mixer, a plug-in with the start of its code's digest."""
        return self.mixer if self.mixer_code is None else f"{self.mixer} ({self.mixer_code[:8]})"

    def path(self, results_dir: Path) -> Path:
        """Return where its file is: a newer measurement of the same takes its place."""
        device = re.sub(r"[^A-Za-z0-9]+", "-", self.device).strip("-")
        parts = [self.mode, self.task, self.preset, self.protocol, self.mixer]
        parts += [self.mixer_code[:8]] if self.mixer_code else []
        parts += [self.precision, str(self.batch_size), str(self.length)]
        return results_dir / "bench" / device / f"{'-'.join(parts)}.json"

    def save(self, results_dir: Path) -> Path:
        """Write the file, and return where."""
        path = self.path(results_dir)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, (self.model_dump_json(indent=2) + "\n").encode())
        return path


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
