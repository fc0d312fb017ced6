"""The table of a task, which a run prints when it ends."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from lra.config.settings_files import published_presets
from lra.record.run import RunRecord, with_shipped
from lra.report.boards.board import Board, boards, position_boards
from lra.report.boards.cells import Cell
from lra.report.boards.measures import ACCURACY, NEXT_TOKEN, measures_of
from lra.report.boards.speeds import BUSY, is_busy
from lra.report.published.rows import rows_of
from lra.runtime.console import MISSING, markdown


def task_table(results_dir: Path, record: RunRecord) -> str:
    """Tabulate a run beside others of its task and preset, trivial baselines and published rows."""
    every = (run for _, run in with_shipped(results_dir)[0])
    like = [r for r in every if (r.task, r.preset) == (record.task, record.preset)]
    published: dict[str, str] = {}
    if record.positions is None:
        published = {"published, %": MISSING}
        measures, found = {"measured, %": ACCURACY}, boards(like)
    else:
        measures = {one.name: one for one in [*measures_of([record, *like]), NEXT_TOKEN]}
        found = position_boards(like)
    rows = [
        {"method": method, "setting": setting}
        | {name: cell.text_of(one) for name, one in measures.items()}
        | published
        | _speed(cell)
        for setting, board in _settings(found, record)
        for method, cells in board.rows.items()
        for cell in [cells[record.task]]
    ]
    for column, measure in measures.items():
        for name, value in measure.beneath(record).items():
            rows.append({"method": name, column: measure.text(value)})
    mixers = {r.mixer for r in like}
    for row in rows_of(mixers):
        value = row.printed.get(record.task)
        if value:
            rows.append({"method": row.method, "setting": row.source, "published, %": value})
    what = "accuracy on" if record.positions is None else "next tokens of"
    text = f"\n{record.task}, {what} the test set\n\n{markdown(rows)}\n"
    if record.preset not in published_presets():
        text += (
            f"Preset {record.preset} has data and models of its own: its rows compare with each "
            f"other, not with published ones.\n"
        )
    return (
        text + "All runs and all published methods, tables, figures and a page: python report.py\n"
    )


def _speed(cell: Cell[RunRecord]) -> dict[str, str]:
    """Tell of a method's last run how far it is, and of all its runs what they needed."""
    speeds = [r.steps_per_second for r in cell.runs if r.steps_per_second is not None]
    last = cell.runs[-1]
    busy = f", {BUSY}" if any(map(is_busy, cell.runs)) else ""
    return {
        "steps": f"{last.steps:,} of {last.total_steps:,}",
        "steps/s": f"{statistics.median(speeds):.2f}{busy}" if speeds else MISSING,
        "peak MiB": f"{max(r.peak_memory_mib for r in cell.runs):,.0f}",
        "parameters": f"{last.params:,}",
    }


def _settings(found: Sequence[Board], record: RunRecord) -> list[tuple[str, Board]]:
    """Name the setting of each board, with its data where others have the same setting.

    There are others where a task of one's own was edited, or another has its name.
    """
    names = [f"{board.protocol}, {board.conditions[record.task]}" for board in found]
    named: list[tuple[str, Board]] = []
    for name, board in zip(names, found, strict=True):
        detail = ""
        if names.count(name) > 1:
            data = board.records[0].data.fingerprint  # of all of them: a board's data is the same
            is_same = data == record.data.fingerprint
            detail = ", this run's data" if is_same else f", other data {data[:8]}"
        named.append((name + detail, board))
    return named
