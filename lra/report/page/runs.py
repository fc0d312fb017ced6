"""What the page says of single runs and measurements: facts, settings, command and curve."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from common.strict_yaml import plain
from lra.record.benchmark import BenchRecord
from lra.record.changes import write_changes
from lra.record.metrics import MetricsLine
from lra.record.packed import file_on_disk
from lra.record.run import RunRecord
from lra.report.commands import bench_command, command
from lra.report.data import Data
from lra.report.names import bench_anchor, run_anchor

MOST_POINTS = 20_000
"""Most points of all curves together; the more runs there are, the fewer points each curve has."""
LONGEST_CURVE = 40


def describe_runs(data: Data, out: Path) -> dict[str, Any]:
    """Describe all runs and measurements by their anchor.

    Args:
        data: the records.
        out: folder that the page will be in, for relative links.
    """
    names = data.names
    most = max(8, min(LONGEST_CURVE, MOST_POINTS // max(1, len(data.records))))
    pool = _Pool()
    runs: dict[str, dict[str, Any]] = {}
    for run in data.records:
        runs[run_anchor(run)] = _describe_run(data, run, names.of(run), out, pool) | {
            "settings": pool.add_settings(run),
            "curve": _curve(data.metrics(run), most),
            "measure": "val" if run.positions is None else "loss",
        }
    for record in data.bench:
        row = names.of_mixer(record)
        runs[bench_anchor(record)] = _describe_bench(data, record, row, out, pool)
    return {"runs": runs, "settings": pool.groups, "texts": list(pool.numbers)}


class _Pool:
    """Texts that many runs share: each is in the page once, and runs have its number."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.groups: dict[str, list[int]] = {}

    def add(self, facts: Mapping[str, str]) -> list[int]:
        """Return the numbers of facts, without those of no text."""
        texts = [f"{name}: {text}" for name, text in facts.items() if text]
        return [self.numbers.setdefault(text, len(self.numbers)) for text in texts]

    def add_settings(self, run: RunRecord) -> str:
        """Add the settings of a run, which other seeds share; return the name of their group."""
        name = f"{run.task} {run.mixer} {run.config_hash}"
        if name not in self.groups:
            self.groups[name] = self.add({k: plain(value) for k, value in run.settings.items()})
        return name


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
        "train": [_round(line.accuracy, 1) for line in kept],
        "val": [_round(line.val_accuracy, 2) for line in kept],
        "loss": [_round(line.val_loss, 3) for line in kept],
    }


def _round(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def _describe_run(data: Data, run: RunRecord, row: str, out: Path, pool: _Pool) -> dict[str, Any]:
    interval = "" if run.best_step is None else f" at step {run.best_step:,}"
    facts = {
        "result": run.test_text,
        "message": run.message or "",
        "non-finite logits": _count_of(run.test_non_finite, run.test_total, "test targets"),
        "validation accuracy": _write(run.val_accuracy, "{:.2f} %", interval),
        "steps": f"{run.steps:,} of {run.total_steps:,} ({run.epochs:.2f} epochs)",
        "speed": _write(run.steps_per_second, "{:.2f} steps/s"),
        "arithmetic": _write(run.flops_per_step, "{:.3g} FLOPs a step"),
        "peak memory": f"{run.peak_memory_mib:,.0f} MiB",
        "parameters": f"{run.params:,}",
        "time": f"{run.wall_seconds / 60:,.1f} minutes",
        "device": f"{run.device}, {run.precision}",
        "data": _describe_data(run),
        "changed settings": ", ".join(run.overrides),
        "code": _describe_code(run.git),
        "versions": _describe_versions(run.versions),
    }
    return {
        "row": row,
        "mixer": run.mixer,
        "title": f"{row} on {run.task}, seed {run.seed}: {run.status}",
        "facts": pool.add(facts),
        "command": command(run),
        "record": _link(data.path(run) / "result.json", out),
        "is_own": data.is_own(run),
        "is_done": run.status == "done",
    }


def _describe_bench(data: Data, r: BenchRecord, row: str, out: Path, pool: _Pool) -> dict[str, Any]:
    what = " ".join(filter(None, [r.mode, r.part, r.task]))
    facts = {
        "speed": _write(r.steps_per_second, "{:.2f} a second"),
        "quartiles": _write(r.low_quartile, "{:.2f}")
        + _write(r.high_quartile, " to {:.2f} a second", f", of {r.repeats} rounds"),
        "against the reference": _write(r.ratio_to_reference, "{:.2f} times as fast"),
        "peak memory": _write(r.peak_memory_mib, "{:,.0f} MiB"),
        "arithmetic": _write(r.flops_per_step, "{:.3g} FLOPs a step"),
        "parameters": _write(r.params, "{:,}"),
        "device": f"{r.device}, {r.precision}",
        "changed settings": ", ".join(write_changes(r.changes)),
        "code": _describe_code(r.git),
        "versions": _describe_versions(r.versions),
    }
    return {
        "row": row,
        "mixer": r.mixer,
        "title": f"{row}, {what}, {r.length:,} positions, batch {r.batch_size}: {r.status}",
        "facts": pool.add(facts),
        "command": bench_command(r),
        "record": _link(data.path(r), out),
        "is_own": data.is_own(r),
    }


def _write(value: float | None, text: str, more: str = "") -> str:
    return "" if value is None else text.format(value) + more


def _count_of(count: int | None, total: int | None, what: str) -> str:
    return f"{count:,} of {total:,} {what}" if count and total else ""


def _describe_data(run: RunRecord) -> str:
    reason = f" ({run.data.unofficial_because})" if run.data.unofficial_because else ""
    return f"{run.data.source}{reason}, {run.data.fingerprint[:16]}"


def _describe_code(git: Mapping[str, object]) -> str:
    return f"commit {str(git.get('commit'))[:12]}" + ", changed" * bool(git.get("dirty"))


def _describe_versions(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _link(path: Path, out: Path) -> str:
    return Path(os.path.relpath(file_on_disk(path).resolve(), out.resolve())).as_posix()
