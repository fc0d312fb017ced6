"""The table of a task, which a run prints when it ends."""

from __future__ import annotations

import statistics
from collections import Counter
from pathlib import Path

from lra.record.run import RunRecord, with_shipped
from lra.report.boards import Board, boards, position_boards
from lra.report.measures import ACCURACY, NEXT_TOKEN, measures_of
from lra.report.published import is_variant, published_rows
from lra.runtime.console import MISSING, markdown


def task_table(results_dir: Path, record: RunRecord) -> str:
    """Tabulate a run beside others of its task and preset, trivial baselines and published rows."""
    like = [
        r
        for _, r in with_shipped(results_dir)[0]
        if (r.task, r.preset) == (record.task, record.preset)
    ]
    rows: list[dict[str, str]] = []
    published = {"published, %": MISSING}
    measures = {"measured, %": ACCURACY}
    found = boards(like)
    if record.positions is not None:
        published = {}
        measures = {one.name: one for one in [*measures_of([record, *like]), NEXT_TOKEN]}
        found = position_boards(like)
    settings = Counter(_setting(board, record.task) for board in found)
    for board in found:
        for method, cells in board.rows.items():
            cell = cells[record.task]
            speeds = [r.steps_per_second for r in cell.runs if r.steps_per_second is not None]
            last = cell.runs[-1]
            setting = _setting(board, record.task)
            if settings[setting] > 1:  # a task of one's own was edited, or another has its name
                is_same = last.data.fingerprint == record.data.fingerprint
                data = "this run's data" if is_same else f"other data {last.data.fingerprint[:8]}"
                setting += f", {data}"
            rows.append(
                {
                    "method": method,
                    "setting": setting,
                    **{name: cell.text_of(one) for name, one in measures.items()},
                    **published,
                    "steps": f"{last.steps:,} of {last.total_steps:,}",
                    "steps/s": f"{statistics.median(speeds):.2f}" if speeds else MISSING,
                    "peak MiB": f"{max(r.peak_memory_mib for r in cell.runs):,.0f}",
                    "parameters": f"{last.params:,}",
                }
            )
    for column, measure in measures.items():
        for name, value in measure.beneath(record).items():
            rows.append({"method": name, column: measure.text(value)})
    mixers = {r.mixer for r in like}
    for row in published_rows():
        value = row.printed.get(record.task)
        if value and is_variant(row.method, mixers):
            named = {"method": row.method, "setting": row.source}
            rows.append({**named, "published, %": value})
    what = "accuracy on" if record.positions is None else "next tokens of"
    text = f"\n{record.task}, {what} the test set\n\n{markdown(rows)}\n"
    if record.preset != "paper":
        text += (
            f"Preset {record.preset} has data and models of its own: its rows compare with each "
            f"other, not with published ones.\n"
        )
    return (
        text + "All runs and all published methods, tables, figures and a page: python report.py\n"
    )


def _setting(board: Board, task: str) -> str:
    return f"{board.protocol}, {board.conditions[task]}"
