"""Tables of results: accuracies of a board, bits of next tokens, and what papers print."""

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import get_args

from lra.config.layers import published_presets
from lra.record.contribution import MarkName
from lra.report.boards import Board, Cells, contribution_of
from lra.report.published import PublishedRow, read_sources
from lra.report.scores import (
    AVERAGES,
    Cell,
    Entry,
    average,
    average_may_rank,
    group_by,
    half_interval,
    mean_over,
)
from lra.report.tables.speeds import PresetSpeeds
from lra.report.tables.table import (
    Column,
    Numbers,
    Table,
    fill_columns,
    number_entry,
    text_column,
    turn,
)
from lra.report.tables.terminal import Notes
from lra.tasks.base import BENCHMARK

OVER_N_SEEDS = "Each number is the mean ± standard deviation over n seeds."
RANKS = (
    "Bold: the best by more than chance can explain (95 %). Underlined: the best, and all that "
    "cannot be told apart from it."
)
_PRINTED = (
    "Test accuracy in percent, as the source printed it for its own protocol. results/sources.yaml "
    "lists the sources by their keys. Notes say which rows are validation accuracies. FAIL means "
    "that the source reports chance level, or that the model could not be trained."
)
_READINGS = {
    "flat": "pixel by pixel, in one row",
    "alternate": "along rows in one block and along columns in the next",
    "native": "in two dimensions",
}
"""How models read images, by `model.axes`."""
IMAGES = ("image", "pathfinder", "pathx")


def accuracy_columns(
    board: Board,
    beneath: Numbers,
    speeds: PresetSpeeds | None = None,
    *,
    averages: Mapping[str, Sequence[str]] = AVERAGES,
    shows_spread: bool = True,
) -> list[Column]:
    """Make the columns of a board: the rows' names, its tasks and, in a main board, averages.

    The 95 % interval of an average is that of independent errors. With speeds there are columns of
    what the models cost.
    """
    means = averages if board.is_main else {}
    rows: dict[str, dict[str, Entry]] = {}
    for row, cells in board.rows.items():
        rows[row] = {task: cell.entry(shows_spread=shows_spread) for task, cell in cells.items()}
        for name, tasks in means.items():
            is_ranked = average_may_rank(cells, tasks)
            rows[row][name] = number_entry(average(cells, tasks), is_ranked=is_ranked)
    halves = {t: half_interval(r[t] for r in rows.values() if t in r) for t in board.tasks}
    for name, tasks in means.items():
        known = [half for task in tasks if (half := halves.get(task)) is not None]
        halves[name] = math.hypot(*known) / len(tasks) if len(known) == len(tasks) else None
    columns = [Column(name, half_interval=half) for name, half in halves.items()]
    if speeds is not None:
        columns += [Column("parameters", lowest_is_best=True)]
        columns += [Column(speeds.heading)] if speeds.by_mixer else []
        if any(map(contribution_of, board.rows.values())):
            columns += map(Column, ("division", *get_args(MarkName)))
        for row, cells in board.rows.items():
            rows[row] |= _marks_of(cells)
            rows[row]["parameters"] = _parameters_of(cells)
            if row in speeds.by_mixer:
                rows[row][speeds.heading] = number_entry(speeds.by_mixer[row].mean)
    return fill_columns(columns, rows, beneath)


def _marks_of(cells: Cells) -> dict[str, Entry]:
    """Write the division of a contributed row, and which of a row's tasks have each mark."""
    of = contribution_of(cells)
    entries = {"division": Entry(of.division)} if of else {}
    for name in get_args(MarkName):
        tasks = [t for t, cell in cells.items() if any(name in run.marks for run in cell.runs)]
        if tasks:
            entries[name] = Entry("yes" if len(tasks) == len(cells) else ", ".join(tasks))
    return entries


def describe_marks(board: Board) -> str:
    """Say which shipped rows have which marks; empty without any."""
    shipped = {
        row: _marks_of(cells)
        for row, cells in board.rows.items()
        if contribution_of(cells) is None and row not in board.own_rows
    }
    rows_of = {name: [r for r in shipped if name in shipped[r]] for name in get_args(MarkName)}
    parts = [
        f"{name} ({'all rows' if len(rows) == len(shipped) else ', '.join(rows)})"
        for name, rows in rows_of.items()
        if rows
    ]
    said = f"Shipped rows have these marks (docs/open_board.md): {', '.join(parts)}."
    return said if parts else ""


def _parameters_of(cells: Cells) -> Entry:
    """Write the parameters of a row's models in thousands; they differ between tasks."""
    counts = [run.params / 1000 for cell in cells.values() for run in cell.runs if run.params]
    if not counts:
        return Entry()
    ends = dict.fromkeys(f"{end:,.0f}" for end in (min(counts), max(counts)))
    return Entry(f"{' to '.join(ends)} k", max(counts))


def accuracy_table(board: Board, speeds: PresetSpeeds | None = None) -> Table:
    """Tabulate the accuracies of a board, with trivial baselines beneath."""
    baselines = {
        f"trivial baseline: {n}": scores for n, scores in board.trivial_baselines().items()
    }
    said = filter(None, [RANKS, conditions_of(board), describe_marks(board)])
    caption = " ".join(["Test accuracy in percent.", *said])
    columns = accuracy_columns(board, baselines, speeds=speeds)
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
    by_condition = group_by(board.conditions, board.conditions.__getitem__)
    texts = [f"{', '.join(tasks)} ({condition})" for condition, tasks in by_condition.items()]
    if texts:
        parts.append(f"Data and checkpoint selection by task: {'; '.join(texts)}.")
    return " ".join([*parts, *_describe_reading(board)])


def _describe_reading(board: Board) -> list[str]:
    """Say how the models of a board read the images of each task, the most frequent way first."""
    sentences: list[str] = []
    for task in IMAGES:
        axes = {
            row: cells[task].runs[0].settings.get("model.axes", "flat")
            for row, cells in board.rows.items()
            if task in cells
        }
        ways = sorted(group_by(axes, axes.__getitem__).items(), key=lambda way: -len(way[1]))
        readers = [_READINGS[way] for way, _ in ways[:1]]
        readers += [f"{_READINGS[way]} by {', '.join(rows)}" for way, rows in ways[1:]]
        if readers:
            sentences.append(f"Images of {task} are read {', but '.join(readers)}.")
    return sentences


def measures_table(board: Board, *, has_costs: bool = True) -> Table:
    """Tabulate what a board of one task is measured by, with baselines and bounds beneath.

    With costs it has further measures, and what the runs took.
    """
    (task,), results = board.tasks, [run.result for run in board.records]
    measures = [*board.measures, *(results[0].more_measures if has_costs else ())]
    beneath = turn({measure.name: measure.rows_beneath(results) for measure in measures})
    rows: dict[str, dict[str, Entry]] = {}
    for row, cells in board.rows.items():
        cell = cells[task]
        entries = {measure.name: cell.entry(measure) for measure in measures}
        for measure in measures[1:]:  # the number of seeds is said once
            entry = entries[measure.name]
            text = measure.text(entry.value, entry.deviation)
            entries[measure.name] = dataclasses.replace(entry, text=text, anchors=())
        rows[row] = entries | _costs(cell)
    columns = [Column(m.name, (), m.digits, m.lowest_is_best) for m in measures]
    costs = ("parameters", "steps", "minutes") if has_costs else ()
    columns += [Column(name, lowest_is_best=True) for name in costs]
    columns = fill_columns(columns, rows, beneath)
    remarks = [OVER_N_SEEDS, results[0].remark] if has_costs else [Notes(columns[1:]).seeds]
    remarks += [RANKS] if any(column.marks for column in columns) else []
    caption = " ".join(["Results on the test set.", *remarks, conditions_of(board)])
    return Table(f"results-{board.slug}", board.name, caption, columns, len(beneath))


def _costs(cell: Cell) -> dict[str, Entry]:
    """Say what the runs of a row took, in the mean over seeds."""
    steps = statistics.mean(run.steps for run in cell.runs)
    seconds = [run.train_seconds for run in cell.runs if run.train_seconds is not None]
    minutes = statistics.mean(seconds) / 60 if seconds else None
    params = cell.runs[-1].params
    return {
        "parameters": Entry(f"{params:,}", params),
        "steps": Entry(f"{steps:,.0f}", steps),
        "minutes": number_entry(minutes, 1),
    }


def published_table(rows: Sequence[PublishedRow]) -> Table:
    """Tabulate published results, their averages recomputed."""
    columns = [text_column("method", [row.method for row in rows])]
    for task in BENCHMARK:
        entries = [Entry(r.printed[task] or None, r.values[task]) for r in rows]
        columns.append(Column(task, entries))
    for name, tasks in AVERAGES.items():
        means = [mean_over(tasks, row.values) for row in rows]
        columns.append(Column(name, [number_entry(mean) for mean in means]))
    links = {key: source["url"] for key, source in read_sources().items()}
    sources = [Entry(row.source, link=links.get(row.source, "")) for row in rows]
    columns.append(Column("source", sources))
    columns.append(text_column("note", [row.note or None for row in rows]))
    caption = f"{_PRINTED} The averages are computed from the rows that have all of their tasks."
    return Table("published", "Published results", caption, columns, beneath=len(rows))
