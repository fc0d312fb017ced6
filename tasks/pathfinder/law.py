"""The law of Pathfinder: two dashed contours from the centre, distractors, two markers.

An image holds two target contours that grow alternately, dash by dash, and shorter distractors.
Two disks mark tips of the target contours: the first tip of one, and the last tip of the same
(label 1) or of the other (label 0). Each size and length of contour has a law of its own.
`primitives` draws what images are composed of, `contours` decides where it stands, and `draw`
composes the images.

The original is the "snakes" generator of Linsley et al., "Learning long-range spatial dependencies
with horizontal gated recurrent units", with the settings of the Long Range Arena. This package
follows `snakes2_wrapper.py`, `snakes2.py` and `snakes.py` of drewlinsley/pathfinder (commit
ab9c130) step by step. There a contour is a snake, a dash a paddle or segment, a direction an
orientation, a halo the mask of a segment, and a footprint the struct.
"""

from dataclasses import dataclass

CONTOURS = {6: "curv_baseline", 9: "curv_contour_length_9", 14: "curv_contour_length_14"}
"""Official names of the levels, by the number of dashes of a target contour."""


@dataclass(frozen=True, kw_only=True)
class Law:
    """All that determines the distribution of the images; lengths are in pixels."""

    size: int
    """Rows and columns of an image (window_size in the original)."""
    contour_dashes: int
    distractor_dashes: int
    distractors: int
    """Number of distractors asked for; distractors that find no room are left out."""
    dash_length: int
    thickness: float
    margins: tuple[int, ...]
    """Space kept free around a dash; each image draws one of these."""
    padding: int
    """Width of the frame that later dashes and distractors keep off, as if a dash filled it."""
    seed_distance: int
    """Distance between the starts of the target contours; the first keeps twice that from the
    border."""
    marker_radius: float
    antialias: int
    """Scale at which dashes and markers are drawn before they are reduced."""
    continuity: float
    """Factor on the angle between two dashes: the larger, the straighter the contour."""
    target_contrast: float
    distractor_contrast: float
    dash_draws: int = 3
    """Number of places drawn for a dash before its contour is given up."""
    distractor_draws: int = 5
    """Number of starts drawn for a distractor before it is left out."""
    rim: int = 1
    """Width of the frame that the footprint of a distractor's first dash keeps off; where it is
    within the padding, the padding does that already."""
    border_quirk: bool
    """Whether no contour starts in a direction whose footprint lies outside the image altogether
    when it is placed around some pixel, as in the original generator."""
    version: int = 2
    """Version of the law, raised whenever the same numbers above come to mean other images."""


_COLUMNS = (
    "dash_length", "thickness", "margins", "padding", "seed_distance", "marker_radius",
    "continuity", "target_contrast", "distractor_contrast",
)  # fmt: skip
_BY_SIZE = {
    32: (2, 0.5, (1,), 1, 7, 1.5, 1.0, 1.5, 2.0),
    64: (5, 1.0, (1,), 1, 12, 2.5, 1.8, 0.8, 0.8),
    128: (5, 1.5, (2, 3), 1, 20, 3.0, 1.8, 0.9, 0.9),
    256: (5, 2.0, (3,), 22, 27, 5.0, 1.8, 1.0, 1.0),
}
_DISTRACTOR_DASHES = {32: 20, 64: 22, 128: 35, 256: 30}
"""Number of dashes of all distractors of an image together, by the image's size."""


def find_law(size: int, contour: int, *, border_quirk: bool) -> Law:
    """Look up the law of a size and a number of dashes.

    Args:
        size: 32, 64, 128 or 256 pixels.
        contour: dashes of a target contour, 6, 9 or 14. How many distractors the official images
            of 6 and 9 ask for is not published; here their dashes add up as for 14.
        border_quirk: whether contours start in few directions at 32 pixels, as in the official
            images.
    """
    return Law(
        size=size,
        contour_dashes=contour,
        distractor_dashes=contour // 3,
        distractors=_DISTRACTOR_DASHES[size] // (contour // 3),
        antialias=2,
        border_quirk=border_quirk,
        **dict(zip(_COLUMNS, _BY_SIZE[size], strict=True)),
    )
