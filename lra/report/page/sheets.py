"""The sheets of the page: a table each, with the charts of its numbers.

A new sheet takes a function that makes it and a line in VIEWS. A new chart takes a function that
makes it and a line in the charts of a sheet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from lra.record.changes import select_sections, write_changes
from lra.record.run import RunRecord
from lra.report.boards import Board, choose_from_grids
from lra.report.data import Data
from lra.report.names import run_anchor
from lra.report.points import Bubbles, Field, Point, bubbles_of_board, bubbles_of_probe
from lra.report.published import PublishedRow
from lra.report.scores import AVERAGES
from lra.report.tables.evaluations import evaluation_tables, length_tables
from lra.report.tables.probes import probe_tables, probes
from lra.report.tables.published import published_table
from lra.report.tables.results import (
    accuracy_columns,
    conditions_of,
    cost_columns,
    position_table,
    with_margin,
)
from lra.report.tables.speeds import against_reference, preset_speeds, speed_tables
from lra.report.tables.table import Column, Entry, Line, Table, number_entry, text_column

_JUDGED = (
    "Bold: the best by more than chance can explain (95 %). Underlined: the best, and all that "
    "cannot be told apart from it."
)


@dataclass(frozen=True)
class Chart:
    """A chart of a sheet; points that it does not have follow from the table or its runs."""

    kind: str
    """Name of a function in `lra.report.page.charts.CHARTS`."""
    title: str
    panels: Sequence[str]
    """What the chart can show, one at a time: columns of the table, or lines through them."""
    fields: Sequence[Field] = ()
    """What its axes can show."""
    axes: Mapping[str, str] = field(default_factory=dict)
    """The field of each axis at first."""
    points: Sequence[Point] = ()
    lines: Mapping[str, Line] = field(default_factory=dict)


@dataclass(frozen=True)
class Sheet:
    """A table with its charts, of results that compare with each other."""

    table: Table
    charts: Sequence[Chart] = ()
    sort: str = ""
    """Column that the rows are sorted by at first; empty: the one with most numbers."""
    newest: tuple[bool, float] | None = None
    """Of the user's own runs, the newest finished one or, without any, the newest: whether it is
    finished, and its time. The page opens with the newest of all sheets."""


def result_sheets(data: Data) -> Iterator[Sheet]:
    """Tabulate the accuracies, or bits, of each board, the leaderboard first."""
    every = sorted(data.boards, key=lambda board: board is not data.leading_board)
    for board in every:
        shown = choose_from_grids(board)
        table = position_table(shown) if board.of_positions else _accuracy_table(data, shown)
        own = {
            (run.status == "done", data.time(run)): run.task
            for run in shown.records
            if data.is_own(run)
        }
        newest = max(own, default=None)
        tasks = [] if newest is None or board.of_positions else [own[newest]]
        columns = [*tasks, *AVERAGES, *table.headings[1:]]
        sort = next(name for name in columns if name in table.headings)
        charts = [_bubbles("What accuracy costs", bubbles_of_board(data, shown)), _curves(shown)]
        yield Sheet(table, charts, sort, newest)


def _accuracy_table(data: Data, board: Board) -> Table:
    baselines = {f"trivial baseline: {n}": found for n, found in board.trivial_baselines().items()}
    names, *columns = accuracy_columns(board, baselines, shows_spread=False)
    columns = [with_margin(board, column) for column in columns]
    below = [Entry()] * len(baselines)
    speeds = preset_speeds(data.bench, board.preset, board.protocol, data.relative_to)
    columns += cost_columns(board.rows, len(below))
    if speeds.by_mixer:
        known = [speeds.by_mixer.get(row) for row in board.rows]
        entries = [number_entry(one.relative if one else None) for one in known]
        columns.append(Column(f"speed, {speeds.relative_to} = 1", [*entries, *below]))
    caption = f"Test accuracy in percent. {_JUDGED} {conditions_of(board)}"
    table = Table(board.slug, board.name, caption, [names, *columns], len(baselines))
    return table.without_empty_columns()


def _bubbles(title: str, found: Bubbles) -> Chart:
    return Chart("bubbles", title, found.panels, found.fields, found.axes, found.points)


def _curves(board: Board) -> Chart:
    score = "validation loss, nats" if board.of_positions else "validation accuracy, %"
    fields = [
        Field("step", "optimizer steps"),
        Field("minutes", "minutes of training and validation"),
        Field("loss" if board.of_positions else "val", score),
        Field("train", "accuracy on training examples, %"),
    ]
    columns = [board.measures[0].name] if board.of_positions else board.tasks
    return Chart("curves", "Learning curves", columns, fields, {"x": "step", "y": fields[2].name})


def line_charts(table: Table, title: str) -> list[Chart]:
    """Draw the lines of a table over numbers in one chart, and those over names in another."""
    kinds: dict[str, dict[str, Line]] = {}
    for name, line in table.lines.items():
        kind = "steps" if any(isinstance(x, str) for x in line.places.values()) else "lines"
        kinds.setdefault(kind, {})[name] = line
    return [Chart(kind, title, [*found], lines=found) for kind, found in kinds.items()]


def length_sheets(data: Data) -> Iterator[Sheet]:
    """Tabulate results on longer or harder data, and by the length of test examples."""
    for board in data.boards:
        tables = [*evaluation_tables(data, board), *length_tables(data, board)]
        yield from (Sheet(table, line_charts(table, "Over length")) for table in tables)


def probe_sheets(data: Data) -> Iterator[Sheet]:
    """Tabulate the probes."""
    for probe in probes(data):
        first, *tables = probe_tables(data, probe)
        sizes = _bubbles("Accuracy over the size of models", bubbles_of_probe(probe))
        yield Sheet(first, [sizes, _dots(first)])
        for variant in probe.variants:
            tables += length_tables(data, variant.board)
        for table in tables:
            yield Sheet(table, line_charts(table, "Over length") or [_dots(table)])


def _dots(table: Table) -> Chart:
    numeric = [c.name for c in table.columns if any(one.value is not None for one in c.entries)]
    return Chart("dots", "One column", numeric)


def speed_sheets(data: Data) -> Iterator[Sheet]:
    """Tabulate the measurements of speed and memory."""
    for table in speed_tables(data.bench, data.names, data.relative_to, data.is_own):
        yield Sheet(table, [*line_charts(table, "Over length"), _dots(table)])
    yield from map(Sheet, against_reference(data.bench, data.names))


def run_sheets(data: Data) -> Iterator[Sheet]:
    """List all runs, one's own and the newest first."""
    runs = sorted(data.records, key=lambda r: (r.task, r.preset, data.names.of(r), r.seed))
    own = sorted(filter(data.is_own, runs), key=data.time, reverse=True)
    runs = [*own, *(run for run in runs if not data.is_own(run))]
    names = [
        Entry(data.names.of(run), is_own=data.is_own(run), anchors=[run_anchor(run)])
        for run in runs
    ]
    texts = {
        "task": [_describe_task(run) for run in runs],
        "preset": [run.preset for run in runs],
        "protocol": [run.protocol for run in runs],
        "seed": [str(run.seed) for run in runs],
        "status": [run.status for run in runs],
        "result": [run.test_text or None for run in runs],
        "steps": [f"{run.steps:,} of {run.total_steps:,}" for run in runs],
        "device": [run.device for run in runs],
    }
    columns = [Column("run", names), *(text_column(name, found) for name, found in texts.items())]
    caption = "Select a name to see settings, command and learning curve."
    yield Sheet(Table("runs", "All runs", caption, columns))


def _describe_task(run: RunRecord) -> str:
    changes = write_changes(select_sections(run.changes, "task"))
    return ", ".join([run.task, *(text.removeprefix("task.") for text in changes)])


@dataclass(frozen=True)
class View:
    """One question, with the sheets that answer it."""

    slug: str
    title: str
    question: str
    make: Callable[[Data], Iterable[Sheet]]


def views(published: Sequence[PublishedRow]) -> list[View]:
    """List the views of the page, in their order.

    Args:
        published: what papers print, which is shown apart from what was measured here.
    """

    def published_sheets(data: Data) -> Iterator[Sheet]:
        if published:
            yield Sheet(published_table(published))

    return [
        View("results", "Results", "Which mixer is best, and is its lead real?", result_sheets),
        View("length", "Length", "How do results depend on the length of data?", length_sheets),
        View("probes", "Probes", "Which abilities does a mixer have?", probe_sheets),
        View("speed", "Speed and memory", "How fast are mixers, in how much memory?", speed_sheets),
        View("published", "Published", "What do papers report?", published_sheets),
        View("runs", "Runs", "Which runs are there?", run_sheets),
    ]
