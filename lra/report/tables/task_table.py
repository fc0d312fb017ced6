"""The table of a task and preset, which `run_task.py --table` prints."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from lra.config.settings_files import published_presets
from lra.record.run import RunRecord
from lra.record.table import read_runs
from lra.report.boards.board import Board, boards, position_boards
from lra.report.boards.cells import Cell
from lra.report.boards.measures import ACCURACY, NEXT_TOKEN, measures_of
from lra.report.boards.speeds import BUSY, is_busy
from lra.report.published.rows import rows_of
from lra.runtime.console import MISSING, markdown
from lra.runtime.terminal import fit_rows, wrap_words

DROPPED_FIRST = ("parameters", "peak MiB", "steps/s", "steps", "setting", "published, %")
"""Columns that a narrow terminal does not show, the first to go first."""


def task_table(results_dir: Path, record: RunRecord, width: int) -> str:
    """Tabulate a run with others of its task and preset, trivial baselines and published rows.

    Args:
        results_dir: folder of the user's own results, with the shipped ones in it.
        record: of the run.
        width: of the terminal, in characters. Columns that do not fit are left out and named.
    """
    every = (run for _, run in read_runs(results_dir, shipped=True)[0])
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
    columns = list(dict.fromkeys(name for row in rows for name in row))
    rows = [{name: row.get(name, MISSING) for name in columns} for row in rows]
    fitted, dropped = fit_rows(rows, width, DROPPED_FIRST)
    notes: list[str] = []
    if dropped:
        notes.append(f"Too wide for {width} columns, so left out: {', '.join(dropped)}.")
    if record.preset not in published_presets():
        notes.append(
            f"Preset {record.preset} has its own data and model sizes. Its results compare with "
            f"each other, not with published ones."
        )
    lines = [line for note in notes for line in wrap_words(note, width, indent="")]
    text = "\n".join(lines)
    return f"\n{record.task}, {what} the test set\n\n{markdown(fitted)}\n{text}\n"


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
