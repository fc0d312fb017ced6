"""Tables in Markdown: measured and published results, never in one column."""

from __future__ import annotations

import csv
import re
import statistics
from collections.abc import Sequence
from pathlib import Path

from lra.record import RunRecord, all_records
from tasks.base import BENCHMARK

MISSING = "-"
SHOWN_OVERRIDES = 2
PUBLISHED = Path(__file__).resolve().parent.parent / "results" / "published.csv"


def published_rows() -> list[dict[str, str]]:
    """Read the published results, as text: a dict of the columns of published.csv per method."""
    with PUBLISHED.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def setting(record: RunRecord) -> str:
    """Describe what must agree for two results to share a row."""
    parts = [record.preset, record.protocol, f"{record.data.source} data"]
    if record.selected_on == "test":
        parts.append("selected on test")
    if len(record.overrides) > SHOWN_OVERRIDES:
        parts.append(f"{len(record.overrides)} settings changed ({record.config_hash[:8]})")
    else:
        parts += record.overrides
    return ", ".join(parts)


def counted(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Choose, of several attempts at a seed, the newest, a finished one before others."""
    by_seed: dict[int, RunRecord] = {}
    for record in sorted(records, key=lambda r: (r.seed, r.status == "done", attempt(r))):
        by_seed[record.seed] = record
    return list(by_seed.values())


def outcome(records: Sequence[RunRecord]) -> str:
    """Write the test accuracy of runs that differ in seed alone: percent, or what happened.

    Runs that are not done are named, and never enter the mean.
    """
    done = [r.test_accuracy for r in records if r.test_accuracy is not None]
    words = sorted({r.status for r in records if r.test_accuracy is None})
    if not done:
        return ", ".join(words) or MISSING
    text = f"{statistics.mean(done):.2f}"
    if len(done) > 1:
        text += f" ± {statistics.stdev(done):.2f}"
    return ", ".join([f"{text} (n={len(done)})", *words])


def attempt(record: RunRecord) -> int:
    """Return which attempt a run is, 1 for the first: the number behind -r in its id."""
    return int(record.run_id.rpartition("-r")[2]) if "-r" in record.run_id else 1


def _groups(records: Sequence[RunRecord]) -> dict[tuple[str, str], list[RunRecord]]:
    """Group runs that may share a row, by method and a description of their setting.

    Where descriptions agree but settings or data of a task do not (after a change of a file,
    say), the description gets their hashes.
    """
    variants: dict[tuple[str, str, str], set[tuple[str, str]]] = {}
    for r in records:
        key = (r.method, setting(r), r.task)
        variants.setdefault(key, set()).add((r.config_hash, r.data.fingerprint))
    groups: dict[tuple[str, str], list[RunRecord]] = {}
    for r in sorted(records, key=lambda r: (r.preset, setting(r), r.method, r.seed, attempt(r))):
        described = setting(r)
        if len(variants[r.method, described, r.task]) > 1:
            described += f" (settings {r.config_hash[:8]}, data {r.data.fingerprint[:8]})"
        groups.setdefault((r.method, described), []).append(r)
    return groups


def markdown(rows: Sequence[dict[str, str]]) -> str:
    """Write rows of equal keys as a table, the first column to the left."""
    import pandas as pd

    frame = pd.DataFrame(rows, dtype=str).fillna(MISSING)
    align = ["left", *["right"] * (frame.shape[1] - 1)]
    return frame.to_markdown(index=False, disable_numparse=True, colalign=align) + "\n"


def accuracy_table(records: Sequence[RunRecord]) -> str:
    """Tabulate our runs and the published methods: a row each, a column per task and kind."""
    present = {record.task for record in records}
    ran = [task for task in BENCHMARK if task in present] + sorted(present - set(BENCHMARK))
    blank = {f"{task}, measured": MISSING for task in ran}
    blank |= {f"{task}, published": MISSING for task in BENCHMARK}
    rows = []
    for (mixer, described), group in _groups(records).items():
        row = {"method": mixer, "setting": described, **blank}
        for task in ran:
            row[f"{task}, measured"] = outcome(counted([r for r in group if r.task == task]))
        rows.append(row)
    for published in published_rows():
        row = {"method": published["method"], "setting": published["source"] or MISSING, **blank}
        for task in BENCHMARK:
            row[f"{task}, published"] = published[task] or MISSING
        rows.append(row)
    return markdown(rows)


def runs_table(records: Sequence[RunRecord]) -> str:
    """Tabulate every run with its size, speed and memory."""
    ordered = sorted(records, key=lambda r: (r.task, r.preset, setting(r), r.method, r.run_id))
    return markdown([{"task": r.task, **_run_row(r)} for r in ordered])


def _run_row(record: RunRecord) -> dict[str, str]:
    def number(value: float | None, digits: int) -> str:
        return MISSING if value is None else f"{value:,.{digits}f}"

    return {
        "method": record.method,
        "setting": setting(record),
        "run": record.run_id,
        "seed": str(record.seed),
        "status": record.status,
        "steps": f"{record.steps:,} of {record.total_steps:,}",
        "test %": number(record.test_accuracy, 2),
        "val %": number(record.val_accuracy, 2),
        "steps/s": number(record.steps_per_second, 2),
        "peak MiB": number(record.peak_memory_mib, 0),
        "parameters": number(record.params, 0),
        "device": record.device,
    }


def task_table(results_dir: Path, record: RunRecord) -> str:
    """Tabulate a run beside others of its task and preset, guesses, and published results."""
    records, _ = all_records(results_dir)
    like = [r for r in records if (r.task, r.preset) == (record.task, record.preset)]
    rows = []
    for (mixer, described), group in _groups(like).items():
        runs = counted(group)
        speeds = [r.steps_per_second for r in runs if r.steps_per_second is not None]
        rows.append(
            {
                "method": mixer,
                "setting": described,
                "measured, %": outcome(runs),
                "published, %": MISSING,
                "steps": f"{runs[-1].steps:,} of {runs[-1].total_steps:,}",
                "steps/s": f"{statistics.median(speeds):.2f}" if speeds else MISSING,
                "peak MiB": f"{max(r.peak_memory_mib for r in runs):,.0f}",
                "parameters": f"{runs[-1].params:,}",
            }
        )
    for name, accuracy in record.baselines.items():
        rows.append({"method": f"guess: {name}", "measured, %": f"{accuracy:.2f}"})
    mixers = {r.mixer for r in like}
    for published in published_rows():
        value = published.get(record.task)
        if value and _is_variant(published["method"], mixers):
            named = {"method": published["method"], "setting": published["source"]}
            rows.append({**named, "published, %": value})
    text = f"\n{record.task}, accuracy on the test set\n\n{markdown(rows)}\n"
    if record.preset != "paper":
        text += (
            f"Preset {record.preset} has data and models of its own: its rows compare with each "
            f"other, not with published ones.\n"
        )
    return text + "All runs and all published methods: python report.py\n"


def _is_variant(method: str, mixers: set[str]) -> bool:
    """Whether a published method is one of the mixers: S4-LegS is s4, S4D-LegS is not."""
    return any(re.match(rf"{re.escape(mixer)}(?!\w)", method, re.I) for mixer in mixers)
