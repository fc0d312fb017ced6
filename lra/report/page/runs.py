"""What the page says of single runs and measurements: facts, settings, command and curve."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from common.strict_yaml import plain
from lra.record.benchmark import BenchRecord
from lra.record.packed import file_on_disk
from lra.record.run import RunRecord
from lra.record.run_files import MetricsLine
from lra.report.commands import command
from lra.report.data import Data
from lra.report.names import bench_anchor, run_anchor

MOST_POINTS = 20_000
"""Most points of all curves together; the more runs there are, the fewer points each curve has."""
LONGEST_CURVE = 40
FACTS = (
    "test_text", "message", "test_non_finite", "val_accuracy", "best_step", "steps", "total_steps",
    "epochs", "wall_seconds", "data", "low_quartile", "high_quartile", "repeats",
    "ratio_to_reference", "changes", "measured_with", "steps_per_second", "peak_memory_mib",
    "flops_per_step", "params", "device", "precision", "git", "versions",
)  # fmt: skip
"""Fields of records that the page shows."""


def describe_runs(data: Data, out: Path) -> dict[str, Any]:
    """Describe all runs and measurements by their anchor, for a page in the folder `out`.

    A text that several of them share is in the page once, and they have its number.
    """
    most = max(8, min(LONGEST_CURVE, MOST_POINTS // max(1, len(data.records))))
    numbers: dict[str, int] = {}

    def number(facts: Mapping[str, str]) -> list[int]:
        texts = [f"{name}: {text}" for name, text in facts.items() if text]
        return [numbers.setdefault(text, len(numbers)) for text in texts]

    def link(path: Path) -> str:
        return Path(os.path.relpath(file_on_disk(path).resolve(), out.resolve())).as_posix()

    settings: dict[str, list[int]] = {}
    runs: dict[str, dict[str, Any]] = {}
    for run in data.records:
        group = f"{run.task} {run.mixer} {run.config_hash}"
        if group not in settings:
            settings[group] = number({k: plain(value) for k, value in run.settings.items()})
        row = data.names.of(run)
        runs[run_anchor(run)] = {
            "row": row,
            "title": f"{row} on {run.task}, seed {run.seed}: {run.status}",
            "facts": number(_write_facts(run)),
            "command": command(run),
            "record": link(data.path(run) / "result.json"),
            "is_own": data.is_own(run),
            "is_done": run.status == "done",
            "settings": group,
            "curve": _curve(data.metrics(run), most),
            "measure": "val" if run.positions is None else "loss",
        }
    for r in data.bench:
        row = data.names.of_mixer(r)
        what = " ".join(filter(None, [r.mode, r.part, r.task]))
        runs[bench_anchor(r)] = {
            "row": row,
            "title": f"{row}, {what}, {r.length:,} positions, batch {r.batch_size}: {r.status}",
            "facts": number(_write_facts(r)),
            "record": link(data.path(r)),
            "is_own": data.is_own(r),
        }
    return {"runs": runs, "settings": settings, "texts": [*numbers]}


def _curve(lines: Sequence[MetricsLine], most: int) -> dict[str, list[float | None]]:
    """List steps, minutes and scores of a run; of training lines only some."""
    scored = [line for line in lines if line.val_accuracy is not None or line.accuracy is not None]
    stride = -(-len(scored) // most) or 1
    kept = [
        line
        for number, line in enumerate(scored)
        if line.val_accuracy is not None or number % stride == 0 or number == len(scored) - 1
    ]
    return {
        "step": [line.step for line in kept],
        "minutes": [round(line.seconds / 60, 2) for line in kept],
        "train": [line.accuracy and round(line.accuracy, 1) for line in kept],
        "val": [line.val_accuracy and round(line.val_accuracy, 2) for line in kept],
        "loss": [line.val_loss and round(line.val_loss, 3) for line in kept],
    }


def _write_facts(record: RunRecord | BenchRecord) -> dict[str, str]:
    """Write what a record has of the facts in words."""
    return {name.replace("_", " "): _write(getattr(record, name, None)) for name in FACTS}


def _write(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.6g}"
    if isinstance(value, BaseModel):
        value = value.model_dump()
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_write(one)}" for name, one in value.items() if one)
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_write, value))
    return "" if value is None else str(value)
