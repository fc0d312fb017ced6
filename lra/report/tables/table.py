"""A table: entries of columns, lines that charts draw through them, and its form in Markdown."""

from __future__ import annotations

import dataclasses
import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lra.report.scores import Entry, half_interval
from lra.runtime.console import wrap_command
from lra.runtime.tables import MISSING, markdown_table, rounded
from lra.statistics import BEST, TIED, mark_best

_MARKDOWN = {BEST: "**{}**", TIED: "<u>{}</u>"}
_ACTIVE = re.compile(r"[<|]|[*\\]|!(?=\[)|\](?=[(\[:])")
"""Characters that begin HTML, end a cell, or make a link, an image or bold text. Backquotes are not
among them: the report's own texts show commands in them."""

FACTS = ("table", "row", "column", "value", "deviation", "seeds", "remarks")
"""Columns of the file of a table's numbers."""


Rows = Mapping[str, Mapping[str, Entry]]
"""What a table says, by row and column."""
Numbers = Mapping[str, Mapping[str, float]]
"""Numbers by row and column."""


@dataclass(frozen=True)
class Column:
    """A column of a table: an entry for each row, and how they are written and ranked."""

    name: str
    entries: Sequence[Entry] = ()
    digits: int = 2
    """Decimals that numbers are written with."""
    lowest_is_best: bool = False
    half_interval: float | None = None
    """Half of the 95 % interval of a number; None: by the test examples of the entries, if any."""

    @property
    def texts(self) -> list[str]:
        """The text of each entry."""
        return [MISSING if entry.text is None else entry.text for entry in self.entries]

    @property
    def is_empty(self) -> bool:
        """Whether no entry says anything."""
        return all(entry.text is None for entry in self.entries)

    @property
    def margin(self) -> float | None:
        """Largest difference of two numbers that chance can explain; None: not known."""
        half = self.half_interval or half_interval(self.entries)
        return None if half is None else math.sqrt(2) * half

    @property
    def marks(self) -> dict[int, str]:
        """Marks, BEST or TIED, by row."""
        values = [entry.value if entry.is_ranked else None for entry in self.entries]
        return mark_best(values, self.margin)


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

    def with_rows(self, chosen: Sequence[int]) -> Table:
        """Return the table of some rows, the last of which are those of no mixer."""
        columns = [
            dataclasses.replace(c, entries=[c.entries[i] for i in chosen]) for c in self.columns
        ]
        below = sum(i >= len(self.methods) for i in chosen)
        return dataclasses.replace(self, columns=columns, beneath=below)

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
            lines = [f"# {name}\n{_wrap(line)}" for name, line in self.commands.items()]
            parts.append("\n".join(["```", *lines, "```"]))
        return "\n\n".join(parts) + "\n"


def escape(text: str) -> str:
    """Write text so that a reader of Markdown sees it as it stands."""
    return _ACTIVE.sub(lambda match: "&lt;" if match[0] == "<" else f"\\{match[0]}", text)


def _wrap(command: str) -> str:
    return "\n".join(wrap_command("", shlex.split(command), 100)).lstrip()


def text_column(name: str, texts: Iterable[str | None]) -> Column:
    """Make a column of texts."""
    return Column(name, [Entry(text) for text in texts])


def number_entry(value: float | None, digits: int = 2, *, is_ranked: bool = False) -> Entry:
    """Make an entry of a number alone."""
    text = None if value is None else rounded(value, digits)
    return Entry(text, value, is_ranked=is_ranked)


def fill_columns(
    columns: Sequence[Column], rows: Rows, beneath: Numbers | None = None
) -> list[Column]:
    """Fill columns with the entries of rows, and then the numbers of rows beneath, which have no
    rank; a column of names stands before them.
    """
    own = [any(entry.is_own for entry in row.values()) for row in rows.values()]
    names = [Entry(name, is_own=is_own) for name, is_own in zip(rows, own, strict=True)]
    beneath = beneath or {}
    filled = [Column("mixer", [*names, *map(Entry, beneath)])]
    for column in columns:
        entries = [row.get(column.name, Entry()) for row in rows.values()]
        below = [number_entry(row.get(column.name), column.digits) for row in beneath.values()]
        filled.append(dataclasses.replace(column, entries=[*entries, *below]))
    return filled


def turn(columns: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Turn numbers by column and row into numbers by row and column."""
    rows: dict[str, dict[str, float]] = {}
    for name, numbers in columns.items():
        for row, number in numbers.items():
            rows.setdefault(row, {})[name] = number
    return rows
