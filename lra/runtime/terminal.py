"""Text, commands and tables that fit the width of the terminal."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence

NARROWEST = 20
"""Least width, in characters, that text is fitted to."""
INDENT = "  "
"""Start of a line that belongs to the one above."""
CONTINUED = "    "
"""Start of a line that continues the one above."""
MISSING = "-"
"""What a table shows where there is nothing."""
GAP = "  "
"""Space between two columns."""

Rows = Sequence[Mapping[str, str]]
"""The rows of a table: texts by the names of their columns."""


def terminal_width() -> int:
    """Return the width of the terminal in characters; 80 where it is not known."""
    return max(NARROWEST, shutil.get_terminal_size().columns)


def printable(text: str) -> str:
    """Write what a terminal would obey, or could not encode, as escapes; lines stay lines."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(
        c if c == "\n" or c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode()
        for c in text
    )


def wrap_words(text: str, width: int, *, indent: str = CONTINUED) -> list[str]:
    """Break a text at its spaces into lines that fit a width in characters."""
    return textwrap.wrap(
        text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def wrap_message(text: str) -> str:
    """Break a message for standard error at its spaces if that is a terminal."""
    return "\n".join(wrap_words(text, terminal_width())) if sys.stderr.isatty() else text


def wrap_parts(
    parts: Sequence[str], width: int, *, separator: str = " · ", indent: str = INDENT
) -> list[str]:
    """Join parts into lines that fit a width; the lines break at the separators.

    Empty parts are left out. A part that is too wide for a line breaks at its spaces. A separator
    that is a comma stays at the end of its line, any other is left out there.
    """
    end = separator.rstrip() if separator.startswith(",") else ""
    lines, line = [], ""
    for part in filter(None, parts):
        if line and len(line + separator + part + end) > width:
            lines.append(line + end)
            line = CONTINUED + part
        else:
            line = f"{line}{separator}{part}" if line else indent + part
    return [short for line in [*lines, line] for short in wrap_words(line, width)]


def wrap_command(label: str, words: Sequence[str], width: int) -> list[str]:
    """Write a command line so that it fits a width and can be pasted into a shell.

    The label comes before the command, whose words are not quoted yet. A flag stays on one line
    with its value.
    """
    quoted = [shlex.quote(word).replace(" ", "\0") for word in words]
    command = re.sub(" (?!--)", "\0", " ".join(quoted))  # lines only break before flags
    before = []
    if len(label + command.partition(" ")[0]) + len("  \\") > width:
        before, label = wrap_words(label, width), CONTINUED[1:]
    lines = textwrap.wrap(
        command, width - len(" \\"), initial_indent=f"{label} ", subsequent_indent=CONTINUED,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    return [*before, *" \\\n".join(lines).replace("\0", " ").split("\n")]


def cut(text: str, width: int) -> str:
    """Cut a text to a width; the end says that something is left out."""
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


def plain_table(rows: Rows, width: int) -> list[str]:
    """Write rows as lines that fit a width; the widest columns are cut until they do.

    Returns: the heading, then a line for each row; a dash for what a row lacks.
    """
    columns = _columns(rows)
    widths = {name: max(map(len, texts)) for name, texts in columns.items()}
    while sum(widths.values()) + len(GAP) * (len(widths) - 1) > width and max(widths.values()) > 1:
        widths[max(widths, key=lambda name: widths[name])] -= 1
    short = {name: [cut(text, widths[name]) for text in texts] for name, texts in columns.items()}
    return _lines(short)


def plain_matrix(rows: Rows, width: int) -> list[str]:
    """Write rows as lines that fit a width; the columns that do not fit follow beneath.

    The first column names the rows, and is repeated; it is cut to half the width.

    Returns: blocks of a heading and a line for each row, with an empty line between them.
    """
    columns = _columns(rows)
    name = next(iter(columns))
    names = [cut(text, width // 2) for text in columns.pop(name)]
    room = width - max(map(len, names))
    blocks: list[dict[str, list[str]]] = [{}]
    left = room
    for heading, texts in columns.items():
        needed = len(GAP) + max(map(len, texts))
        if needed > left and blocks[-1]:
            blocks.append({})
            left = room
        blocks[-1][heading] = [cut(text, room - len(GAP)) for text in texts]
        left -= needed
    lines = [["", *_lines({name: names, **block})] for block in blocks]
    return [line for block in lines for line in block][1:]


def _columns(rows: Rows) -> dict[str, list[str]]:
    """List the texts of each column, its heading first."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {
        name: [printable(text) for text in (name, *(row.get(name, MISSING) for row in rows))]
        for name in names
    }


def _lines(columns: Mapping[str, Sequence[str]]) -> list[str]:
    """Write columns side by side, each aligned to the left."""
    padded = [[text.ljust(max(map(len, texts))) for text in texts] for texts in columns.values()]
    return [GAP.join(cells).rstrip() for cells in zip(*padded, strict=True)]
