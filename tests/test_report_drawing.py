"""What all figures share: legends that can be read, colours, and files of the same bytes."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ET
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from conftest import ROOT
from figure_checks import legend_names, overlaps
from lra.report.boards.slugs import slugify
from lra.report.figures.drawing import (
    COLOURS,
    ReportFigure,
    add_legend,
    assign_styles,
    has_outlier,
    new_figure,
    plot_line,
    style,
)

NARROW = {"figure.figsize": (3.2, 2.2), "font.size": 8}
"""A column of a paper with two."""


def lines_that_end_at(heights: dict[str, float]) -> Figure:
    """Draw a line for each name, with a legend."""
    styles = assign_styles(heights)
    figure = new_figure(heights)
    axes = figure.subplots()
    for name, height in heights.items():
        plot_line(axes, name, [(0, 0.5), (1, height)], styles[name])
    axes.set(xlabel="x", ylabel="y")
    add_legend(figure)
    return figure


@pytest.mark.parametrize("count", [1, 40])
@pytest.mark.parametrize("name", ["tnn", "tnn (mixer.decay=0.99, model.norm=layer)", "n" * 90])
@pytest.mark.parametrize("changes", [{}, NARROW], ids=["page", "narrow"])
def test_all_names_can_be_read_beside_the_axes(
    count: int, name: str, changes: dict[str, object]
) -> None:
    heights = {f"{name} {k}": 0.5 + k / 1e4 for k in range(count)}
    with style(changes):
        figure = lines_that_end_at(heights)
        assert overlaps(figure) == []
    (axes,), (legend,) = figure.axes, figure.legends
    frame, box = axes.get_window_extent(), legend.get_window_extent()
    assert frame.x1 < box.x0
    assert frame.width > 0.25 * figure.bbox.width
    assert frame.height > 0.5 * figure.bbox.height
    found = legend_names(figure)
    assert ["".join(text.split()) for text in found] == [
        "".join(text.split()) for text in reversed(heights)
    ]


def test_names_are_in_the_order_in_which_lines_end() -> None:
    with style():
        assert legend_names(lines_that_end_at({"a": 2, "_b": 9, "c": -1})) == ["_b", "a", "c"]


@pytest.mark.parametrize(
    ("ends", "expected"),
    [([1, 1, 2], False), ([1, 1, 2.1], True), ([0, 1, 9], False), ([5], False), ([1, 100], True)],
)
def test_an_outlier_is_far_beyond_the_median(ends: list[float], expected: bool) -> None:
    assert has_outlier(ends) == expected


def _lab(colour: str, seen: np.ndarray) -> np.ndarray:
    """Return CIE L*a*b* of a colour as an eye with the matrix `seen` sees it."""
    values = np.array([int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)])
    linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array(
        [[0.4125, 0.3576, 0.1804], [0.2127, 0.7152, 0.0722], [0.0193, 0.1192, 0.9503]]
    )
    xyz = to_xyz @ np.clip(seen @ linear, 0, 1) / (0.9505, 1, 1.0888)
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


EYES = {
    "all cones": (np.eye(3), 20),
    # Machado, Oliveira and Fernandes (2009), severity 1.
    "no red": (np.array([[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992],
                         [-0.0039, -0.0481, 1.0520]]), 15),
    "no green": (np.array([[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474],
                           [-0.0118, 0.0429, 0.9689]]), 15),
}  # fmt: skip


@pytest.mark.parametrize("eye", EYES)
def test_twelve_colours_are_told_apart(eye: str) -> None:
    """By distances in CIE L*a*b*, of which 2.3 is a difference that can just be noticed."""
    seen, least = EYES[eye]
    assert len(set(COLOURS)) == 12
    for one, other in itertools.combinations(COLOURS, 2):
        assert np.linalg.norm(_lab(one, seen) - _lab(other, seen)) > least, (one, other)
    assert all(_lab(colour, np.eye(3))[0] < 75 for colour in COLOURS), "to be seen on white"


def test_mixers_as_they_come_have_colours_of_their_own() -> None:
    mixers = [f"m{i:02}" for i in range(12)]
    changed = [f"m{i:02} (mixer.a={i})" for i in range(8)]
    styles = assign_styles([*changed, *mixers])
    assert {styles[name]["color"] for name in mixers} == set(COLOURS)
    assert len({tuple(one.values()) for one in styles.values()}) == 20


def test_slugs_are_words_in_the_names_of_files() -> None:
    assert slugify("speed", "GPU B, 1 of 2", "", "a_b/../c") == "speed-gpu-b-1-of-2-a-b-..-c"
    assert slugify("../", "é") == "x"
    assert len(slugify("x" * 500)) <= 120


def test_files_have_names_as_text_and_the_same_bytes_twice() -> None:
    odd = 'd="1.2345678" <b> & é'
    figure = ReportFigure("s", "t", "c", partial(lines_that_end_at, {odd: 1.0, "tnn": 0.0}))
    files = figure.files()
    assert files == figure.files()
    assert set(files) == {"s.png", "s.svg"}
    root = ET.fromstring(files["s.svg"])
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {odd, "tnn"} <= set(texts)
    assert b"Verdana" in files["s.svg"], "for machines without matplotlib's font"
    assert b"metadata" not in files["s.svg"]


@pytest.mark.parametrize(
    "path", sorted((ROOT / "results" / "shipped").glob("*.svg")), ids=lambda path: path.name
)
def test_shipped_figures_are_small(path: Path) -> None:
    assert path.stat().st_size < 50_000
