"""The sheets of the page: a table each, with the charts of its numbers.

A new sheet takes a function that makes it and a line in VIEWS. A new chart takes a function that
makes it and a line in the charts of a sheet.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from lra.record.run import RunRecord
from lra.report.boards.averages import AVERAGES
from lra.report.boards.board import Board
from lra.report.boards.cells import Cell
from lra.report.boards.evaluations import EvaluationBoard, evaluation_boards
from lra.report.boards.grids import choose_from_grids
from lra.report.boards.position_bits import by_position, windows_of
from lra.report.boards.probes import Probe
from lra.report.boards.slugs import run_anchor
from lra.report.boards.speeds import SpeedBoard, Workload
from lra.report.data import ReportData
from lra.report.page.points import Field, Point, of_probe, of_results
from lra.report.tables.accuracy import accuracy_columns, conditions_of
from lra.report.tables.benchmarks import against_reference
from lra.report.tables.leaderboard import with_margin
from lra.report.tables.next_tokens import position_table
from lra.report.tables.out_of_distribution import evaluation_tables
from lra.report.tables.position_bits import position_tables
from lra.report.tables.probes import probe_tables
from lra.report.tables.published import perplexity_table, published_table
from lra.report.tables.speed import memory_table, speed_table
from lra.report.tables.table import Column, Entry, Table, number_entry, text_column
from tasks.base import BENCHMARK

FEWEST_STEPS = 200
"""Runs whose flags ask for fewer optimizer steps are trials."""
TRIALS, OWN_TASKS = f"trials of fewer than {FEWEST_STEPS} steps", "other tasks than the benchmark's"
_LENGTHS = {"train.steps", "train.epochs", "train.minutes"}
"""Settings that say how long training takes."""
_JUDGED = (
    "Bold: the best by more than chance can explain (95 %). Underlined: the best, and all that "
    "cannot be told apart from it."
)


@dataclass(frozen=True)
class Group:
    """Columns of a table that a line of a chart joins, with their places on the x axis."""

    places: Mapping[str, float | str]
    x: str = "length, positions"
    y: str = ""
    is_logarithmic: bool = False


@dataclass(frozen=True)
class Chart:
    """A chart of a sheet; points that it does not have follow from the table or its runs."""

    kind: str
    """A name in `lra.report.page.charts.CHARTS`."""
    title: str
    panels: Sequence[str]
    """What the chart can show, one at a time: columns of the table, or groups of them."""
    fields: Sequence[Field] = ()
    """What its axes can show."""
    axes: Mapping[str, str] = field(default_factory=dict)
    """The field of each axis at first."""
    points: Sequence[Point] = ()
    groups: Mapping[str, Group] = field(default_factory=dict)


@dataclass(frozen=True)
class Sheet:
    """A table with its charts, of results that compare with each other."""

    table: Table
    rows: Sequence[str] = ()
    """The rows that are a mixer's; others stand beneath them, such as trivial baselines."""
    charts: Sequence[Chart] = ()
    sort: str = ""
    """Column that the rows are sorted by at first; empty: the one with most numbers."""
    newest: tuple[bool, float] | None = None
    """Of the user's own runs, the newest finished one or, without any, the newest: whether it is
    finished and no trial, and its time. The page opens with the newest of all sheets."""


@dataclass(frozen=True)
class View:
    """One question, with the sheets that answer it."""

    slug: str
    title: str
    question: str
    make: Callable[[ReportData], Iterator[Sheet]]


def split_board(board: Board) -> list[Board]:
    """Divide a board into the benchmark's tasks, other tasks, and trials of few steps."""
    parts: dict[str, dict[str, dict[str, Cell[RunRecord]]]] = {}
    for row, cells in board.rows.items():
        for task, cell in cells.items():
            kind = "" if task in BENCHMARK or board.of_positions else OWN_TASKS
            kind = TRIALS if all(map(_is_trial, cell.runs)) else kind
            parts.setdefault(kind, {}).setdefault(row, {})[task] = cell
    found: list[Board] = []
    for kind, rows in sorted(parts.items()):
        tasks = {task for cells in rows.values() for task in cells}
        reason = ", ".join(filter(None, [board.reason, kind]))
        conditions = {task: text for task, text in board.conditions.items() if task in tasks}
        found.append(dataclasses.replace(board, rows=rows, conditions=conditions, reason=reason))
    return found


def _is_trial(run: RunRecord) -> bool:
    return bool(_LENGTHS & {*run.changed}) and run.total_steps < FEWEST_STEPS


def result_sheets(data: ReportData) -> Iterator[Sheet]:
    """Tabulate the accuracies, or bits, of each board, the leaderboard first."""
    every = sorted(data.boards, key=lambda board: board is not data.leading_board)
    for board in (part for whole in every for part in split_board(whole)):
        shown = choose_from_grids(board)
        table = _tabulate_results(data, shown)
        yield _result_sheet(data, shown, table)
    for board in (part for whole in data.position_boards for part in split_board(whole)):
        shown = choose_from_grids(board)
        yield _result_sheet(data, shown, position_table(shown, shown.slug))


def _tabulate_results(data: ReportData, board: Board) -> Table:
    baselines = {f"trivial baseline: {n}": found for n, found in board.trivial_baselines().items()}
    names, *columns = accuracy_columns(board, baselines, shows_spread=False)
    columns = [with_margin(board, column) for column in columns]
    below = [Entry()] * len(baselines)
    speeds = data.speeds_at_preset(board)
    for name, (describe, digits) in COSTS.items():
        entries = [number_entry(describe(cells), digits) for cells in board.rows.values()]
        columns.append(Column(name, [*entries, *below], digits, lowest_is_best=True))
    if speeds.by_mixer:
        known = [speeds.by_mixer.get(row) for row in board.rows]
        entries = [number_entry(one.relative if one else None) for one in known]
        columns.append(Column(f"speed, {speeds.relative_to} = 1", [*entries, *below]))
    caption = f"Test accuracy in percent. {_JUDGED} {conditions_of(board)}"
    return Table(board.slug, board.name, caption, [names, *columns]).without_empty_columns()


def _most_parameters(cells: Mapping[str, Cell[RunRecord]]) -> float | None:
    return max((run.params / 1000 for cell in cells.values() for run in cell.runs), default=None)


COSTS: Mapping[str, tuple[Callable[[Mapping[str, Cell[RunRecord]]], float | None], int]] = {
    "parameters, k": (_most_parameters, 0),
}
"""Columns of what the models of a row cost, with their decimals: a new column is a line here."""


def _result_sheet(data: ReportData, board: Board, table: Table) -> Sheet:
    results = data.results
    own = {
        (run.status == "done" and not _is_trial(run), results.time(run)): run.task
        for run in board.records
        if results.is_own(run)
    }
    newest = max(own, default=None)
    tasks = [] if newest is None or board.of_positions else [own[newest]]
    columns = [*tasks, *AVERAGES, *table.headings[1:]]
    sort = next(name for name in columns if name in table.headings)
    return Sheet(table, [*board.rows], [_bubbles(data, board), _curves(board)], sort, newest)


def _bubbles(data: ReportData, board: Board) -> Chart:
    points, fields, axes = of_results(data, board)
    panels = dict.fromkeys(str(point["panel"]) for point in points)
    return Chart("bubbles", "What accuracy costs", [*panels], fields, axes, points)


def _curves(board: Board) -> Chart:
    score = "validation loss, nats" if board.of_positions else "validation accuracy, %"
    fields = [
        Field("step", "optimizer steps"),
        Field("minutes", "minutes of training and validation"),
        Field("loss" if board.of_positions else "val", score),
        Field("train", "accuracy on training examples, %"),
    ]
    axes = {"x": "step", "y": fields[2].name}
    return Chart("curves", "Learning curves", board.tasks, fields, axes)


def length_sheets(data: ReportData) -> Iterator[Sheet]:
    """Tabulate results on longer or harder data than that of the training."""
    for board in [*data.boards, *data.position_boards]:
        for evaluated in evaluation_boards(data.results, board):
            shown = dataclasses.replace(board, conditions={evaluated.task: ""})
            for table, measure in zip(
                evaluation_tables(data.results, shown, board.slug), board.measures, strict=True
            ):
                groups = {
                    what: dataclasses.replace(group, y=measure.name)
                    for what, group in _groups_of(evaluated).items()
                }
                yield Sheet(table, [*evaluated.rows], _line_charts(measure.name, groups))


def _groups_of(evaluated: EvaluationBoard) -> dict[str, Group]:
    """Group the data of a table by the option that its columns differ in."""
    places: dict[str, dict[str, float | str]] = {}
    for column in evaluated.columns:
        names = ", ".join(name.partition(".")[2] for name in column.changes)
        values = ", ".join(str(value) for value in column.changes.values())
        what = names if column.length is None else ", ".join(filter(None, ["length", names]))
        place = values if column.length is None else float(column.length)
        places.setdefault(what, {})[column.label] = place
    return {
        what: Group(found, "length, positions" if what.startswith("length") else what)
        for what, found in places.items()
        if len(found) > 1
    }


def _line_charts(title: str, groups: Mapping[str, Group]) -> list[Chart]:
    """Draw groups over numbers in one chart, and those over names in another."""
    kinds: dict[str, dict[str, Group]] = {}
    for name, group in groups.items():
        kind = "steps" if any(isinstance(x, str) for x in group.places.values()) else "lines"
        kinds.setdefault(kind, {})[name] = group
    return [Chart(kind, title, [*found], groups=found) for kind, found in kinds.items()]


def position_sheets(data: ReportData) -> Iterator[Sheet]:
    """Tabulate bits by position in a window."""
    for board in data.position_boards:
        windows = windows_of(board, evaluation_boards(data.results, board))
        for one, table in zip(windows, position_tables(board, windows, board.slug), strict=False):
            places = [
                float(last + 1) for _, last in sorted(by_position(next(iter(one.results.values()))))
            ]
            group = Group(
                dict(zip(table.headings[1:], places, strict=False)), "position", "bits per token"
            )
            yield Sheet(table, [*board.rows], _line_charts("Bits by position", {"position": group}))


def probe_sheets(data: ReportData) -> Iterator[Sheet]:
    """Tabulate the probes."""
    for probe in data.probes:
        for table in probe_tables(data.results, probe):
            is_accuracy = table.slug.startswith("accuracy")
            charts = [_probe_bubbles(probe)] if is_accuracy else []
            shown = _with_successes(probe, table) if is_accuracy else table
            yield Sheet(shown, probe.rows, [*charts, _dots(table)])


def _with_successes(probe: Probe, table: Table) -> Table:
    """Add how many runs succeed to the remarks on each number."""
    columns = [table.columns[0]]
    for variant, column in zip(probe.variants, table.columns[1:], strict=True):
        entries = [
            entry
            if row not in variant.attempts or entry.value is None
            else dataclasses.replace(
                entry, remarks=[*entry.remarks, f"{variant.successes(row)} succeed"]
            )
            for row, entry in zip(table.columns[0].texts, column.entries, strict=True)
        ]
        columns.append(dataclasses.replace(column, entries=entries))
    return dataclasses.replace(table, columns=columns)


def _probe_bubbles(probe: Probe) -> Chart:
    points, fields, axes = of_probe(probe)
    panels = [variant.name or "accuracy" for variant in probe.variants]
    return Chart("bubbles", "Accuracy over the size of models", panels, fields, axes, points)


def _dots(table: Table) -> Chart:
    return Chart("dots", "One column", table.headings[1:])


def speed_sheets(data: ReportData) -> Iterator[Sheet]:
    """Tabulate speed and memory of training runs and of measurements."""
    for board in _merge([*data.bench_boards, *data.speed_boards]):
        speed, memory = (
            make(board, data.relative_to, board.slug) for make in (speed_table, memory_table)
        )
        columns = [
            dataclasses.replace(column, name=f"{column.name}: MiB", lowest_is_best=True)
            for column in memory.columns[1:]
        ]
        table = dataclasses.replace(
            speed,
            title=f"{board.title}, {board.device}: {_name_rows([*board.rows])}",
            columns=[*speed.columns, *columns],
        ).without_empty_columns()
        yield Sheet(table, [*board.rows], _speed_charts(board, table))
    if (table := against_reference(data.results.bench, data.names)) is not None:
        yield Sheet(table)


def _name_rows(rows: Sequence[str]) -> str:
    few = 3
    return ", ".join(rows) if len(rows) <= few else f"{len(rows)} mixers"


def _merge(boards: Sequence[SpeedBoard]) -> list[SpeedBoard]:
    """Join boards that differ in nothing but the task; none has a workload of another."""
    merged: list[SpeedBoard] = []
    for board in boards:
        tasks = {workload.task for workload in board.workloads}
        title = ", ".join(part for part in board.title.split(", ") if part not in tasks)
        for place, one in enumerate(merged):
            same = (one.device, one.title, one.note, one.unit) == (
                board.device,
                title,
                board.note,
                board.unit,
            )
            if (
                same
                and one.rows.keys() == board.rows.keys()
                and not {*one.workloads} & {*board.workloads}
            ):
                rows = {row: {**one.rows[row], **board.rows[row]} for row in one.rows}
                merged[place] = dataclasses.replace(one, rows=rows)
                break
        else:
            merged.append(dataclasses.replace(board, title=title))
    return merged


def _speed_charts(board: SpeedBoard, table: Table) -> list[Chart]:
    """Draw speed and memory over length where there are several lengths, else by row."""
    same: dict[str, list[Workload]] = {}
    for workload in board.workloads:
        name = ", ".join([f"{workload.task}, batch {workload.batch_size}", *workload.differences])
        same.setdefault(name, []).append(workload)
    groups: dict[str, Group] = {}
    for end, what, unit in (("", "speed", board.unit), (": MiB", "memory", "peak memory, MiB")):
        for name, workloads in same.items():
            places = {f"{w}{end}": float(w.length) for w in workloads}
            places = {column: x for column, x in places.items() if column in table.headings}
            if len(places) > 1:
                groups[f"{name}: {what}"] = Group(places, y=unit, is_logarithmic=True)
    return [*_line_charts("Over length", groups), _dots(table)]


def published_sheets(data: ReportData) -> Iterator[Sheet]:
    """Tabulate what papers print, apart from what was measured here."""
    if data.published:
        yield Sheet(published_table(data.published))
    tasks = {task for board in data.position_boards for task in board.tasks}
    table = None if data.options.published is not None else perplexity_table(tasks)
    if table is not None:
        yield Sheet(table)


def run_sheets(data: ReportData) -> Iterator[Sheet]:
    """List all runs, one's own and the newest first."""
    results = data.results
    runs = sorted(
        results.records,
        key=lambda run: (
            not results.is_own(run),
            run.task,
            run.preset,
            data.names.of(run),
            run.seed,
        ),
    )
    own = [run for run in runs if results.is_own(run)]
    own.sort(key=results.time, reverse=True)
    runs = [*own, *runs[len(own) :]]
    names = [
        Entry(data.names.of(run), is_own=results.is_own(run), link=run_anchor(run)) for run in runs
    ]
    texts = {
        "task": [run.task for run in runs],
        "preset": [run.preset for run in runs],
        "protocol": [run.protocol for run in runs],
        "seed": [str(run.seed) for run in runs],
        "status": [run.status for run in runs],
        "result": [run.test_text or None for run in runs],
        "steps": [f"{run.steps:,} of {run.total_steps:,}" for run in runs],
        "device": [run.device for run in runs],
    }
    columns = [text_column(name, found) for name, found in texts.items()]
    yield Sheet(
        Table(
            "runs",
            "All runs",
            "Select a name to see settings, command and learning curve.",
            [Column("run", names), *columns],
        ),
        [data.names.of(run) for run in runs],
    )


VIEWS = (
    View("results", "Results", "Which mixer is best, and is its lead real?", result_sheets),
    View("length", "Longer data", "What do models score on longer or harder data?", length_sheets),
    View("positions", "Positions", "Where in a window do models need most bits?", position_sheets),
    View("probes", "Probes", "Which abilities does a mixer have?", probe_sheets),
    View("speed", "Speed and memory", "How do time and memory grow with length?", speed_sheets),
    View("published", "Published", "What do papers report?", published_sheets),
    View("runs", "Runs", "Which runs are there?", run_sheets),
)  # fmt: skip
"""The views of the page, in their order."""
