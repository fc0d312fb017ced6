"""Labels at the ends of lines, colours, and SVG without what is not shown."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ET
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from conftest import ROOT
from figure_checks import overlaps
from lra.report.boards.slugs import slugify
from lra.report.figures.drawing import (
    COLOURS,
    Looks,
    ReportFigure,
    figure_with_labels,
    is_stretched,
    log_scale,
    style,
)
from lra.report.figures.labels import LineEnd, apart, label_ends

INTERVALS = st.lists(st.tuples(st.floats(0, 100), st.floats(0.5, 5)), min_size=1, max_size=15)


@given(INTERVALS)
def test_intervals_do_not_overlap_and_stay_inside(intervals: list[tuple[float, float]]) -> None:
    wanted, heights = zip(*intervals, strict=True)
    placed = apart(wanted, heights, 0.0, 100.0)
    order = sorted(range(len(wanted)), key=lambda i: placed[i])
    for i, j in itertools.pairwise(order):
        assert placed[j] - placed[i] >= (heights[i] + heights[j]) / 2 - 1e-6
        assert wanted[i] <= wanted[j], "in the order of the ends"
    assert placed[order[0]] >= heights[order[0]] / 2 - 1e-6
    assert placed[order[-1]] <= 100 - heights[order[-1]] / 2 + 1e-6


def test_intervals_with_room_stay_where_they_are_wanted() -> None:
    assert apart([50.0, 10.0, 30.0], [4.0] * 3, 0, 100) == [50.0, 10.0, 30.0]
    assert apart([50.0, 50.0], [4.0, 4.0], 0, 100) == [48.0, 52.0], "both give way by half"
    assert apart([0.0, 100.0], [4.0, 4.0], 0, 100) == [2.0, 98.0]


@pytest.mark.parametrize("count", [1, 12, 40])
@pytest.mark.parametrize("name", ["tnn", "tnn (mixer.decay=0.99, model.norm=layer)", "m" * 90])
def test_labels_of_lines_that_end_together_are_apart(count: int, name: str) -> None:
    names = [f"{name} {k}" for k in range(count)]
    with style():
        figure = figure_with_labels(names)
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1])
        label_ends(axes, [LineEnd(1, 0.5 + k / 1e4, names[k], COLOURS[0]) for k in range(count)])
        assert overlaps(figure) == []
    assert ["".join(text.get_text().split()) for text in axes.texts] == [
        "".join(text.split()) for text in names
    ]


def test_a_label_is_joined_to_the_end_of_its_line() -> None:
    with style():
        figure = figure_with_labels(["a"])
        axes = figure.subplots()
        axes.plot([1, 10], [1, 1000])
        axes.plot([1, 100], [1, 10])
        log_scale(axes, "x")
        log_scale(axes)
        label_ends(axes, [LineEnd(10, 1000, "a", COLOURS[1]), LineEnd(100, 10, "b", COLOURS[2])])
        figure.draw_without_rendering()
    for line, end in zip(axes.lines[2:], [(10, 1000), (100, 10)], strict=True):
        start = axes.transAxes.transform(np.asarray(line.get_xydata())[0])
        assert axes.transData.inverted().transform(start) == pytest.approx(end)


@pytest.mark.parametrize(
    ("ends", "expected"),
    [([1, 1, 2], False), ([1, 1, 2.1], True), ([0, 1, 9], False), ([5], False), ([1, 100], True)],
)
def test_an_axis_is_stretched_by_one_far_beyond_the_median(
    ends: list[float], expected: bool
) -> None:
    assert is_stretched(ends) == expected


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
    looks = Looks([*changed, *mixers])
    assert len({looks.colour(name) for name in mixers}) == 12
    assert len({tuple(sorted(looks.line(n).items())) for n in [*mixers, *changed]}) == 20


def test_slugs_are_words_in_the_names_of_files() -> None:
    assert slugify("speed", "GPU B, 1 of 2", "", "a_b/../c") == "speed-gpu-b-1-of-2-a-b-..-c"
    assert slugify("../", "é") == "x"
    assert len(slugify("x" * 500)) <= 120


def test_svg_keeps_what_is_shown() -> None:
    odd = ' d="1.2345678" <b> & é'

    def draw() -> Figure:
        figure = figure_with_labels([odd])
        axes = figure.subplots()
        axes.plot([0.123456, 1], [0, 1], color="#0072B2")
        label_ends(axes, [LineEnd(1, 1, odd, "#0072B2")])
        return figure

    content = ReportFigure("s", "t", "c", partial(draw)).files()["s.svg"]
    root = ET.fromstring(content)
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert odd.strip() in [text.strip() for text in texts if text]
    written = content.decode()
    paths = [element.get("d", "") for element in root.iter()]
    assert any(paths)
    assert not [path for path in paths if re.search(r"\.\d{3}", path)]
    assert "metadata" not in written
    rules = dict(re.findall(r"\.(s\d+)\{([^}]*)\}", written))
    assert set(re.findall(r'class="(s\d+)"', written)) == set(rules)
    assert any("#0072b2" in rule for rule in rules.values())
    ids = set(re.findall(r' id="([^"]*)"', written))
    assert set(re.findall(r'(?:url\(|href=")#([\w-]+)', written)) == ids


@pytest.mark.parametrize(
    "path", sorted((ROOT / "results" / "shipped").glob("*.svg")), ids=lambda path: path.name
)
def test_shipped_figures_are_small(path: Path) -> None:
    assert path.stat().st_size < 50_000
