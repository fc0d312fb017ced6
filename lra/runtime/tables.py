"""Tables of text: in Markdown, and for a terminal, no wider than that."""

from collections.abc import Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal

from lra.runtime.console import printable

MISSING = "-"
"""What a table shows where there is nothing."""
GAP = "  "
"""Space between two columns."""

Rows = Sequence[Mapping[str, str]]
"""The rows of a table: texts by the names of their columns."""


def count_nouns(number: int, noun: str) -> str:
    """Write a number of things: 1 seed, 2 seeds."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def rounded(value: float, digits: int, sign: str = "-") -> str:
    """Write a number with so many decimals, halves away from 0, as its decimal form has them.

    Of 54.55 and 46.45 the binary forms lie below and above the half. With "+" all have a sign.
    """
    unit = Decimal(1).scaleb(-digits)
    return f"{Decimal(repr(float(value))).quantize(unit, ROUND_HALF_UP):{sign}f}"


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table of text in Markdown, the first column aligned to the left."""
    from tabulate import tabulate

    align = ["left", *["right"] * (len(columns) - 1)]
    text = tabulate(rows, columns, tablefmt="pipe", disable_numparse=True, colalign=align)
    return text + "\n"


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
