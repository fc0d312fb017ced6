"""Tables as plain text that is no wider than the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from lra.report.tables.notes import describe_seeds, letters, notes_on, seed_counts, usual_seeds
from lra.report.tables.table import Column, Entry, Table
from lra.runtime.console import MISSING, as_typed, printable
from lra.runtime.terminal import terminal_width, wrap_words

_GAP = 2
"""Spaces between columns."""
OWN_MARK = ">"
_LONGEST_TEXT = 20
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
    """Sentences on the seeds of the numbers, and on the letters behind them."""
    marks_own: bool
    """Whether rows with runs of the user's own are marked; where all rows have some, none is."""
    left_out: Sequence[str]
    """Columns for which the terminal is too narrow."""


def fit_table(table: Table, required: Collection[str]) -> TerminalTable:
    """Write a table as plain text of the terminal's width.

    Args:
        table: the table; its first column names the rows.
        required: columns that are shown in any case, in several blocks of lines if need be. Others
            fill the room that is left in the last block.
    """
    labels, marks_own = _labels(table)
    columns = {column.name: column for column in table.columns[1:] if not column.is_empty}
    counted = [column for name, column in columns.items() if name in required]
    usual = usual_seeds(seed_counts(counted) or seed_counts(columns.values()))
    room = terminal_width() - max(len(line) for lines in labels for line in lines)
    blocks = _divide(_cells(columns, usual)[0], required, room)
    shown = {name: columns[name] for block in blocks for name in block}
    cells, notes = _cells(shown, usual)
    counts = seed_counts(shown.values())
    legend = [describe_seeds(usual, counts)] if counts else []
    if notes:
        legend.append(f"{', '.join(f'{letter}: {note}' for note, letter in notes.items())}.")
    return TerminalTable(
        text="\n\n".join(_write(labels, [cells[name] for name in block]) for block in blocks),
        legend=legend,
        marks_own=marks_own,
        left_out=[name for name in columns if name not in shown],
    )


def _labels(table: Table) -> tuple[list[list[str]], bool]:
    """Write the heading and the names of rows, each as lines, and say whether any is marked."""
    first, own = table.columns[0], table.own_rows
    marks_own = 0 < len(own) < len(first.entries)
    marked = [False, *(marks_own and i in own for i in range(len(first.entries)))]
    lines = [
        textwrap.wrap(
            printable(text),
            terminal_width() // 2,
            initial_indent=f"{OWN_MARK} " if is_marked else "  ",
            subsequent_indent="    ",
        )
        for text, is_marked in zip([first.name, *first.texts], marked, strict=True)
    ]
    return lines, marks_own


def _cells(
    columns: Mapping[str, Column], usual: int
) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Write the cells of each column, the heading first, and return the notes with their letters.

    Args:
        columns: the columns by name.
        usual: the number of seeds that has no note.
    """
    rows = zip(*(column.entries for column in columns.values()), strict=True)
    found = dict.fromkeys(note for row in rows for entry in row for note in _notes(entry, usual))
    notes = {note: letters(k) for k, note in enumerate(found)}
    cells: dict[str, list[str]] = {}
    for name, column in columns.items():
        numbers = [_number(entry, column.digits) for entry in column.entries]
        room = max(map(len, numbers))
        texts = [name]
        for number, entry in zip(numbers, column.entries, strict=True):
            deviation = "" if entry.deviation is None else f" ± {entry.deviation:.{column.digits}f}"
            marks = " ".join(notes[note] for note in _notes(entry, usual))
            aligned = number if number[:1].isalpha() else number.rjust(room)
            texts.append(f"{aligned}{deviation} {marks}".rstrip())
        cells[name] = [printable(text) for text in texts]
    return cells, notes


def _number(entry: Entry, digits: int) -> str:
    """Write a number, or the text or the dash that stands in its place."""
    if entry.value is not None:
        return f"{entry.value:.{digits}f}"
    text = MISSING if entry.text is None else entry.text
    return MISSING if len(text) > _LONGEST_TEXT else text


def _notes(entry: Entry, usual: int) -> list[str]:
    if entry.value is None:
        text = entry.text or ""
        return [text] if len(text) > _LONGEST_TEXT else []
    return [*notes_on(entry, usual), *entry.unfinished]


def _divide(
    cells: Mapping[str, Sequence[str]], required: Collection[str], room: int
) -> list[list[str]]:
    """Divide columns into blocks that fit beside the labels: all that are required, then others."""
    blocks: list[list[str]] = [[]]
    left = room
    for name in sorted(cells, key=lambda name: name not in required):
        width = _GAP + max(map(len, cells[name]))
        if width > left and blocks[-1]:
            if name not in required:
                continue
            blocks.append([])
            left = room
        blocks[-1].append(name)
        left -= width
    return [block for block in blocks if block]


def _write(labels: Sequence[Sequence[str]], columns: Sequence[Sequence[str]]) -> str:
    """Write a block: labels, and beside the first line of each its cells."""
    room = max(len(line) for lines in labels for line in lines)
    widths = [_GAP + max(map(len, column)) for column in columns]
    lines: list[str] = []
    for (first, *rest), *cells in zip(labels, *columns, strict=True):
        beside = "".join(
            f"{'':{_GAP}}{cell}".ljust(width) for cell, width in zip(cells, widths, strict=True)
        )
        lines += [f"{first.ljust(room)}{beside}".rstrip(), *rest]
    return "\n".join(lines)
