"""The looks of each row, the same in all charts: the colour of its family, a shape and dashes."""

import functools
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from lra.config.settings_files import Family, list_files
from lra.report.data import Data
from lra.report.names import mixer_of
from lra.report.scores import group_by
from lra.report.tables.probes import probes

FAMILIES: Mapping[Family, str] = {
    "attention": "#0961e1",
    "linear attention": "#299baf",
    "state space": "#da2015",
    "long convolution": "#ec700a",
    "gated recurrence": "#007564",
    "delta rule or matrix state": "#9c4491",
    "local or none": "#717947",
}
"""The colour of each family of mixers.

These and the first two of OWN_COLOURS differ by 20 or more in CIEDE2000, and by 11 or more for eyes
that lack one kind of cones. Each has a contrast of at least 3 to white and to the page's dark
background.
"""
GRAY = "#bcbcbc"
"""Colour of rows that a figure does not name."""
OWN_COLOURS = ("#ff287a", "#9d7dff", "#547878", "#b49000")
"""Colours that your own mixers take, in the order of their names: each is a family of its own."""
SHAPES = {
    "o": ("circle", "●"), "s": ("square", "■"), "D": ("diamond", "◆"), "P": ("cross", "✚"),
    "^": ("triangle-up", "▲"), "v": ("triangle-down", "▼"), "<": ("triangle-left", "◀"),
    ">": ("triangle-right", "▶"),
    "X": ("M-1,-.4L-.4,-1L0,-.6L.4,-1L1,-.4L.6,0L1,.4L.4,1L0,.6L-.4,1L-1,.4L-.6,0Z", "✖"),
    "*": ("M0,-1L.3,-.3L1,-.3L.45,.15L.65,.9L0,.45L-.65,.9L-.45,.15L-1,-.3L-.3,-.3Z", "★"),
}  # fmt: skip
"""Vega's shapes of matplotlib's markers, and letters that look like them."""
DASHES = ([1, 0], [6, 4], [2, 3], [7, 3, 2, 3])
BASELINE = "best trivial baseline"
"""Name of a row that no mixer has: the best number of trivial baselines."""

Look = tuple[str, str, str]
"""Family, colour and marker of a mixer."""
Styles = Mapping[str, Mapping[str, Any]]
"""The fields `family`, `colour`, `shape`, `glyph` and `dash` of each row."""


@functools.cache
def mixer_looks() -> Mapping[str, Look]:
    """Give each mixer of the suite its look; no two of a family have the same marker."""
    files = list_files("mixers")
    return {
        mixer: (family, colour, marker)
        for family, colour in FAMILIES.items()
        for mixer, marker in zip(
            (name for name, file in files.items() if file.family == family),
            itertools.cycle(SHAPES),
            strict=False,
        )
    }


def assign_styles(rows: Iterable[str]) -> Styles:
    """Give each row the look of its mixer.

    Rows of one mixer, which differ in their settings, have other dashes.
    """
    by_mixer = group_by(sorted({*rows} - {BASELINE}), mixer_of)
    own = [mixer for mixer in by_mixer if mixer not in mixer_looks()]
    looks = {**mixer_looks()} | {
        name: (name, colour, marker)
        for name, colour, marker in zip(
            own, itertools.cycle(OWN_COLOURS), itertools.cycle(SHAPES), strict=False
        )
    }
    styles = {BASELINE: _make_style((BASELINE, "#7f7f7f", "o"), 2)}
    for mixer, members in by_mixer.items():
        # The first dashes are those of the mixer at its preset, in all charts and reports.
        for number, row in enumerate([mixer, *(row for row in members if row != mixer)]):
            styles[row] = _make_style(looks[mixer], number)
    return styles


def styles_of_data(data: Data) -> Styles:
    """Give each row of a report its style."""
    rows = {row for board in data.boards for row in board.rows}
    return assign_styles(rows | {row for probe in probes(data) for row in probe.rows})


def _make_style(look: Look, number: int) -> dict[str, Any]:
    family, colour, marker = look
    shape, glyph = SHAPES[marker]
    dash = DASHES[number % len(DASHES)]
    return {"family": family, "colour": colour, "shape": shape, "glyph": glyph, "dash": dash}
