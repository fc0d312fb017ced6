"""What all figures share: legends that can be read, colours, and files of the same bytes."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from functools import partial
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from conftest import ROOT
from figure_checks import legend_names, overlaps
from lra.report.boards.slugs import slugify
from lra.report.figures.drawing import (
    ReportFigure,
    add_legend,
    has_outlier,
    legend_name,
    new_figure,
    plot_line,
    style,
)
from lra.report.figures.series import describe, drawn_rows
from lra.report.figures.styles import assign_styles

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


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("delta (mixer.negative_eigenvalues=true)", "delta (mixer.negative_\neigenvalues=true)"),
        ("s4d (mixer.num_copies=2)", "s4d (mixer.num_copies=2)"),
        ("s4d (mixer.step_max=0.25)", "s4d\n(mixer.step_max=0.25)"),
        ("x (mixer.of_a_length_of=0.015625)", "x (mixer.of_a_length_of=\n0.015625)"),
        ("n" * 30, "n" * 24 + "\n" + "n" * 6),
    ],
)
def test_names_break_between_words_before_they_break_within_one(name: str, expected: str) -> None:
    with style():
        assert legend_name(name) == expected


def test_names_are_in_the_order_in_which_lines_end() -> None:
    with style():
        assert legend_names(lines_that_end_at({"a": 2, "_b": 9, "c": -1})) == ["_b", "a", "c"]


@pytest.mark.parametrize(
    ("ends", "expected"),
    [([1, 1, 2], False), ([1, 1, 2.1], True), ([0, 1, 9], False), ([5], False), ([1, 100], True)],
)
def test_an_outlier_is_far_beyond_the_median(ends: list[float], expected: bool) -> None:
    assert has_outlier(ends) == expected


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
    assert b"rotate(-0" not in files["s.svg"], "as matplotlib writes all upright text"


def test_parts_of_an_svg_name_their_row_and_explain_their_points() -> None:
    odd = "d=\"1.2345678\" <b> & 'é'"
    svg = ReportFigure("s", "t", "c", partial(line_with_texts, odd)).files()["s.svg"]
    groups = [
        group
        for group in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}g")
        if group.get("class") == "series"
    ]
    assert {group.get("data-row") for group in groups} == {odd}
    assert {group.get("data-mixer") for group in groups} == {odd.split(" ", 1)[0]}
    (points,) = [found for group in groups if (found := group.get("data-points"))]
    assert points == "x 0: y 0.123456\nx 1: <1>"
    assert len(groups) > 2, "the legend's line and name, too"
    assert drawn_rows(svg) == [odd]


def line_with_texts(name: str) -> Figure:
    figure = new_figure([name])
    axes = figure.subplots()
    line = assign_styles([name])[name]
    plot_line(axes, name, [(0, 0), (1, 1)], line, texts=["x 0: y 0.123456", "x 1: <1>"])
    add_legend(figure)
    return figure


@pytest.mark.parametrize(
    ("label", "value", "interval", "expected"),
    [
        ("test accuracy, %", 61.2, (60.0, 62.345), "test accuracy 61.20 % (60 to 62.34)"),
        ("optimizer steps", 1500.0, (), "optimizer steps 1,500"),
        ("perplexity (lower is better)", 3.456, (), "perplexity 3.46"),
        ("training FLOPs", 3.21e15, (), "training FLOPs 3.21e+15"),
    ],
)
def test_a_point_is_described_with_its_unit_and_interval(
    label: str, value: float, interval: tuple[float, ...], expected: str
) -> None:
    assert describe(label, value, interval) == expected


@pytest.mark.parametrize(
    "path", sorted((ROOT / "results" / "shipped").glob("*.svg")), ids=lambda path: path.name
)
def test_shipped_figures_are_small(path: Path) -> None:
    assert path.stat().st_size < 50_000
