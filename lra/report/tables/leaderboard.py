"""The leaderboard: one board at a glance."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping

from lra.record.intervals import wilson_interval
from lra.report.boards.averages import AVERAGES, FIVE, averages, mean_over
from lra.report.boards.board import Board
from lra.report.boards.cells import Cell
from lra.report.boards.measures import ACCURACY
from lra.report.boards.preset_speeds import PresetSpeed, PresetSpeeds
from lra.report.boards.row_names import changes_of
from lra.report.tables.accuracy import accuracy_columns, conditions_of
from lra.report.tables.result_columns import result_column
from lra.report.tables.table import Column, Entry, Table, number_entry, text_column

_MARKS = (
    "Bold: the best of its column, by more than 1.4 times the interval in the last row; smaller "
    "differences can be chance. Underlined, if no number is bold: the best, and all within "
    "that distance. At chance: not significantly better than the same answer for every example; "
    "such results are not ranked, but they count in the mean."
)

_UNPUBLISHED = "retrieval"
"""The task whose shipped runs have data that is not published."""
_FOUR = tuple(task for task in FIVE if task != _UNPUBLISHED)
"""The tasks of "mean of 4", whose data everybody can have."""
_MEANS = {**AVERAGES, "mean of 4": _FOUR}


def leaderboard(board: Board, speeds: PresetSpeeds) -> Table:
    """Tabulate the mixers of a board at the settings of its preset, the best mean first.

    Beneath them are the best trivial baseline and the interval of each column. Columns without any
    number are left out, and tasks without any are named in the notes.

    Args:
        board: the accuracies of all rows.
        speeds: the training speeds of mixers at the preset; rows of other mixers have none.
    """
    rows = _best_first(rows_at_preset(board))
    own = dataclasses.replace(board, rows=rows)
    baseline = best_trivial_baseline(own)
    names, *columns = accuracy_columns(own, baseline, shows_spread=False)
    columns.append(_mean_of_four(rows, len(baseline)))
    missing = [c.name for c in columns if c.is_empty and c.name in own.tasks]
    below: list[str | None] = [None] * (len(baseline) + 1)
    columns = [
        dataclasses.replace(names, entries=[*names.entries, Entry("95 % interval")]),
        *(_with_interval(own, column) for column in columns),
        text_column("parameters", [*map(_describe_parameters, rows.values()), *below]),
        text_column(
            f"speed, {speeds.relative_to} = 1",
            [*(_describe_speed(speeds.by_mixer.get(name)) for name in rows), *below],
        ),
    ]
    notes = [_count_seeds(rows), _name_baselines(own), conditions_of(own)]
    if "unofficial" in board.conditions.get(_UNPUBLISHED, ""):
        notes.append(
            "Retrieval has other pairs of papers than the official ones. Those of the shipped runs "
            "are not published, so nobody else can repeat this column and the mean of 5. The mean "
            "of 4 leaves Retrieval out."
        )
    if missing:
        notes.append(f"There are no results for {', '.join(missing)}.")
    if not columns[-1].is_empty:
        notes.append(
            f"Speed is the geometric mean over {speeds.tasks} of steps per second, divided by "
            f"those of {speeds.relative_to}, on {speeds.device}."
        )
    return Table(
        slug="leaderboard",
        title=f"Leaderboard: preset {board.preset}, protocol {board.protocol}",
        caption=f"Test accuracy in percent. {_MARKS}",
        columns=columns,
        notes=list(filter(None, notes)),
    ).without_empty_columns()


def _count_seeds(rows: Mapping[str, Mapping[str, Cell]]) -> str:
    """Say which numbers are means over several seeds."""
    methods_of: dict[tuple[str, int], list[str]] = {}
    for method, cells in rows.items():
        for task, cell in cells.items():
            if (count := len(cell.accuracies)) > 1:
                methods_of.setdefault((task, count), []).append(method)
    tasks_of: dict[tuple[int, tuple[str, ...]], list[str]] = {}
    for (task, count), methods in sorted(methods_of.items()):
        tasks_of.setdefault((count, tuple(methods)), []).append(task)
    parts = [
        f"over {count} seeds on {' and '.join(tasks)}: {', '.join(methods)}"
        for (count, methods), tasks in tasks_of.items()
    ]
    means = f"Means {'; '.join(parts)}. All other numbers are from one seed."
    return means if parts else "Each number is from one seed."


def _name_baselines(board: Board) -> str:
    """Say which trivial baseline is the best on each task; empty without any."""
    tasks_of: dict[str, list[str]] = {}
    baselines = board.trivial_baselines()
    for task in board.tasks:
        found = {name: by_task[task] for name, by_task in baselines.items() if task in by_task}
        if found:
            tasks_of.setdefault(max(found, key=found.__getitem__), []).append(task)
    parts = [f"{name} ({', '.join(tasks)})" for name, tasks in tasks_of.items()]
    return f"The best trivial baselines are {'; '.join(parts)}." if parts else ""


def _best_first(rows: Mapping[str, Mapping[str, Cell]]) -> dict[str, Mapping[str, Cell]]:
    """Sort rows by their mean over five tasks; those without a mean follow by their results."""

    def order(name: str) -> tuple[object, ...]:
        mean = averages(rows[name])[next(iter(AVERAGES))]
        done = sum(cell.value is not None for cell in rows[name].values())
        return -(mean or 0.0), -done, name

    return {name: rows[name] for name in sorted(rows, key=order)}


def _mean_of_four(rows: Mapping[str, Mapping[str, Cell]], below: int) -> Column:
    """Average each row over the tasks whose data everybody can have."""
    means = [
        mean_over(_FOUR, {task: cell.number_of(ACCURACY) for task, cell in cells.items()})
        for cells in rows.values()
    ]
    entries = [number_entry(mean, ACCURACY.digits, is_ranked=True) for mean in means]
    return result_column("mean of 4", ACCURACY, entries, [None] * below)


def _half_interval(board: Board, column: str) -> float | None:
    """Return half of the 95 % interval of a number near the middle of a column, in percent.

    An average over tasks has the interval of independent errors.
    """
    if column in _MEANS:
        halves = [_half_interval(board, task) for task in _MEANS[column]]
        known = [half for half in halves if half is not None]
        return math.hypot(*known) / len(halves) if len(known) == len(halves) else None
    found = [cells[column] for cells in board.rows.values() if column in cells]
    means = [cell.mean for cell in found if cell.mean is not None]
    totals = [run.test_examples for cell in found for run in cell.runs if run.test_examples]
    if not means or not totals:
        return None
    low, high = wilson_interval(statistics.median(means) / 100, min(totals))
    return (high - low) / 2


def with_margin(board: Board, column: Column) -> Column:
    """Mark numbers of a column by the 95 % interval of their differences, if it is known."""
    half = _half_interval(board, column.name)
    return dataclasses.replace(column, margin=None if half is None else math.sqrt(2) * half)


def _with_interval(board: Board, column: Column) -> Column:
    """Add the interval of a column beneath it, and mark numbers by that of their differences."""
    half = _half_interval(board, column.name)
    text = None if half is None or column.is_empty else f"± {half:.1f}"
    entries = [*column.entries, Entry(text)]
    return dataclasses.replace(with_margin(board, column), entries=entries)


def _describe_parameters(cells: Mapping[str, Cell]) -> str | None:
    """Write the parameters of a row's models, in thousands; they differ between tasks."""
    counts = [run.params / 1000 for cell in cells.values() for run in cell.runs if run.params]
    if not counts:
        return None
    texts = dict.fromkeys(f"{count:,.0f}" for count in (min(counts), max(counts)))
    return f"{' to '.join(texts)} k"


def _describe_speed(speed: PresetSpeed | None) -> str | None:
    return None if speed is None else f"{speed.relative:.2f}"


def best_trivial_baseline(board: Board) -> dict[str, dict[str, float]]:
    """Return the accuracy of the best trivial baseline of each task, as a row; none without any."""
    best: dict[str, float] = {}
    for by_task in board.trivial_baselines().values():
        best |= {task: max(value, best.get(task, value)) for task, value in by_task.items()}
    return {"best trivial baseline": best} if best else {}


def rows_at_preset(board: Board) -> dict[str, Mapping[str, Cell]]:
    """Choose the rows of the preset's settings; of a mixer those without a label, if it has any."""
    runs = {
        method: [run for cell in cells.values() for run in cell.runs]
        for method, cells in board.rows.items()
    }
    plain = {method: found for method, found in runs.items() if not any(map(changes_of, found))}
    unlabelled = {run.mixer for found in plain.values() for run in found if run.label is None}
    return {
        method: board.rows[method]
        for method, found in plain.items()
        if all(run.label is None or run.mixer not in unlabelled for run in found)
    }
