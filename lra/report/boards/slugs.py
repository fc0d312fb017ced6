"""Names in files and links: of tables and figures, and of runs and measurements on the page."""

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


def run_anchor(run: RunRecord) -> str:
    """Return where the page lists a run; one without a result may have the name of one with it."""
    end = "" if run.status == "done" else f":{run.status}"
    return f"run-{run.task}-{run.mixer}-{run.run_id}{end}"


def bench_anchor(record: BenchRecord) -> str:
    """Return where the page lists a measurement."""
    path = record.path(Path())
    return slugify(f"bench-{path.parent.name}") + f"-{path.stem}"
