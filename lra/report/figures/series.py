"""Which row of the tables each part of a figure draws, and what each of its points says.

The page hides, highlights and explains parts by the attributes that their groups have in the SVG:

    <g class="series" data-mixer="tnn" data-row="tnn: one core" data-points="...">

`data-points` has a line of text for each marker, in their order.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from lra.report.boards.row_names import mixer_of

if TYPE_CHECKING:
    from matplotlib.artist import Artist

_MARK = "series\n"
_GROUP = re.compile(rb"""<g id=(["'])series\n(.*?)\1>""", re.DOTALL)
SERIES = b'<g class="series"'
"""Start of the groups of an SVG that draw rows."""
_ROW = re.compile(SERIES + rb' data-mixer="[^"]*" data-row="([^"]*)"')


def mark(artist: Artist, row: str, points: Iterable[str] = ()) -> None:
    """Name the row that an artist draws.

    Args:
        artist: what draws the row.
        row: name of the row in tables.
        points: what to say of each marker of the artist, a line each.
    """
    artist.set_gid(_MARK + "\n".join([row, *points]))


def marked_row(artist: Artist) -> str | None:
    """Return the row that an artist draws; None if none was named."""
    name = artist.get_gid() or ""
    return name.split("\n")[1] if name.startswith(_MARK) else None


def write_attributes(svg: bytes) -> bytes:
    """Write the rows and points of an SVG as attributes of its groups."""
    return _GROUP.sub(_attributes, svg)


def _attributes(group: re.Match[bytes]) -> bytes:
    row, *points = html.unescape(group[2].decode()).split("\n")
    attributes = {"mixer": mixer_of(row), "row": row, "points": "\n".join(points)}
    written = "".join(
        f' data-{name}="{_escape(value)}"' for name, value in attributes.items() if value
    )
    return SERIES + f"{written}>".encode()


def _escape(value: str) -> str:
    return html.escape(value).replace("\n", "&#10;")


def drawn_rows(svg: bytes) -> list[str]:
    """List the rows that an SVG draws, in the order in which they appear."""
    found = dict.fromkeys(_ROW.findall(svg))
    return [html.unescape(row.decode()) for row in found]


def describe(label: str, value: float, interval: Sequence[float] = ()) -> str:
    """Write a value of an axis with its unit, and its interval if it has one.

    Args:
        label: label of the axis: a name, or a name and a unit.
        value: the value.
        interval: the interval's ends.
    """
    name, _, unit = label.removesuffix(" (lower is better)").partition(", ")
    text = " ".join(filter(None, (name, _write(value), unit)))
    return f"{text} ({_write(interval[0])} to {_write(interval[1])})" if interval else text


_FEW, _MANY = 0.01, 1e7
"""Numbers outside this range are written with an exponent."""


def _write(value: float) -> str:
    if value and not _FEW <= abs(value) < _MANY:
        return f"{value:.3g}"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"


def write_seeds(count: int) -> str:
    """Write how many seeds a number is a mean of."""
    return f"{count} seed{'s' * (count != 1)}"
