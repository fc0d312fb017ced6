"""Accuracies at equal training time: what each mixer has learned when one of them ends."""

from __future__ import annotations

from collections.abc import Mapping

from lra.record.run import RunRecord
from lra.report.boards.board import Board
from lra.report.boards.cells import Cell
from lra.report.boards.preset_speeds import PresetSpeeds
from lra.report.boards.results import Results
from lra.report.tables.leaderboard import rows_at_preset
from lra.report.tables.table import Column, Entry, Table, name_column, number_entry


def equal_time_table(results: Results, board: Board, speeds: PresetSpeeds) -> Table | None:
    """Tabulate the validation accuracy of each mixer at the time that one mixer needs for its run.

    Until then a mixer of half its speed has made half of its steps. The time follows from measured
    speeds, so that it does not matter which machine a run was made on.

    Args:
        results: the results folder with the learning curves.
        board: the rows.
        speeds: measured speeds, relative to the mixer whose time counts.
    Returns: the table; None without measured speeds.
    """
    base = board.rows.get(speeds.relative_to, {})
    rows = {name: cells for name, cells in rows_at_preset(board).items() if name in speeds.by_mixer}
    tasks = [task for task in board.tasks if base.get(task, Cell()).accuracies]
    if not tasks or len(rows) < 2:  # noqa: PLR2004
        return None
    return Table(
        slug=f"equal-time-{board.slug}",
        title=f"{board.name}: accuracy at equal training time",
        caption=f"Best validation accuracy in percent, of the first seed, until the time in which "
        f"{speeds.relative_to} makes all of its steps. Times follow from the speeds measured on "
        f"{speeds.device}. In brackets is the share of its own steps that a mixer has made until "
        f"then. The learning rate of a slow mixer is still high at this time, because its schedule "
        f"ends with its last step.",
        columns=[
            name_column("mixer", rows, board.own_rows),
            *(_column(results, rows, base[task], task, speeds) for task in tasks),
        ],
    )


def _column(
    results: Results,
    rows: Mapping[str, Mapping[str, Cell[RunRecord]]],
    base: Cell[RunRecord],
    task: str,
    speeds: PresetSpeeds,
) -> Column:
    steps = base.runs[0].steps
    entries: list[Entry] = []
    for name, cells in rows.items():
        runs = [run for run in cells.get(task, Cell()).runs if run.status == "done"]
        made = steps * speeds.by_mixer[name].by_task.get(task, 0.0)
        entries.append(_entry(results, runs[0], made) if runs else Entry())
    return Column(task, entries)


def _entry(results: Results, run: RunRecord, made: float) -> Entry:
    """Find the best validation of a run among its first steps."""
    found = [
        line.val_accuracy
        for line in results.validations(run)
        if line.step <= made and line.val_accuracy is not None
    ]
    share = f"({100 * min(1.0, made / run.steps):.0f} %)"
    entry = number_entry(max(found, default=None), is_ranked=True)
    return Entry(f"{entry.text or 'none yet'} {share}", entry.value, is_ranked=bool(found))
