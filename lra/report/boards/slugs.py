"""Names in files and links: of tables, figures, runs and measurements; and the order of names."""

from __future__ import annotations

import re
from pathlib import Path

from lra.record.benchmark import BenchRecord
from lra.record.run import RunRecord

LONGEST_SLUG = 120
"""Most letters of a file's name, without its ending."""


def slugify(*parts: str) -> str:
    """Turn texts into one that can stand in a file's name and in a link."""
    return re.sub(r"[^a-z0-9.]+", "-", "-".join(parts).lower())[:LONGEST_SLUG].strip("-.") or "x"


def natural_order(name: str) -> list[tuple[int, str]]:
    """Return a sort key by which 64x4 comes before 64x16, and that before 128x8."""
    return [(len(part) if part.isdigit() else 0, part) for part in re.split(r"(\d+)", name)]


def run_anchor(run: RunRecord) -> str:
    """Return where the page lists a run; one without a result may have the name of one with it."""
    end = "" if run.status == "done" else f":{run.status}"
    return f"run-{run.task}-{run.mixer}-{run.run_id}{end}"


def bench_anchor(record: BenchRecord) -> str:
    """Return where the page lists a measurement."""
    path = record.path(Path())
    return slugify(f"bench-{path.parent.name}") + f"-{path.stem}"
