"""The colour, the shape and the dashes of each row, the same in all charts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lra.report.data import Data
from lra.report.names import mixer_of
from lra.report.tables.probes import probes

MIXERS = {
    "tnn": ("#3c90fc", "^"),
    "ski-tnn": ("#fc6000", "v"),
    "fd-tnn": ("#00a848", "*"),
    "toroidal": ("#a884d8", "P"),
    "toeplitz": ("#6c78a8", "o"),
    "s4": ("#cc0c24", ">"),
    "s4d": ("#fc549c", "X"),
    "s5": ("#b49000", "P"),
    "dss": ("#906030", "<"),
    "lru": ("#007860", "s"),
    "hgrn": ("#849c00", "o"),
    "mamba2": ("#cc00b4", "v"),
    "mega": ("#c08448", ">"),
    "long-conv": ("#306c90", "D"),
    "conv": ("#009cb4", "s"),
    "fnet": ("#789c84", "o"),
    "linear": ("#846090", "^"),
    "delta": ("#cc0060", "X"),
    "transformer": ("#6c3cfc", "X"),
    "linformer": ("#fc0054", "<"),
    "nystrom": ("#009c90", "D"),
    "reformer": ("#c04800", "v"),
    "sinkhorn": ("#007824", "o"),
    "sparse": ("#846c0c", "s"),
    "synthesizer": ("#a89084", "P"),
    "mean": ("#606c54", "*"),
    "lstm": ("#fc3c30", "^"),
    "min-gru": ("#486cfc", ">"),
    "linoss": ("#786c54", "P"),
    "hgrn2": ("#9c54cc", "*"),
    "rtf": ("#789054", "X"),
}
"""Colour and marker of each mixer of the suite.

Colours differ by 11 or more in CIEDE2000, from each other and from GRAY. Each has a contrast of at
least 3 to white and to the dark background of the page. Colours of the same marker also differ for
eyes that lack one kind of cones.
"""
OWN_MIXERS = (
    ("#f030fc", "o"), ("#547878", "o"), ("#c0786c", "^"), ("#b47890", "v"), ("#846060", "D"),
    ("#60780c", "D"), ("#9c9060", "s"), ("#9c90a8", "^"),
)  # fmt: skip
"""Colours and markers that your own mixers take, in the order of their names."""
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

Styles = Mapping[str, Mapping[str, Any]]
"""The fields `colour`, `shape`, `glyph` and `dash` of each row."""


def assign_styles(rows: Iterable[str]) -> Styles:
    """Give each row the colour and the shape of its mixer.

    Rows of one mixer, which differ in their settings, have other dashes.
    """
    by_mixer: dict[str, list[str]] = {}
    for row in sorted({*rows} - {BASELINE}):
        by_mixer.setdefault(mixer_of(row), []).append(row)
    own = [mixer for mixer in by_mixer if mixer not in MIXERS]
    looks = MIXERS | {name: OWN_MIXERS[i % len(OWN_MIXERS)] for i, name in enumerate(own)}
    styles = {BASELINE: _make_style("#7f7f7f", "o", 2)}
    for mixer, found in by_mixer.items():
        # The first dashes are those of the mixer at its preset, in all charts and reports.
        for number, row in enumerate([mixer, *(row for row in found if row != mixer)]):
            styles[row] = _make_style(*looks[mixer], number)
    return styles


def styles_of_data(data: Data) -> Styles:
    """Give each row of a report its style."""
    rows = {row for board in data.boards for row in board.rows}
    return assign_styles(rows | {row for probe in probes(data) for row in probe.rows})


def _make_style(colour: str, marker: str, number: int) -> dict[str, Any]:
    shape, glyph = SHAPES[marker]
    dash = DASHES[number % len(DASHES)]
    return {"colour": colour, "shape": shape, "glyph": glyph, "dash": dash}
