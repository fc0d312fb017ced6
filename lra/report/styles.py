"""The colour and the marker of each mixer, the same in all figures."""

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
}
"""Colour and marker of each mixer of the suite.

Colours differ by 13 or more in CIEDE2000, from each other and from GRAY. Each has a contrast of at
least 3 to white and to the dark background of the page. Colours of the same marker also differ for
eyes that lack one kind of cones.
"""
OWN_MIXERS = (
    ("#f030fc", "o"), ("#547878", "o"), ("#c0786c", "^"), ("#b47890", "v"), ("#846060", "D"),
    ("#60780c", "D"), ("#9c9060", "s"), ("#9c90a8", "^"),
)  # fmt: skip
"""Colours and markers that your own mixers take, in the order of their names."""
MARKERS = "osD^vPX*<>"
LINES = ("-", "--", ":", "-.")
FILLS = ("full", "none", "left", "bottom", "right")
"""Matplotlib's fill styles of markers."""
GRAY = "0.5"
"""Colour of what is no mixer: trivial baselines, ideal predictors, lengths in training."""

RowStyles = Mapping[str, Mapping[str, Any]]
"""Matplotlib's arguments `color`, `marker`, `linestyle` and `fillstyle` for each row of tables."""


def styles_of(rows: Iterable[str], styles: RowStyles) -> RowStyles:
    """Choose the styles of the rows that a figure shows, so that its digest has no others."""
    return {row: styles[row] for row in sorted(set(rows))}


def assign_styles(rows: Iterable[str]) -> RowStyles:
    """Give each row the colour and the marker of its mixer.

    Rows of one mixer, which differ in their settings, differ in the line and the marker's fill.
    """
    by_mixer: dict[str, list[str]] = {}
    for row in sorted(set(rows)):
        by_mixer.setdefault(mixer_of(row), []).append(row)
    looks = dict(MIXERS)
    for number, mixer in enumerate(name for name in by_mixer if name not in MIXERS):
        colour, marker = OWN_MIXERS[number % len(OWN_MIXERS)]
        shift = number // len(OWN_MIXERS)
        looks[mixer] = colour, MARKERS[(MARKERS.index(marker) + shift) % len(MARKERS)]
    styles: dict[str, dict[str, str]] = {}
    for mixer, found in by_mixer.items():
        colour, marker = looks[mixer]
        # The first line and fill are those of the mixer as it comes, in all figures and reports.
        changed = [row for row in found if row != mixer]
        for number, row in enumerate([mixer, *changed]):
            styles[row] = {
                "color": colour,
                "marker": marker,
                "linestyle": LINES[number % len(LINES)],
                "fillstyle": FILLS[number % len(FILLS)],
            }
    return styles


def styles_of_data(data: Data) -> RowStyles:
    """Give each row of a report its style."""
    rows = {row for board in data.boards for row in board.rows}
    rows |= {row for probe in probes(data) for row in probe.rows}
    return assign_styles([*rows, *map(data.names.of_mixer, data.bench)])
