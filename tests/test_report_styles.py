"""Colours and markers of mixers: different in every figure, on white and on the dark page."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from conftest import ROOT
from lra.config.registry import MIXERS as REGISTERED
from lra.report.figures.styles import (
    FILLS,
    LINES,
    MARKERS,
    MIXERS,
    OWN_MIXERS,
    assign_styles,
    styles_of,
)

LOOKS = {**MIXERS, **{f"own {k}": look for k, look in enumerate(OWN_MIXERS)}}
GRAY = "#7f7f7f"
SEES_ALL = np.eye(3)
EYES = {
    # Machado, Oliveira and Fernandes (2009), severity 1.
    "no red": np.array(
        [[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]]
    ),
    "no green": np.array(
        [[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]]
    ),
}
TO_XYZ = np.array([[0.4125, 0.3576, 0.1804], [0.2127, 0.7152, 0.0722], [0.0193, 0.1192, 0.9503]])


def linear(colour: str) -> np.ndarray:
    values = np.array([int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lab(colour: str, seen: np.ndarray = SEES_ALL) -> np.ndarray:
    """Return CIE L*a*b* of a colour as an eye with the matrix `seen` sees it."""
    xyz = TO_XYZ @ np.clip(seen @ linear(colour), 0, 1) / (0.9505, 1, 1.0888)
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def ciede2000(one: np.ndarray, other: np.ndarray) -> float:
    """Return the difference of two colours in L*a*b* (Sharma, Wu and Dalal, 2005)."""
    (l1, a1, b1), (l2, a2, b2) = one, other
    mean_chroma = (np.hypot(a1, b1) + np.hypot(a2, b2)) / 2
    g = 0.5 * (1 - np.sqrt(mean_chroma**7 / (mean_chroma**7 + 25**7)))
    c1, c2 = np.hypot((1 + g) * a1, b1), np.hypot((1 + g) * a2, b2)
    h1 = np.degrees(np.arctan2(b1, (1 + g) * a1)) % 360
    h2 = np.degrees(np.arctan2(b2, (1 + g) * a2)) % 360
    turn = (h2 - h1 + 180) % 360 - 180 if c1 * c2 else 0.0
    hue = (h1 + turn / 2) % 360 if c1 * c2 else h1 + h2
    lightness, chroma = (l1 + l2) / 2, (c1 + c2) / 2

    def cosine(degrees: float) -> float:
        return float(np.cos(np.radians(degrees)))

    t = (1 - 0.17 * cosine(hue - 30) + 0.24 * cosine(2 * hue) + 0.32 * cosine(3 * hue + 6)
         - 0.20 * cosine(4 * hue - 63))  # fmt: skip
    s_l = 1 + 0.015 * (lightness - 50) ** 2 / np.sqrt(20 + (lightness - 50) ** 2)
    s_c, s_h = 1 + 0.045 * chroma, 1 + 0.015 * chroma * t
    rotation = (
        -np.sin(np.radians(60 * np.exp(-(((hue - 275) / 25) ** 2))))
        * 2
        * np.sqrt(chroma**7 / (chroma**7 + 25**7))
    )
    d_l, d_c = (l2 - l1) / s_l, (c2 - c1) / s_c
    d_h = 2 * np.sqrt(c1 * c2) * np.sin(np.radians(turn / 2)) / s_h
    return float(np.sqrt(d_l**2 + d_c**2 + d_h**2 + rotation * d_c * d_h))


def distance(one: str, other: str, seen: np.ndarray = SEES_ALL) -> float:
    return ciede2000(lab(one, seen), lab(other, seen))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ((50.0, 2.6772, -79.7751), (50.0, 0.0, -82.7485), 2.0425),
        ((50.0, 2.5, 0.0), (58.0, 24.0, 15.0), 19.4535),
        ((2.0776, 0.0795, -1.1350), (0.9033, -0.0636, -0.5514), 0.9082),
    ],
)
def test_the_distance_is_that_of_the_published_test_data(
    one: tuple[float, ...], other: tuple[float, ...], expected: float
) -> None:
    assert ciede2000(np.array(one), np.array(other)) == pytest.approx(expected, abs=1e-4)


def test_the_table_names_no_mixer_that_is_gone() -> None:
    """A new mixer needs no line: it takes a look as one's own mixers do, until it is given one."""
    assert set(REGISTERED.classes) | {"toeplitz"} >= MIXERS.keys()


def test_colours_differ_from_each_other_and_from_gray() -> None:
    colours = [colour for colour, _ in LOOKS.values()]
    for one, other in itertools.combinations([*colours, GRAY], 2):
        assert distance(one, other) > 13, (one, other)


@pytest.mark.parametrize("eye", EYES)
def test_colours_of_one_marker_differ_for_all_eyes(eye: str) -> None:
    for (colour, marker), (other, same) in itertools.combinations(LOOKS.values(), 2):
        if marker == same:
            assert distance(colour, other, EYES[eye]) > 12, (colour, other)


def test_related_mixers_have_other_markers_and_distant_colours() -> None:
    attention = [
        "transformer", "linear", "linformer", "nystrom", "reformer", "sinkhorn", "sparse",
        "synthesizer",
    ]  # fmt: skip
    for family in (["tnn", "ski-tnn", "fd-tnn"], ["s4", "s4d", "s5", "dss"], attention):
        looks = [MIXERS[mixer] for mixer in family]
        assert len({marker for _, marker in looks}) == len(family)
        for (one, _), (other, _) in itertools.combinations(looks, 2):
            assert distance(one, other) > 20, (one, other)


def test_colours_can_be_seen_on_white_and_on_the_dark_page() -> None:
    css = (ROOT / "lra" / "report" / "page" / "page.css").read_text()
    papers = {*re.findall(r"--paper: (#\w+)", css)}
    assert len(papers) == 2
    for colour in [colour for colour, _ in LOOKS.values()]:
        for paper in papers:
            low, high = sorted(float(TO_XYZ[1] @ linear(one)) for one in (colour, paper))
            assert (high + 0.05) / (low + 0.05) > 2.95, (colour, paper)


def test_a_mixer_looks_the_same_whatever_else_is_drawn() -> None:
    alone = assign_styles(["tnn"])["tnn"]
    assert alone == assign_styles(["tnn: one core", "s4", "mine", "tnn"])["tnn"]
    assert (alone["color"], alone["marker"]) == MIXERS["tnn"]
    assert (alone["linestyle"], alone["fillstyle"]) == (LINES[0], FILLS[0])


def test_a_figure_depends_on_the_styles_of_its_own_rows_only() -> None:
    rows = ["tnn", "s4"]
    alone, beside = (assign_styles(every) for every in (rows, [*rows, "delta", "mine"]))
    assert alone != beside
    assert list(styles_of(rows, beside).items()) == list(styles_of(reversed(rows), alone).items())


def test_rows_of_one_mixer_share_its_colour_and_differ_in_line_and_fill() -> None:
    rows = ["s4", *(f"s4 (mixer.d_state={n})" for n in range(6)), "s4: tuned"]
    styles = assign_styles(rows)
    assert {(style["color"], style["marker"]) for style in styles.values()} == {MIXERS["s4"]}
    assert len({tuple(style.values()) for style in styles.values()}) == len(rows)


def test_your_own_mixers_have_colours_that_no_other_has() -> None:
    rows = [f"Mine{k:02}" for k in range(2 * len(OWN_MIXERS))]
    styles = assign_styles([*rows, *MIXERS])
    own = [(styles[row]["color"], styles[row]["marker"]) for row in rows]
    assert not {colour for colour, _ in own} & {colour for colour, _ in MIXERS.values()}
    assert own[: len(OWN_MIXERS)] == list(OWN_MIXERS)
    assert len(set(own)) == len(own)
    assert all(marker in MARKERS for _, marker in own)
