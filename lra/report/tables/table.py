"""A table: entries of columns, lines that charts draw through them, and its form in Markdown."""

from __future__ import annotations

import dataclasses
import re
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lra.record.evaluation import EvaluationRecord
from lra.record.run import RunRecord
from lra.report.names import run_anchor
from lra.report.scores import BEST, SECOND, Cell, Interval, Measure, rank_numbers
from lra.runtime.tables import MISSING, markdown_table

_MARKDOWN = {BEST: "**{}**", SECOND: "<u>{}</u>"}
_ACTIVE = re.compile(r"[<|]|[*\\]|!(?=\[)|\](?=[(\[:])")
"""Characters that begin HTML, end a cell, or make a link, an image or bold text. Backquotes are not
among them: the report's own texts show commands in them."""

FACTS = ("table", "row", "column", "value", "deviation", "seeds", "remarks")
"""Columns of the file of a table's numbers."""


@dataclass(frozen=True)
class Entry:
    """What a column says of one row."""

    text: str | None = None
    """None where there is nothing to say; tables then show a dash."""
    value: float | None = None
    """The unrounded number; None where there is none."""
    is_ranked: bool = False
    """Whether the number competes for the best of its column."""
    deviation: float | None = None
    """Standard deviation of the number over seeds; None for fewer than two seeds."""
    interval: Interval | None = None
    remarks: Sequence[str] = ()
    """What else is known of this number, such as "2 diverged"; also the runs of the user's own that
    have no result, in whose place shipped ones are counted."""
    seeds: int = 0
    """How many seeds the number is a mean of; 0 where it is no mean over seeds."""
    anchors: Sequence[str] = ()
    """Names, in the page, of the runs or measurements that it is made from."""
    is_own: bool = False
    """Whether it is made from any run of the user's own; in the first column, whether any number
    of the row is."""


@dataclass(frozen=True)
class Column:
    """A column of a table: an entry for each row, and how they are written and ranked."""

    name: str
    entries: Sequence[Entry]
    digits: int = 2
    """Decimals that numbers are written and compared with."""
    lowest_is_best: bool = False
    margin: float | None = None
    """Largest difference that means nothing; None: every difference counts."""

    @property
    def texts(self) -> list[str]:
        """The text of each entry."""
        return [MISSING if entry.text is None else entry.text for entry in self.entries]

    @property
    def is_empty(self) -> bool:
        """Whether no entry says anything."""
        return all(entry.text is None for entry in self.entries)

    @property
    def marks(self) -> dict[int, str]:
        """Marks, BEST or SECOND, by row."""
        values = [entry.value if entry.is_ranked else None for entry in self.entries]
        return rank_numbers(
            values, self.digits, lowest_is_best=self.lowest_is_best, margin=self.margin
        )


@dataclass(frozen=True)
class Line:
    """Columns that a chart joins by a line for each row."""

    panel: str
    """What distinguishes the columns from those of the table's other lines."""
    places: Mapping[str, float]
    """The place of each column on the x axis."""
    y: str
    """What the numbers are."""
    x: str = "length, positions"
    is_logarithmic: bool = False
    """Whether the y axis is."""


@dataclass(frozen=True)
class Table:
    """A table; the first column names the rows."""

    slug: str
    """The table's name in files and links."""
    title: str
    caption: str
    columns: Sequence[Column]
    beneath: int = 0
    """How many rows, the last ones, are no mixer's, such as trivial baselines."""
    lines: Sequence[Line] = ()
    """What charts draw of it."""
    notes: Sequence[str] = ()
    """Sentences on the numbers, which README files show below the table."""
    commands: Mapping[str, str] = field(default_factory=dict)
    """Command lines by what they are for, which README files show below the notes."""
    most_rows: int | None = None
    """How many rows of mixers are written, the first ones; None: all."""

    @property
    def headings(self) -> list[str]:
        """The names of the columns."""
        return [column.name for column in self.columns]

    @property
    def rows(self) -> list[list[str]]:
        """The text of each entry, row by row."""
        return [list(row) for row in zip(*(c.texts for c in self.columns), strict=True)]

    @property
    def methods(self) -> list[str]:
        """The names of the rows that are a mixer's."""
        names = self.columns[0].texts
        return names[: len(names) - self.beneath]

    @property
    def written_rows(self) -> list[int]:
        """The numbers of the rows that are written."""
        count = len(self.methods)
        return [*[*range(count)][: self.most_rows], *range(count, count + self.beneath)]

    @property
    def facts(self) -> list[dict[str, object]]:
        """The unrounded numbers, and the texts that stand in their place, one a line."""
        names = self.columns[0].texts
        return [
            {
                "table": self.title,
                "row": names[i],
                "column": column.name,
                "value": entry.text if entry.value is None else entry.value,
                "deviation": entry.deviation,
                "seeds": entry.seeds or None,
                "remarks": "; ".join(entry.remarks) or None,
            }
            for column in self.columns[1:]
            for i in self.written_rows
            if (entry := column.entries[i]).text is not None
        ]

    def without_empty_columns(self) -> Table:
        """Return the table of the columns that say anything."""
        return dataclasses.replace(self, columns=[c for c in self.columns if not c.is_empty])

    def markdown(self) -> str:
        """Write the table in Markdown, without title and caption."""
        rows = [list(map(escape, row)) for row in self.rows]
        for j, column in enumerate(self.columns):
            for i, mark in column.marks.items():
                rows[i][j] = _MARKDOWN[mark].format(rows[i][j])
        return markdown_table([*map(escape, self.headings)], [rows[i] for i in self.written_rows])

    def block(self) -> str:
        """Write the table in Markdown with its title, caption, notes and commands."""
        parts = [f"**{escape(self.title)}.** {escape(self.caption)}", self.markdown().rstrip("\n")]
        parts += ["\n".join(f"- {escape(note)}" for note in self.notes)] if self.notes else []
        if self.commands:
            lines = [f"# {name}\n{_continue(line)}" for name, line in self.commands.items()]
            parts.append("\n".join(["```", *lines, "```"]))
        return "\n\n".join(parts) + "\n"


def escape(text: str) -> str:
    """Write text so that a reader of Markdown sees it as it stands."""
    return _ACTIVE.sub(lambda match: "&lt;" if match[0] == "<" else f"\\{match[0]}", text)


def _continue(command: str) -> str:
    """Write a long command on several lines, which a shell reads as one."""
    words = command.replace(" --set ", " --set\0")
    lines = textwrap.wrap(
        words, 98, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
    return " \\\n".join(lines).replace("\0", " ")


def text_column(name: str, texts: Iterable[str | None]) -> Column:
    """Make a column of texts."""
    return Column(name, [Entry(text) for text in texts])


def name_column(name: str, names: Iterable[str], own: Collection[str] = ()) -> Column:
    """Make the first column of a table, which names its rows.

    Args:
        name: heading of the column.
        names: name of each row.
        own: the rows that have results of the user's own, rather than shipped ones alone.
    """
    return Column(name, [Entry(text, is_own=text in own) for text in names])


def number_entry(value: float | None, digits: int = 2, *, is_ranked: bool = False) -> Entry:
    """Make an entry of a number alone."""
    text = None if value is None else f"{value:.{digits}f}"
    return Entry(text, value, is_ranked=is_ranked)


def result_entry(
    cell: Cell[RunRecord] | Cell[EvaluationRecord] | None,
    measure: Measure,
    *,
    shows_spread: bool = True,
    is_ranked: bool = True,
) -> Entry:
    """Say what the runs of one row and column have scored.

    Args:
        cell: the runs; None, or a cell without runs, leaves the entry empty.
        measure: the number that is shown.
        shows_spread: whether the text has the standard deviation over seeds and their number.
        is_ranked: whether the number competes for the best of its column.
    """
    if cell is None or not cell.runs:
        return Entry()
    runs = [run for run in cell.runs if isinstance(run, RunRecord)]
    return Entry(
        cell.text(measure, shows_spread=shows_spread),
        cell.mean(measure),
        is_ranked=is_ranked and cell.value(measure) is not None,
        deviation=cell.deviation(measure),
        interval=cell.interval(measure),
        remarks=[*cell.remarks(measure), *cell.unfinished],
        seeds=len(cell.numbers(measure)),
        anchors=[run_anchor(run) for run in sorted(runs, key=lambda run: run.status != "done")],
        is_own=cell.has_own,
    )


def result_columns(
    rows: Mapping[str, Mapping[str, Cell]],
    names: Sequence[str],
    measure: Measure,
    beneath: Mapping[str, Mapping[str, float]],
    *,
    shows_spread: bool = True,
) -> list[Column]:
    """Make the columns of results that one measure has, and the first one, which names the rows.

    Args:
        rows: the cells of each row by column.
        names: the columns.
        measure: the number that is shown.
        beneath: numbers of further rows, which are not ranked, by row and column.
        shows_spread: whether texts have the standard deviation over seeds and their number.
    """
    own = {row for row, cells in rows.items() if any(cell.has_own for cell in cells.values())}
    columns = [name_column("mixer", [*rows, *beneath], own)]
    for name in names:
        entries = [
            result_entry(cells.get(name), measure, shows_spread=shows_spread)
            for cells in rows.values()
        ]
        entries += [number_entry(one.get(name), measure.digits) for one in beneath.values()]
        columns.append(Column(name, entries, measure.digits, measure.lowest_is_best))
    return columns
