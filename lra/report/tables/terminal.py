"""Tables as plain text that is no wider than the terminal, and the notes on their numbers."""

from __future__ import annotations

import statistics
import string
import textwrap
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from lra.report.tables.table import Column, Entry, Table
from lra.runtime.console import as_typed, printable, terminal_width, wrap_words
from lra.runtime.tables import MISSING, plain_matrix

OWN_MARK = ">"
LONGEST_TEXT = 20
"""Most letters of a cell without a number; a longer one becomes a note."""


def wrap(text: str, indent: str = "") -> str:
    """Break a paragraph into lines of the terminal's width; a path stays in one piece.

    Args:
        text: the paragraph.
        indent: start of every line but the first.
    """
    return "\n".join(wrap_words(as_typed(printable(text)), terminal_width(), indent=indent))


@dataclass(frozen=True)
class TerminalTable:
    """A table as plain text."""

    text: str
    legend: Sequence[str]
    """Sentences on the marks of rows, the seeds of the numbers, and the letters behind them."""


def fit_table(table: Table) -> TerminalTable:
    """Write a table as plain text of the terminal's width, in several blocks of lines if need be.

    Its first column names the rows, those with results of the user's own with a mark where others
    have none.
    """
    names, *columns = table.without_empty_columns().columns
    own = [entry.is_own for entry in names.entries]
    marks_own = any(own) and not all(own[: len(table.methods)])
    labels = [
        _wrap_name(text, OWN_MARK if marks_own and is_own else " ")
        for text, is_own in zip(names.texts, own, strict=True)
    ]
    usual = usual_seeds(counts := seed_counts(columns))
    symbols = {note: letters(number) for number, note in enumerate(list_notes(columns, usual))}
    cells = {column.name: _write_cells(column, symbols, usual) for column in columns}
    legend = [f"{OWN_MARK} marks rows with runs of your own."] if marks_own else []
    legend += [describe_seeds(usual, counts)] if counts else []
    if symbols:
        legend.append(f"{', '.join(f'{letter}: {note}' for note, letter in symbols.items())}.")
    lines = [
        {f"  {names.name}": line, **{name: "" if k else cells[name][i] for name in cells}}
        for i, label in enumerate(labels)
        for k, line in enumerate(label)
    ]
    return TerminalTable("\n".join(plain_matrix(lines, terminal_width())), legend)


def _wrap_name(name: str, mark: str) -> list[str]:
    """Write the name of a row, as several lines if it is longer than half of the terminal."""
    lines = textwrap.wrap(
        printable(name), terminal_width() // 2, initial_indent=f"{mark} ",
        subsequent_indent="    ", break_on_hyphens=False,
    )  # fmt: skip
    return lines or [mark]


def _write_cells(column: Column, symbols: dict[str, str], usual: int) -> list[str]:
    """Write the numbers of a column, with decimal points below each other."""
    digits = column.digits
    numbers = [
        f"{entry.value:.{digits}f}"
        if entry.value is not None and entry.seeds
        else short_text(entry) or MISSING
        for entry in column.entries
    ]
    room = max(map(len, numbers), default=0)
    texts: list[str] = []
    for number, entry in zip(numbers, column.entries, strict=True):
        deviation = "" if entry.deviation is None else f" ± {entry.deviation:.{digits}f}"
        marks = " ".join(symbols[note] for note in notes_on(entry, usual))
        aligned = number if number[:1].isalpha() else number.rjust(room)
        texts.append(f"{aligned}{deviation} {marks}".rstrip())
    return texts


def letters(number: int) -> str:
    """Name a note by its number, from 0: a to z, then aa to az, and so on."""
    high, low = divmod(number, 26)
    return (letters(high - 1) if high else "") + string.ascii_lowercase[low]


def count_seeds(seeds: int) -> str:
    """Write a number of seeds."""
    return "1 seed" if seeds == 1 else f"{seeds} seeds"


def seed_counts(columns: Iterable[Column]) -> list[int]:
    """List how many seeds the numbers of some columns are of, for those that are of any."""
    return [entry.seeds for column in columns for entry in column.entries if entry.seeds]


def usual_seeds(counts: Collection[int]) -> int:
    """Return the count of seeds that most numbers have, of equals the largest; 0 for no counts."""
    return statistics.mode(sorted(counts, reverse=True)) if counts else 0


def describe_seeds(usual: int, counts: Collection[int]) -> str:
    """Write a sentence on how many seeds numbers are of; those with another count have a note.

    Args:
        usual: the count that needs no note.
        counts: the counts of all numbers.
    """
    if max(counts, default=1) == 1:
        return "Each number is from one seed."
    if usual == 1:
        return "Numbers are from one seed or, where marked, means ± standard deviations over more."
    others = " where not marked" * (len(set(counts)) > 1)
    return f"Numbers are means ± standard deviations over {count_seeds(usual)}{others}."


def short_text(entry: Entry) -> str:
    """Return the text of an entry; that of one without a number only if it is no note."""
    is_note = entry.value is None and len(entry.text or "") > LONGEST_TEXT
    return "" if is_note else entry.text or ""


def notes_on(entry: Entry, usual: int) -> list[str]:
    """List the notes on an entry: its remarks, and its seeds where they are not the usual ones."""
    if entry.value is None:
        return [entry.text] if entry.text and not short_text(entry) else []
    seeds = [] if entry.seeds in (0, usual) else [count_seeds(entry.seeds)]
    return [*entry.remarks, *seeds] if entry.seeds else []


def list_notes(columns: Sequence[Column], usual: int) -> list[str]:
    """List the notes on all entries of some columns, row by row."""
    rows = zip(*(column.entries for column in columns), strict=True)
    return list(dict.fromkeys(n for row in rows for entry in row for n in notes_on(entry, usual)))
