"""The record of a measurement of speed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from lra.errors import UserError
from lra.files import write_atomically
from lra.record import read_record

SCHEMA_VERSION = 1


class BenchRecord(BaseModel):
    """One mixer at one length on one device, measured in turns with others."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: Literal[1] = SCHEMA_VERSION
    mode: Literal["step"]
    """step: whole training steps of the classifier on a synthetic batch of full length."""
    mixer: str
    task: str
    preset: str
    protocol: str
    length: int
    """Positions of every sequence."""
    batch_size: int
    device: str
    precision: str
    repeats: int
    """Turns that median and quartiles are over."""
    steps_per_second: float
    """Median."""
    low_quartile: float
    high_quartile: float
    peak_memory_mib: float | None
    """Of a process of its own on a CPU, allocated on a GPU."""
    params: int
    flops_per_step: float
    ratio_to_reference: float | None = None
    """Steps/s over those of a reference measured in the same turns; null without one."""
    measured_with: tuple[str, ...]
    """Mixers of the same turns."""
    versions: dict[str, str]
    git: dict[str, Any]

    def path(self, results_dir: Path) -> Path:
        """Return where its file is: a newer measurement of the same takes its place."""
        device = re.sub(r"[^A-Za-z0-9]+", "-", self.device).strip("-")
        parts = (self.mode, self.task, self.preset, self.protocol, self.mixer, self.precision)
        return results_dir / "bench" / device / f"{'-'.join(parts)}-{self.length}.json"

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
            records.append(read_record(BenchRecord, path, SCHEMA_VERSION))
        except UserError as error:
            faults.append(str(error))
    return records, faults
