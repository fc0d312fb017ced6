"""Tables as plain text that is no wider than the terminal, and the notes on their numbers."""

import statistics
import string
import textwrap
from collections.abc import Mapping, Sequence

from lra.report.scores import Entry
from lra.report.tables.table import Column, Table
from lra.runtime.console import as_typed, printable, terminal_width, wrap_words
from lra.runtime.tables import MISSING, count_nouns, plain_matrix, rounded

OWN_MARK = ">"
LONGEST_TEXT = 20
"""Most letters of a cell without a number; a longer one becomes a note."""


def wrap(text: str, indent: str = "") -> str:
    """Break a paragraph into lines of the terminal's width; a path stays in one piece."""
    return "\n".join(wrap_words(as_typed(printable(text)), terminal_width(), indent=indent))


class Notes:
    """The notes on the numbers of some columns, and how many seeds numbers are of.

    Notes are the remarks on a number, its seeds where they are not the usual ones, and a long text
    in the place of a number. Each note has a symbol: a letter, if no other is given for it.
    """

    def __init__(self, columns: Sequence[Column], symbols: Mapping[str, str] | None = None) -> None:
        self.counts = [entry.seeds for column in columns for entry in column.entries if entry.seeds]
        self.usual = statistics.mode(sorted(self.counts, reverse=True)) if self.counts else 0
        """The count of seeds that most numbers have, of equals the largest."""
        rows = zip(*(column.entries for column in columns), strict=True)
        notes = dict.fromkeys(note for row in rows for entry in row for note in self.on(entry))
        fixed = symbols or {}
        others = [note for note in notes if note not in fixed]
        self.symbols = {note: symbol for note, symbol in fixed.items() if note in notes}
        self.symbols |= {note: _letters(number) for number, note in enumerate(others)}

    def on(self, entry: Entry) -> list[str]:
        """List the notes on an entry, by their texts."""
        if entry.value is None:
            return [entry.text] if entry.text and not short_text(entry) else []
        seeds = [] if entry.seeds == self.usual else [count_nouns(entry.seeds, "seed")]
        return [*entry.remarks, *seeds] if entry.seeds else []

    def marks(self, entry: Entry) -> list[str]:
        """List the symbols of the notes on an entry."""
        notes = self.on(entry)
        return [symbol for note, symbol in self.symbols.items() if note in notes]

    @property
    def seeds(self) -> str:
        """A sentence on how many seeds numbers are of."""
        if max(self.counts, default=1) == 1:
            return "Each number is from one seed."
        if self.usual == 1:
            return (
                "Numbers are from one seed or, where marked, means ± standard deviations over more."
            )
        others = " where not marked" if len({*self.counts}) > 1 else ""
        seeds = count_nouns(self.usual, "seed")
        return f"Numbers are means ± standard deviations over {seeds}{others}."


def short_text(entry: Entry) -> str:
    """Return the text of an entry; that of one without a number only if it is no note."""
    is_note = entry.value is None and len(entry.text or "") > LONGEST_TEXT
    return "" if is_note else entry.text or ""


def _letters(number: int) -> str:
    """Name a note by its number, from 0: a to z, then aa to az, and so on."""
    high, low = divmod(number, 26)
    return (_letters(high - 1) if high else "") + string.ascii_lowercase[low]


def write_table(table: Table, *sentences: str) -> str:
    """Write a table as plain text of the terminal's width, in several blocks of lines if need be.

    Its title stands above; sentences on marks, seeds and notes stand below, and then those given.
    """
    names, *columns = table.without_empty_columns().columns
    own = [entry.is_own for entry in names.entries]
    marks_own = any(own) and not all(own[: len(table.methods)])
    notes = Notes(columns)
    cells = {column.name: _write_cells(column, notes) for column in columns}
    legend = [f"{OWN_MARK} marks rows with runs of your own."] if marks_own else []
    legend += [notes.seeds] if notes.counts else []
    if notes.symbols:
        legend.append(f"{', '.join(f'{symbol}: {n}' for n, symbol in notes.symbols.items())}.")
    lines = [
        {f"  {names.name}": line, **{name: "" if k else cells[name][i] for name in cells}}
        for i, name in enumerate(names.texts)
        for k, line in enumerate(_wrap_name(name, OWN_MARK if marks_own and own[i] else " "))
    ]
    text = "\n".join(plain_matrix(lines, terminal_width()))
    return "\n\n".join([wrap(table.title), text, wrap(" ".join([*legend, *sentences]))]).rstrip()


def _wrap_name(name: str, mark: str) -> list[str]:
    """Write the name of a row, as several lines if it is longer than half of the terminal."""
    return textwrap.wrap(
        printable(name), terminal_width() // 2, initial_indent=f"{mark} ",
        subsequent_indent="    ", break_on_hyphens=False,
    )  # fmt: skip


def _write_cells(column: Column, notes: Notes) -> list[str]:
    """Write the numbers of a column, with decimal points below each other."""
    digits = column.digits
    numbers = [
        rounded(entry.value, digits)
        if entry.value is not None and entry.seeds
        else short_text(entry) or MISSING
        for entry in column.entries
    ]
    room = max(map(len, numbers), default=0)
    texts: list[str] = []
    for number, entry in zip(numbers, column.entries, strict=True):
        deviation = "" if entry.deviation is None else f" ± {rounded(entry.deviation, digits)}"
        marks = " ".join(notes.marks(entry))
        aligned = number if number[:1].isalpha() else number.rjust(room)
        texts.append(f"{aligned}{deviation} {marks}".rstrip())
    return texts
