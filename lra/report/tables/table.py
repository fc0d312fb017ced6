"""A table, and how it is written in Markdown."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lra.report.boards.ranking import BEST, SECOND, ranks, ranks_beyond
from lra.report.tables.markdown import escape
from lra.runtime.console import MISSING, markdown_table

_MARKDOWN = {BEST: "**{}**", SECOND: "<u>{}</u>"}


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
    remarks: Sequence[str] = ()
    """What holds for this number besides, such as "2 diverged"."""
    unfinished: Sequence[str] = ()
    """Runs of the user's own that have no result, in whose place shipped ones are counted."""
    seeds: int = 0
    """How many seeds the number is a mean of; 0 where it is no mean over seeds."""
    link: str = ""
    """Anchor, on the page, of a run that the number is made from."""
    other_links: Sequence[str] = ()
    """Anchors of the other runs that it is made from: those of other seeds."""
    is_own: bool = False
    """Whether the number is made from any run of the user's own; in the first column, whether any
    number of the row is."""


@dataclass(frozen=True)
class Column:
    """A column of a table: an entry for each row, and how they are written and ranked."""

    name: str
    entries: Sequence[Entry]
    digits: int = 2
    """Decimals that numbers are written and compared with."""
    lowest_is_best: bool = False
    margin: float | None = None
    """Largest difference that means nothing; None: every difference counts. See `ranks_beyond`."""

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
        if self.margin is not None:
            return ranks_beyond(values, self.margin)
        return ranks(values, self.digits, lowest_is_best=self.lowest_is_best)


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


def text_columns(names: Sequence[str], rows: Sequence[Sequence[str | None]]) -> list[Column]:
    """Make columns of texts that are given row by row."""
    return [text_column(name, [row[j] for row in rows]) for j, name in enumerate(names)]


def number_entry(value: float | None, digits: int = 2, *, is_ranked: bool = False) -> Entry:
    """Make an entry of a number alone."""
    text = None if value is None else f"{value:.{digits}f}"
    return Entry(text, value, is_ranked=is_ranked)


@dataclass(frozen=True)
class Table:
    """A table; the first column names the rows."""

    slug: str
    """The table's name in files and links."""
    title: str
    caption: str
    columns: Sequence[Column]
    facts: Sequence[Mapping[str, object]] = ()
    """The unrounded numbers, for each a line of the CSV file by column."""
    notes: Sequence[str] = ()
    """Sentences on the numbers, which README files show below the table."""
    commands: Mapping[str, str] = field(default_factory=dict)
    """Command lines by what they are for, which README files show below the notes."""

    @property
    def headings(self) -> list[str]:
        """The names of the columns."""
        return [column.name for column in self.columns]

    @property
    def rows(self) -> list[list[str]]:
        """The text of each entry, row by row."""
        return [list(row) for row in zip(*(c.texts for c in self.columns), strict=True)]

    @property
    def marks(self) -> dict[tuple[int, int], str]:
        """Marks, BEST or SECOND, by (row, column)."""
        return {(i, j): mark for j, c in enumerate(self.columns) for i, mark in c.marks.items()}

    @property
    def own_rows(self) -> list[int]:
        """The rows that have results of the user's own, by number."""
        return [i for i, entry in enumerate(self.columns[0].entries) if entry.is_own]

    def with_columns(self, names: Sequence[str]) -> Table:
        """Return the table of these columns, in this order."""
        by_name = {column.name: column for column in self.columns}
        return dataclasses.replace(self, columns=[by_name[name] for name in names])

    def without_empty_columns(self) -> Table:
        """Return the table of the columns that say anything."""
        return dataclasses.replace(self, columns=[c for c in self.columns if not c.is_empty])

    def markdown(self) -> str:
        """Write the table in Markdown, without title and caption."""
        rows = [list(map(escape, row)) for row in self.rows]
        for (i, j), mark in self.marks.items():
            rows[i][j] = _MARKDOWN[mark].format(rows[i][j])
        return markdown_table(list(map(escape, self.headings)), rows)
