"""The sheets of the page: a table each, with the charts of its numbers."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from lra.record.run import RunRecord
from lra.record.schema import select_sections, write_changes
from lra.report.boards import Board, choose_from_grids
from lra.report.charts import Chart, bubbles_of_board, curves_of_board, lines_of_table
from lra.report.data import Data
from lra.report.names import run_anchor
from lra.report.published import PublishedRow
from lra.report.repeated import repeated_results, repeated_table
from lra.report.scores import AVERAGES
from lra.report.tables.evaluations import distance_tables, evaluation_tables, length_tables
from lra.report.tables.need import need_table
from lra.report.tables.probes import ability_table, probe_table, probes
from lra.report.tables.results import accuracy_table, measures_table, published_table
from lra.report.tables.speeds import preset_speeds, speed_tables
from lra.report.tables.table import Column, Entry, Table, text_column


@dataclass(frozen=True)
class Sheet:
    """A table with its charts, of results that compare with each other."""

    table: Table
    charts: Sequence[Chart] = ()
    sort: str = ""
    """Column that the rows are sorted by at first; empty: the one with most numbers."""
    board: Board | None = None
    """The board of the table, of which the page compares every two rows."""


def result_sheets(data: Data) -> Iterator[Sheet]:
    """Tabulate the accuracies, or bits, of each board. The board of the newest run of the user's
    own comes first, sorted by the task of that run, and else the leaderboard.
    """

    def newest(board: Board) -> tuple[float, str]:
        own = [run for run in board.records if data.is_own(run) and run.status == "done"]
        return max(((data.time(run), run.task) for run in own), default=(0.0, ""))

    def order(board: Board) -> tuple[float, bool]:
        return -newest(board)[0], board is not data.leading_board

    for board in sorted(data.boards, key=order):
        shown = choose_from_grids(board)
        table = measures_table(shown) if not board.is_of_accuracy else _accuracy_table(data, shown)
        columns = [newest(board)[1], *AVERAGES, *table.headings[1:]]
        sort = next(name for name in columns if name in table.headings)
        yield Sheet(table, [bubbles_of_board(data, shown), curves_of_board(shown)], sort, shown)


def _accuracy_table(data: Data, board: Board) -> Table:
    speeds = preset_speeds(data, board)
    table = accuracy_table(board, speeds).without_empty_columns()
    return dataclasses.replace(table, title=board.name)


def probe_sheets(data: Data) -> Iterator[Sheet]:
    """Tabulate the abilities of all mixers, and then each probe."""
    overview = ability_table(data, found := probes(data))
    if len(overview.headings) > 1:
        yield Sheet(overview, sort=overview.headings[1])
    for probe in found:
        yield Sheet(probe_table(probe), [bubbles_of_board(data, probe), curves_of_board(probe)])
        yield from _draw_lines(length_tables(data, probe))


def _draw_lines(tables: Iterable[Table]) -> list[Sheet]:
    """Make a sheet of each table, with its lines as charts."""
    return [Sheet(table, lines_of_table(table)) for table in tables]


def run_sheets(data: Data) -> Iterator[Sheet]:
    """List all runs, one's own and the newest first."""
    runs = sorted(data.records, key=lambda r: (r.task, r.preset, data.names.of(r), r.seed))
    own = sorted(filter(data.is_own, runs), key=data.time, reverse=True)
    runs = [*own, *(run for run in runs if not data.is_own(run))]
    names = [
        Entry(data.names.of(run), is_own=data.is_own(run), anchors=[run_anchor(run)])
        for run in runs
    ]
    columns = [
        Column("run", names),
        text_column("task", map(_describe_task, runs)),
        *(
            text_column(name, [str(getattr(run, name)) for run in runs])
            for name in ("preset", "protocol", "seed", "status")
        ),
        text_column("result", [run.result.text or None for run in runs]),
        text_column("steps", [f"{run.steps:,} of {run.total_steps:,}" for run in runs]),
        text_column("device", [run.device for run in runs]),
    ]
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
    sheets: Sequence[Sheet]


def make_views(data: Data, published: Sequence[PublishedRow]) -> list[View]:
    """Make the views of the page, in their order; published results have one of their own."""
    of_lengths = (
        table
        for board in data.boards
        for table in (
            *evaluation_tables(data, board),
            *length_tables(data, board),
            *distance_tables(board),
        )
    )
    needed = need_table(data)
    speeds = speed_tables(data.bench, data.names, data.relative_to, data.is_own)
    of_papers = [Sheet(repeated_table(data))] if repeated_results(data) else []
    of_papers += [Sheet(published_table(published))] if published else []
    return [
        View("results", "Results", "Which mixer is best, and is its lead real?",
             [*result_sheets(data)]),
        View("length", "Length", "How do results depend on the length of data?",
             [*([Sheet(needed)] if needed.rows else []), *_draw_lines(of_lengths)]),
        View("probes", "Probes", "Which abilities does a mixer have?", [*probe_sheets(data)]),
        View("speed", "Speed and memory", "How fast are mixers, in how much memory?",
             _draw_lines(speeds)),
        View("published", "Published", "What do papers report, and what was repeated?", of_papers),
        View("runs", "Runs", "Which runs are there?", [*run_sheets(data)]),
    ]  # fmt: skip
