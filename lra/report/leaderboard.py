"""The leaderboard: its table and the file of its runs."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

from lra.common.spreadsheets import write_csv
from lra.record.run_files import to_frame
from lra.report.boards import Board, Cells, contribution_of, rows_at_preset
from lra.report.data import Data
from lra.report.scores import FIVE, Entry, average_may_rank, gain_of, group_by, mean_over
from lra.report.tables.need import NON_LOCAL
from lra.report.tables.results import accuracy_columns, conditions_of, describe_marks
from lra.report.tables.speeds import PresetSpeeds
from lra.report.tables.table import Column, Table, number_entry
from lra.report.windows import Windows, describe_windows, find_windows, window_column
from lra.runtime.tables import rounded

_MARKS = (
    "Bold: the best of its column, by more than 1.4 times the interval in the last row; smaller "
    "differences can be chance. Underlined, if no number is bold: the best, and all within "
    "that distance. At chance: not significantly better than the same answer for every example; "
    "such results are not ranked."
)
GAIN = "mean gain"
CLOSED = "retrieval"
"""The task whose shipped runs have data that is not published."""
OPEN = tuple(task for task in FIVE if task != CLOSED)
"""Tasks of the mean gain: everybody can make or download their data."""
_GAIN = (
    "A gain is the part of the way from the best trivial baseline to 100 % that a mixer goes, in "
    f"percent. It is 0 at chance and below the baseline. The {GAIN} is that over {', '.join(OPEN)}."
)
_NOT_PUBLISHED = (
    "Retrieval does not count in the mean gain: its pairs of papers are not the official ones, and "
    "are not published, so nobody else can repeat this column."
)
LOCAL = "local"
_LOCAL = (
    f"{LOCAL.capitalize()}: a convolution that sees fewer than {NON_LOCAL} positions has 90 % of "
    "the gain of the best mixer (docs/range.md)."
)
_CONTRIBUTED = (
    "Contributed rows have a division and marks, which docs/open_board.md explains. A number of "
    "fewer than 3 seeds is not ranked."
)
_CSV = {
    "task": "task", "mixer": "mixer", "preset": "preset", "protocol": "protocol", "seed": "seed",
    "status": "status", "test_accuracy": "test_accuracy",
    "interval_low": "test_low", "interval_high": "test_high", "best_trivial_baseline": "",
    "test_examples": "test_total", "effective_window": "window.positions",
    "val_accuracy": "val_accuracy", "best_step": "best_step",
    "steps": "steps", "batch_size": "batch_size", "learning_rate": "train.lr",
    "weight_decay": "train.weight_decay", "channels": "model.dim", "blocks": "model.depth",
    "norm": "model.norm", "axes": "model.axes", "pooling": "model.pooling",
    "positions": "model.positions", "longest_sequence": "length", "parameters": "params",
    "train_seconds": "train_seconds", "steps_per_second": "steps_per_second",
    "peak_memory_mib": "peak_memory_mib", "device": "device", "precision": "precision",
    "data": "data.source", "data_fingerprint": "data.fingerprint", "config_hash": "config_hash",
    "run": "run_id", "contribution": "contribution", "division": "division", "marks": "marks",
}  # fmt: skip
"""Columns of leaderboard.csv, with the column of `lra.records` that each takes its values from.
Accuracies are in percent."""


def leaderboard(
    board: Board, speeds: PresetSpeeds, windows: Windows, local: Sequence[str]
) -> Table:
    """Tabulate the mixers of a board at the settings of its preset, the largest mean gain first.
    Tasks that need a short range only are marked as local.

    Beneath them are the best trivial baseline and the interval of each column. Columns without any
    number are left out, and tasks without any are named in the notes.
    """
    board = dataclasses.replace(board, rows=rows_at_preset(board))
    baseline = board.best_trivial_baseline()
    gains = mean_gains(board)
    board = dataclasses.replace(board, rows=_best_first(board.rows, gains))
    names, *numbers = accuracy_columns(board, baseline, speeds, averages={}, shows_spread=False)
    missing = [column.name for column in numbers if column.is_empty and column.name in board.tasks]
    withdrawn = {row for row, cells in board.rows.items() if _is_withdrawn(cells)}
    shown = [
        dataclasses.replace(e, text=f"~~{e.text}~~") if e.text in withdrawn else e
        for e in names.entries
    ]
    columns = [dataclasses.replace(names, entries=[*shown, Entry("95 % interval")])]
    numbers.sort(key=lambda column: (column.name not in board.tasks, column.name == CLOSED))
    window = window_column(windows, [*board.rows, *baseline])
    for column in (_gain_column(board, gains, numbers), window, *numbers):
        entries = column.entries
        if column.name == speeds.heading:  # the table of speeds has their numbers
            entries = [Entry(entry.text) for entry in entries]
        name = f"{column.name} ({LOCAL})" if column.name in local else column.name
        entries = [*entries, _interval_of(column)]
        columns.append(dataclasses.replace(column, name=name, entries=entries))
    notes = [
        _count_seeds(board.rows), _name_baselines(board), conditions_of(board),
        _NOT_PUBLISHED * ("unofficial" in board.conditions.get(CLOSED, "")),
        _LOCAL * bool(local), describe_windows(windows), describe_marks(board),
        *_describe_contributions(board.rows),
        f"There are no results for {', '.join(missing)}." * bool(missing),
    ]  # fmt: skip
    if speeds.by_mixer:
        notes.append(
            f"Speed is the geometric mean over {speeds.tasks} of steps per second, divided by "
            f"those of {speeds.relative_to}, on {speeds.device}."
        )
    return Table(
        slug="leaderboard",
        title=f"Leaderboard: preset {board.preset}, protocol {board.protocol}",
        caption=f"Test accuracy in percent. {_GAIN} {_MARKS}",
        columns=columns,
        beneath=len(baseline) + 1,
        notes=[*filter(None, notes)],
    ).without_empty_columns()


def _interval_of(column: Column) -> Entry:
    """Write half of the 95 % interval of a column's numbers; nothing if it is not known."""
    if column.margin is None or column.is_empty:
        return Entry()
    return Entry(f"± {rounded(column.margin / math.sqrt(2), 1)}")


def mean_gains(board: Board) -> dict[str, float | None]:
    """Return the mean gain of each row in percent; None without a result on all tasks of it."""
    best = next(iter(board.best_trivial_baseline().values()), {})
    gains: dict[str, float | None] = {}
    for row, cells in board.rows.items():
        known = {task: cells[task] for task in OPEN if task in cells and task in best}
        gains[row] = mean_over(OPEN, {t: gain_of(cell, best[t]) for t, cell in known.items()})
    return gains


def _gain_column(board: Board, gains: Mapping[str, float | None], tasks: list[Column]) -> Column:
    """Make the column of mean gains, whose interval is that of independent errors."""
    best = next(iter(board.best_trivial_baseline().values()), {})
    parts = [
        column.half_interval / (100 - best[column.name])
        for column in tasks
        if column.name in OPEN and column.half_interval and column.name in best
    ]
    half = 100 * math.hypot(*parts) / len(OPEN) if len(parts) == len(OPEN) else None
    entries = [
        number_entry(gains[row], 1, is_ranked=average_may_rank(cells, OPEN))
        for row, cells in board.rows.items()
    ]
    return Column(GAIN, [*entries, *map(Entry, [None] * bool(best))], 1, half_interval=half)


def _best_first(rows: Mapping[str, Cells], gains: Mapping[str, float | None]) -> dict[str, Cells]:
    """Sort rows by their mean gain; those without one follow by their results, then withdrawn
    ones.
    """

    def order(name: str) -> tuple[object, ...]:
        done = sum(cell.entry().is_ranked for cell in rows[name].values())
        gain = gains[name]
        return _is_withdrawn(rows[name]), gain is None, -(gain or 0.0), -done, name

    return {name: rows[name] for name in sorted(rows, key=order)}


def _count_seeds(rows: Mapping[str, Cells]) -> str:
    """Say which numbers are means over several seeds."""
    rows_of: dict[tuple[int, str], list[str]] = {}
    for row, cells in rows.items():
        tasks_of = group_by(sorted(cells), lambda task, cells=cells: cells[task].entry().seeds)
        for count, tasks in tasks_of.items():
            rows_of.setdefault((count, ", ".join(tasks)), []).append(row)
    parts = [
        f"over {count} seeds on {tasks}: {', '.join(names)}"
        for (count, tasks), names in sorted(rows_of.items())
        if count > 1
    ]
    means = f"Means {'; '.join(parts)}. All other numbers are from one seed."
    return means if parts else "Each number is from one seed."


def _is_withdrawn(cells: Cells) -> bool:
    of = contribution_of(cells)
    return of is not None and of.withdrawn is not None


def _describe_contributions(rows: Mapping[str, Cells]) -> list[str]:
    """Say where contributed rows come from, and why rows are withdrawn."""
    contributions = {of.name: of for cells in rows.values() if (of := contribution_of(cells))}
    notes = [
        f"{of.name}: {of.title}, {of.code}."
        + (f" Withdrawn: {' '.join(of.withdrawn.evidence)}" if of.withdrawn else "")
        for of in contributions.values()
    ]
    return [_CONTRIBUTED, *notes] if notes else []


def _name_baselines(board: Board) -> str:
    """Say which trivial baseline is the best on each task; empty without any."""
    best: dict[str, str] = {}
    for task in board.tasks:
        scores = {
            n: values[task] for n, values in board.trivial_baselines().items() if task in values
        }
        if scores:
            best[task] = max(scores, key=scores.__getitem__)
    parts = [f"{name} ({', '.join(same)})" for name, same in group_by(best, best.get).items()]
    return f"The best trivial baselines are {'; '.join(parts)}." if parts else ""


def leaderboard_csv(data: Data, board: Board) -> str:
    """Write the runs of the leaderboard as CSV, with the 95 % interval of each accuracy (Wilson)
    and the accuracy of the best trivial baseline; those of effective windows come last.
    """
    board = dataclasses.replace(board, rows=rows_at_preset(board))
    windows = find_windows(data.boards, board)
    groups = [*(cells.values() for cells in board.rows.values()), windows.values()]
    runs = [run for cells in groups for cell in cells for run in cell.runs]
    tasks = [*board.tasks, *(run.task for cell in windows.values() for run in cell.runs)]
    runs.sort(key=lambda run: (tasks.index(run.task), run.mixer, run.seed, run.run_id))
    frame = to_frame(((data.path(run), run) for run in runs), data.folder)
    chosen = frame.reindex(columns=[*_CSV.values()]).set_axis([*_CSV], axis="columns")
    baselines = next(iter(board.best_trivial_baseline().values()), {})
    chosen["best_trivial_baseline"] = [baselines.get(run.task) for run in runs]
    intervals = ["interval_low", "interval_high"]
    chosen[intervals] = chosen[intervals].round(2)
    return write_csv(chosen)
