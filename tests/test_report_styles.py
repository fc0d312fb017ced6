"""Colours and markers of mixers: different in every figure, on white and on the dark page."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from conftest import ROOT
from lra.report.styles import MIXERS, OWN_MIXERS

LOOKS = {**MIXERS, **{f"own {k}": look for k, look in enumerate(OWN_MIXERS)}}
GRAY = "#7f7f7f"
SEES_ALL = np.eye(3)
EYES = {
    "no red": [[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]],
    "no green": [[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]],
}
"""How eyes without one kind of cones see red, green and blue: Machado et al. (2009), severity 1."""
TO_XYZ = np.array([[0.4125, 0.3576, 0.1804], [0.2127, 0.7152, 0.0722], [0.0193, 0.1192, 0.9503]])


def linear(colour: str) -> np.ndarray:
    values = np.array([int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def distance(one: str, other: str, seen: np.ndarray = SEES_ALL) -> float:
    """Return the distance in CIE L*a*b* of two colours as an eye with the matrix `seen` sees it."""
    found = []
    for colour in (one, other):
        xyz = TO_XYZ @ np.clip(seen @ linear(colour), 0, 1) / (0.9505, 1, 1.0888)
        x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
        found.append(np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)]))
    return float(np.linalg.norm(found[0] - found[1]))


@pytest.mark.parametrize("eye", EYES)
def test_colours_differ_from_gray_and_each_other_and_of_one_marker_for_all_eyes(eye: str) -> None:
    for one, other in itertools.combinations([*LOOKS.values(), (GRAY, "")], 2):
        assert distance(one[0], other[0]) > 14, (one, other)
        if one[1] == other[1]:
            assert distance(one[0], other[0], np.array(EYES[eye])) > 12.5, (one, other)


def test_colours_can_be_seen_on_white_and_on_the_dark_page() -> None:
    css = (ROOT / "lra" / "report" / "page" / "page.css").read_text()
    papers = {*re.findall(r"--paper: (#\w+)", css)}
    assert len(papers) == 2
    for colour in [colour for colour, _ in LOOKS.values()]:
        for paper in papers:
            low, high = sorted(float(TO_XYZ[1] @ linear(one)) for one in (colour, paper))
            assert (high + 0.05) / (low + 0.05) > 2.95, (colour, paper)
