"""The accuracy tables: mixers by tasks, trivial baselines beneath."""

from __future__ import annotations

from collections.abc import Mapping

from lra.config.settings_files import published_presets
from lra.report.boards.averages import AVERAGES, averages
from lra.report.boards.board import Board
from lra.report.boards.measures import ACCURACY
from lra.report.tables.result_columns import result_column, result_entry
from lra.report.tables.table import Column, Table, name_column, number_entry


def accuracy_table(board: Board, slug: str) -> Table:
    """Tabulate the accuracies of a board, with trivial baselines beneath."""
    baselines = {
        f"trivial baseline: {name}": by_task for name, by_task in board.trivial_baselines().items()
    }
    return Table(
        slug=slug,
        title=f"{board.name}: accuracy",
        caption=caption_of(board),
        columns=accuracy_columns(board, baselines),
        facts=_facts(board),
    )


def accuracy_columns(
    board: Board, beneath: Mapping[str, Mapping[str, float]], *, shows_spread: bool = True
) -> list[Column]:
    """Make the columns of a board: the rows' names, its tasks and, in a main board, averages.

    Args:
        board: the results.
        beneath: accuracies of further rows in percent, by name and then by task.
        shows_spread: whether texts have the standard deviation over seeds and their number.
    """
    columns = [name_column("mixer", [*board.rows, *beneath], board.own_rows)]
    for task in board.tasks:
        cells = [cells.get(task) for cells in board.rows.values()]
        entries = [result_entry(cell, ACCURACY, shows_spread=shows_spread) for cell in cells]
        below = [by_task.get(task) for by_task in beneath.values()]
        columns.append(result_column(task, ACCURACY, entries, below))
    means = [averages(cells) for cells in board.rows.values()]
    for name in AVERAGES if board.is_main else ():
        entries = [number_entry(row[name], ACCURACY.digits, is_ranked=True) for row in means]
        columns.append(result_column(name, ACCURACY, entries, [None] * len(beneath)))
    return columns


OVER_N_SEEDS = "Each number is the mean ± standard deviation over n seeds."
RANKS = "The best number of each column is bold, the second best is underlined."


def caption_of(board: Board, seeds: str = OVER_N_SEEDS) -> str:
    """Say what the numbers are and what each column was measured on.

    Args:
        board: the board that the table shows.
        seeds: sentence on how many seeds a number is of.
    """
    return f"Test accuracy in percent. {seeds} {RANKS} {conditions_of(board)}".strip()


def conditions_of(board: Board) -> str:
    """Say what the numbers of a board compare with, and what each column was measured on."""
    parts: list[str] = []
    if board.preset not in published_presets():
        parts.append(
            f"The {board.preset} preset uses its own data and models: compare its results only "
            f"with each other, not with published ones."
        )
    by_condition: dict[str, list[str]] = {}
    for task, condition in board.conditions.items():
        by_condition.setdefault(condition, []).append(task)
    found = [f"{', '.join(tasks)} ({condition})" for condition, tasks in by_condition.items()]
    if found:
        parts.append(f"Data and checkpoint selection by task: {'; '.join(found)}.")
    if board.reason:
        parts.append(f"These runs have a table of their own because of: {board.reason}.")
    return " ".join(parts)


def _facts(board: Board) -> list[dict[str, object]]:
    return [
        {
            "preset": board.preset,
            "protocol": board.protocol,
            "apart_for": board.reason,
            "mixer": method,
            "task": task,
            "mean_percent": cell.mean,
            "deviation_percent": cell.deviation_of(ACCURACY),
            "seeds_done": len(cell.accuracies),
            "at_chance": cell.is_at_chance,
            "non_finite": sum(run.test_non_finite or 0 for run in cell.runs),
            "not_done": ", ".join([*cell.words, *cell.unfinished]),
            "runs": " ".join(run.run_id for run in cell.runs),
        }
        for method, cells in board.rows.items()
        for task, cell in cells.items()
    ]
