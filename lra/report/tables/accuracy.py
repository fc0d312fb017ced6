"""The accuracy tables: mixers by tasks, trivial baselines beneath."""

from __future__ import annotations

from lra.config.settings_files import published_presets
from lra.report.boards.averages import AVERAGES, averages
from lra.report.boards.board import Board
from lra.report.boards.cells import Cell
from lra.report.boards.ranking import ranks
from lra.report.boards.slugs import run_anchor
from lra.report.tables.table import Table
from lra.runtime.console import MISSING


def accuracy_table(board: Board, slug: str) -> Table:
    """Tabulate the accuracies of a board, with trivial baselines beneath."""
    names = list(AVERAGES) if board.is_main else []
    columns = [*board.tasks, *names]
    rows: list[list[str]] = []
    values: list[list[float | None]] = []
    links: dict[tuple[int, int], str] = {}
    for i, (method, cells) in enumerate(board.rows.items()):
        row = {task: cells.get(task, Cell()) for task in board.tasks}
        means = averages(cells)
        rows.append([method, *(cell.text for cell in row.values())])
        rows[i] += [_number(means[name]) for name in names]
        values.append([*(cell.value for cell in row.values()), *(means[name] for name in names)])
        for j, cell in enumerate(row.values(), start=1):
            if cell.runs:
                links[i, j] = run_anchor(min(cell.runs, key=lambda run: run.status != "done"))
    marks = {
        (i, j): mark
        for j, column in enumerate(zip(*values, strict=True), start=1)
        for i, mark in ranks(column).items()
    }
    for name, by_task in board.trivial_baselines().items():
        rows.append(
            [f"trivial baseline: {name}", *(_number(by_task.get(task)) for task in columns)]
        )
    return Table(
        slug=slug,
        title=f"{board.name}: accuracy",
        caption=caption_of(board),
        columns=["mixer", *columns],
        rows=rows,
        marks=marks,
        links=links,
        facts=_facts(board),
    )


def _number(value: float | None) -> str:
    return MISSING if value is None else f"{value:.2f}"


def caption_of(board: Board, seeds: str = "mean ± standard deviation over n seeds") -> str:
    """Say what the numbers are and what each column was measured on.

    Args:
        board: the board that the table shows.
        seeds: words that say how a number is made from several seeds.
    """
    return (
        f"Test accuracy in percent, {seeds}; the best of a column in bold, the second underlined. "
        + conditions_of(board)
    ).strip()


def conditions_of(board: Board) -> str:
    """Say what the numbers of a board compare with, and what each column was measured on."""
    parts: list[str] = []
    if board.preset not in published_presets():
        parts.append(
            f"The {board.preset} preset has data and models of its own: its rows compare with each "
            f"other, not with published ones."
        )
    by_condition: dict[str, list[str]] = {}
    for task, condition in board.conditions.items():
        by_condition.setdefault(condition, []).append(task)
    found = [f"{', '.join(tasks)}: {condition}" for condition, tasks in by_condition.items()]
    if found:
        parts.append(f"{'; '.join(found)}.")
    if board.reason:
        parts.append(f"Not in the main table for: {board.reason}.")
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
            "deviation_percent": cell.deviation,
            "seeds_done": len(cell.accuracies),
            "at_chance": cell.is_at_chance,
            "non_finite": sum(run.test_non_finite or 0 for run in cell.runs),
            "not_done": ", ".join([*cell.words, *cell.unfinished]),
            "runs": " ".join(run.run_id for run in cell.runs),
        }
        for method, cells in board.rows.items()
        for task, cell in cells.items()
    ]
