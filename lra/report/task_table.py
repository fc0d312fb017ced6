"""What a run prints when it ends: its task's table."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from pathlib import Path

from lra.record.run import RunRecord, with_shipped
from lra.report.boards import boards
from lra.report.cells import MISSING
from lra.report.published import published_rows
from lra.report.table import markdown_of


def markdown(rows: Sequence[dict[str, str]]) -> str:
    """Write rows as a table, a dash for each key that a row lacks."""
    import pandas as pd

    return markdown_of(pd.DataFrame(rows, dtype=str).fillna(MISSING))


def task_table(results_dir: Path, record: RunRecord) -> str:
    """Tabulate a run beside others of its task and preset, trivial baselines, and published results."""
    found, _ = with_shipped(results_dir)
    like = [r for _, r in found if (r.task, r.preset) == (record.task, record.preset)]
    rows = []
    for board in boards(like):
        for method, cells in board.rows.items():
            cell = cells[record.task]
            speeds = [r.steps_per_second for r in cell.runs if r.steps_per_second is not None]
            last = cell.runs[-1]
            rows.append(
                {
                    "method": method,
                    "setting": f"{board.protocol}, {board.conditions[record.task]}",
                    "measured, %": cell.text,
                    "published, %": MISSING,
                    "steps": f"{last.steps:,} of {last.total_steps:,}",
                    "steps/s": f"{statistics.median(speeds):.2f}" if speeds else MISSING,
                    "peak MiB": f"{max(r.peak_memory_mib for r in cell.runs):,.0f}",
                    "parameters": f"{last.params:,}",
                }
            )
    for name, accuracy in record.baselines.items():
        rows.append({"method": f"trivial baseline: {name}", "measured, %": f"{accuracy:.2f}"})
    mixers = {r.mixer for r in like}
    for published in published_rows():
        value = published.printed.get(record.task)
        if value and _is_variant(published.method, mixers):
            named = {"method": published.method, "setting": published.source}
            rows.append({**named, "published, %": value})
    text = f"\n{record.task}, accuracy on the test set\n\n{markdown(rows)}\n"
    if record.preset != "paper":
        text += (
            f"Preset {record.preset} has data and models of its own: its rows compare with each "
            f"other, not with published ones.\n"
        )
    return (
        text + "All runs and all published methods, tables, figures and a page: python report.py\n"
    )


def _is_variant(method: str, mixers: set[str]) -> bool:
    """Whether a published method is one of the mixers: S4-LegS is s4, S4D-LegS is not."""
    return any(re.match(rf"{re.escape(mixer)}(?!\w)", method, re.I) for mixer in mixers)
