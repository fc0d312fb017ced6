"""Tables of results: accuracies of a board, the leaderboard, and bits of next tokens."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Mapping, Sequence

from lra.config.settings_files import published_presets
from lra.record.run import RunRecord
from lra.record.scores import wilson_interval
from lra.report.boards import Board, Cells
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
    result_columns,
    result_entry,
)

OVER_N_SEEDS = "Each number is the mean ± standard deviation over n seeds."
RANKS = "The best number of each column is bold, the second best is underlined."
_JUDGED = (
    "Bold: the best by more than chance can explain (95 %). Underlined: the best, and all that "
    "cannot be told apart from it."
)
UNPUBLISHED = "retrieval"
"""The task whose shipped runs have data that is not published."""
MEANS = {**AVERAGES, "mean of 4": tuple(task for task in FIVE if task != UNPUBLISHED)}
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
    columns = result_columns(board.rows, board.tasks, ACCURACY, beneath, shows_spread=shows_spread)
    for name, tasks in means.items() if board.is_main else ():
        values = [average(cells, tasks) for cells in board.rows.values()]
        entries = [number_entry(value, is_ranked=True) for value in values]
        columns.append(Column(name, [*entries, *[Entry()] * len(beneath)]))
    for number, column in enumerate(columns[1:], start=1):
        half = _half_interval(board, column.name)
        margin = None if half is None else math.sqrt(2) * half
        columns[number] = dataclasses.replace(column, margin=margin)
    return columns


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
        entries += [number_entry(number, measure.digits) for number in numbers]
        columns.append(Column(measure.name, entries, measure.digits, measure.lowest_is_best))
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
