"""Tables of results: accuracies of a board, the leaderboard, and bits of next tokens."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Mapping, Sequence

from lra.config.settings_files import published_presets
from lra.record.intervals import wilson_interval
from lra.record.run import RunRecord
from lra.record.table import to_frame
from lra.report.boards import Board, Cells, rows_at_preset
from lra.report.data import Data
from lra.report.names import slugify
from lra.report.scores import (
    ACCURACY,
    AVERAGES,
    FIVE,
    NEXT_TOKEN,
    VALIDATION_LOSS,
    Cell,
    Measure,
    Result,
    average,
)
from lra.report.tables.speeds import PresetSpeeds
from lra.report.tables.table import (
    Column,
    Entry,
    Table,
    name_column,
    number_entry,
    result_column,
    result_entry,
    text_column,
)
from lra.runtime.console import csv_table

OVER_N_SEEDS = "Each number is the mean ± standard deviation over n seeds."
RANKS = "The best number of each column is bold, the second best is underlined."
_JUDGED = (
    "Bold: the best by more than chance can explain (95 %). Underlined: the best, and all that "
    "cannot be told apart from it."
)
_MARKS = (
    "Bold: the best of its column, by more than 1.4 times the interval in the last row; smaller "
    "differences can be chance. Underlined, if no number is bold: the best, and all within "
    "that distance. At chance: not significantly better than the same answer for every example; "
    "such results are not ranked, but they count in the mean."
)
_UNPUBLISHED = "retrieval"
"""The task whose shipped runs have data that is not published."""
MEANS = {**AVERAGES, "mean of 4": tuple(task for task in FIVE if task != _UNPUBLISHED)}
"""Tasks of the averages of the leaderboard; everybody can have the data of the last one's."""


def accuracy_columns(
    board: Board,
    beneath: Mapping[str, Mapping[str, float]],
    means: Mapping[str, Sequence[str]] = AVERAGES,
    *,
    shows_spread: bool = True,
) -> list[Column]:
    """Make the columns of a board: the rows' names, its tasks and, in a main board, averages.

    Args:
        board: the results.
        beneath: accuracies of further rows in percent, by name and then by task.
        means: the tasks of each average.
        shows_spread: whether texts have the standard deviation over seeds and their number.
    """
    columns = [name_column("mixer", [*board.rows, *beneath], board.own_rows)]
    for task in board.tasks:
        cells = [cells.get(task) for cells in board.rows.values()]
        entries = [result_entry(cell, ACCURACY, shows_spread=shows_spread) for cell in cells]
        below = [by_task.get(task) for by_task in beneath.values()]
        columns.append(result_column(task, ACCURACY, entries, below))
    for name, tasks in means.items() if board.is_main else ():
        values = [average(cells, tasks) for cells in board.rows.values()]
        entries = [number_entry(value, is_ranked=True) for value in values]
        columns.append(result_column(name, ACCURACY, entries, [None] * len(beneath)))
    return [columns[0], *(_with_margin(board, column) for column in columns[1:])]


def cost_columns(rows: Mapping[str, Cells], speeds: PresetSpeeds, beneath: int) -> list[Column]:
    """Make columns of what the models of each row cost, with empty entries beneath.

    Parameters are in thousands; they differ between tasks.
    """
    entries: list[Entry] = []
    for cells in rows.values():
        counts = [run.params / 1000 for cell in cells.values() for run in cell.runs if run.params]
        ends = [f"{end:,.0f}" for end in (min(counts), max(counts))] if counts else []
        text = f"{' to '.join(dict.fromkeys(ends))} k"
        entries.append(Entry(text, max(counts)) if counts else Entry())
    empty = [Entry()] * beneath
    columns = [Column("parameters", [*entries, *empty], lowest_is_best=True)]
    if speeds.by_mixer:
        found = [speeds.by_mixer.get(name) for name in rows]
        entries = [number_entry(one.mean if one else None) for one in found]
        columns.append(Column(f"speed, {speeds.relative_to} = 1", [*entries, *empty]))
    return columns


def accuracy_table(board: Board) -> Table:
    """Tabulate the accuracies of a board, with trivial baselines beneath."""
    baselines = {f"trivial baseline: {n}": found for n, found in board.trivial_baselines().items()}
    caption = f"Test accuracy in percent. {_JUDGED} {conditions_of(board)}".strip()
    columns = accuracy_columns(board, baselines)
    title = f"{board.name}: accuracy"
    return Table(f"accuracy-{board.slug}", title, caption, columns, len(baselines))


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
    return " ".join(parts)


def _half_interval(board: Board, column: str) -> float | None:
    """Return half of the 95 % interval of a number near the middle of a column, in percent.

    An average over tasks has the interval of independent errors.
    """
    if column in MEANS:
        halves = [_half_interval(board, task) for task in MEANS[column]]
        known = [half for half in halves if half is not None]
        return math.hypot(*known) / len(halves) if len(known) == len(halves) else None
    found = [cells[column] for cells in board.rows.values() if column in cells]
    means = [mean for cell in found if (mean := cell.mean()) is not None]
    totals = [run.test_examples for cell in found for run in cell.runs if run.test_examples]
    if not means or not totals:
        return None
    low, high = wilson_interval(statistics.median(means) / 100, min(totals))
    return (high - low) / 2


def _with_margin(board: Board, column: Column) -> Column:
    """Mark numbers of a column by the 95 % interval of their differences, if it is known."""
    half = _half_interval(board, column.name)
    return dataclasses.replace(column, margin=None if half is None else math.sqrt(2) * half)


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
    baseline = own.best_trivial_baseline()
    names, *columns = accuracy_columns(own, baseline, MEANS, shows_spread=False)
    missing = [c.name for c in columns if c.is_empty and c.name in own.tasks]
    parameters, *costs = cost_columns(rows, speeds, len(baseline) + 1)
    columns = [
        dataclasses.replace(names, entries=[*names.entries, Entry("95 % interval")]),
        *(_with_interval(own, column) for column in columns),
        parameters,
        *(text_column(column.name, [e.text for e in column.entries]) for column in costs),
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
    if speeds.by_mixer:
        notes.append(
            f"Speed is the geometric mean over {speeds.tasks} of steps per second, divided by "
            f"those of {speeds.relative_to}, on {speeds.device}."
        )
    return Table(
        slug="leaderboard",
        title=f"Leaderboard: preset {board.preset}, protocol {board.protocol}",
        caption=f"Test accuracy in percent. {_MARKS}",
        columns=columns,
        beneath=len(baseline) + 1,
        notes=list(filter(None, notes)),
    ).without_empty_columns()


def _best_first(rows: Mapping[str, Cells]) -> dict[str, Cells]:
    """Sort rows by their mean over five tasks; those without a mean follow by their results."""

    def order(name: str) -> tuple[object, ...]:
        done = sum(cell.value() is not None for cell in rows[name].values())
        return -(average(rows[name], FIVE) or 0.0), -done, name

    return {name: rows[name] for name in sorted(rows, key=order)}


def _with_interval(board: Board, column: Column) -> Column:
    """Add the interval of a column beneath it, and mark numbers by that of their differences."""
    half = _half_interval(board, column.name)
    text = None if half is None or column.is_empty else f"± {half:.1f}"
    return dataclasses.replace(column, entries=[*column.entries, Entry(text)])


def _count_seeds(rows: Mapping[str, Cells]) -> str:
    """Say which numbers are means over several seeds."""
    methods_of: dict[tuple[str, int], list[str]] = {}
    for method, cells in rows.items():
        for task, cell in cells.items():
            if (count := len(cell.numbers())) > 1:
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


_CSV = {
    "task": "task",
    "mixer": "mixer",
    "preset": "preset",
    "protocol": "protocol",
    "seed": "seed",
    "status": "status",
    "test_accuracy": "test_accuracy",
    "interval_low": "test_low",
    "interval_high": "test_high",
    "best_trivial_baseline": "",
    "test_examples": "test_total",
    "val_accuracy": "val_accuracy",
    "best_step": "best_step",
    "steps": "steps",
    "batch_size": "batch_size",
    "learning_rate": "train.lr",
    "weight_decay": "train.weight_decay",
    "channels": "model.dim",
    "blocks": "model.depth",
    "norm": "model.norm",
    "axes": "model.axes",
    "pooling": "model.pooling",
    "positions": "model.positions",
    "longest_sequence": "length",
    "parameters": "params",
    "train_seconds": "train_seconds",
    "steps_per_second": "steps_per_second",
    "peak_memory_mib": "peak_memory_mib",
    "device": "device",
    "precision": "precision",
    "data": "data.source",
    "data_fingerprint": "data.fingerprint",
    "config_hash": "config_hash",
    "run": "run_id",
}
"""Columns of the leaderboard's file, and those of `lra.records` that they are, in percent."""


def leaderboard_csv(data: Data, board: Board) -> str:
    """Write the runs of the leaderboard as CSV, with the 95 % interval of each accuracy (Wilson)
    and the accuracy of the best trivial baseline.
    """
    rows = rows_at_preset(board)
    runs = [run for cells in rows.values() for cell in cells.values() for run in cell.runs]
    runs.sort(key=lambda run: (board.tasks.index(run.task), run.mixer, run.seed, run.run_id))
    frame = to_frame(((data.path(run), run) for run in runs), data.folder)
    chosen = frame.reindex(columns=[*_CSV.values()]).set_axis([*_CSV], axis="columns")
    baselines = next(iter(board.best_trivial_baseline().values()), {})
    chosen["best_trivial_baseline"] = [baselines.get(run.task) for run in runs]
    intervals = ["interval_low", "interval_high"]
    chosen[intervals] = chosen[intervals].round(2)
    return csv_table(chosen)


def position_table(board: Board) -> Table:
    """Tabulate a board of next tokens, with trivial baselines and bounds beneath."""
    (task,), measures = board.tasks, _position_measures(board)
    cells = {method: found[task] for method, found in board.rows.items()}
    runs = sorted(board.records, key=lambda run: run.run_id)
    beneath = {measure.name: measure.rows_beneath(runs) for measure in measures}
    below = list(dict.fromkeys(name for numbers in beneath.values() for name in numbers))
    columns = [name_column("mixer", [*cells, *below], board.own_rows)]
    for measure in measures:
        numbers = [beneath[measure.name].get(name) for name in below]
        # The validation loss of a run that is not done has no rank.
        entries = [
            result_entry(cell, measure, is_ranked=bool(cell.numbers(measures[0])))
            for cell in cells.values()
        ]
        if measure is not measures[0]:  # the number of seeds is said once
            entries = [
                dataclasses.replace(entry, text=cell.spread_text(measure), anchors=())
                for entry, cell in zip(entries, cells.values(), strict=True)
            ]
        columns.append(result_column(measure.name, measure, entries, numbers))
    for name, (cost, form) in _POSITION_COSTS.items():
        costs = [cost(cell) for cell in cells.values()]
        entries = [Entry() if one is None else Entry(format(one, form), one) for one in costs]
        columns.append(Column(name, [*entries, *[Entry()] * len(below)], lowest_is_best=True))
    caption = (
        f"Results on the test set. {OVER_N_SEEDS} Accuracy is that of the next token, and minutes "
        f"are those of training. {RANKS} {conditions_of(board)}"
    )
    return Table(slugify("bits", task, board.slug), board.name, caption, columns, len(below))


def _position_measures(board: Board) -> list[Measure]:
    """List the columns of numbers: bits first, distances to bounds last."""
    scores = [run.positions for run in board.records if run.positions is not None]

    def above(name: str) -> Callable[[Result], float | None]:
        def distance(result: Result) -> float | None:
            one = result.positions
            if one is None or one.bits is None or name not in one.lowest_bits:
                return None
            return one.bits - one.lowest_bits[name]

        return distance

    bounds = dict.fromkeys(name for one in scores for name in one.lowest_bits)
    return [
        *board.measures,
        NEXT_TOKEN,
        VALIDATION_LOSS,
        *(Measure(f"above {name}", above(name), 3, lowest_is_best=True) for name in bounds),
    ]


def _minutes(cell: Cell[RunRecord]) -> float | None:
    seconds = [run.train_seconds for run in cell.runs if run.train_seconds is not None]
    return statistics.mean(seconds) / 60 if seconds else None


_POSITION_COSTS: Mapping[str, tuple[Callable[[Cell[RunRecord]], float | None], str]] = {
    "parameters": (lambda cell: cell.runs[-1].params, ",.0f"),
    "steps": (lambda cell: statistics.mean(run.steps for run in cell.runs), ",.0f"),
    "minutes": (_minutes, ".1f"),
}
"""Columns of what the runs of a row took, in the mean over seeds, and how they are written."""
