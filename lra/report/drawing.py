"""Drawing that all figures use: colours that everyone can tell apart, sizes, labels and files."""

from __future__ import annotations

import io
import itertools
import math
import re
import textwrap
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8F8400")
"""Okabe and Ito's palette, its yellow darkened to show on white."""
LINES = ("-", "--", ":", "-.")
MARKERS = "osD^vPX*"

_RC: Any = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that all machines draw the same
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "svg.hashsalt": "lra",
    "figure.dpi": 160,
    "text.parse_math": False,  # names are text, whatever characters they have
}


def slugify(name: str) -> str:
    """Turn any text into one that can stand in a file's name."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", name)[:60].strip("-.") or "x"


@dataclass(frozen=True)
class ReportFigure:
    """A figure of the report, which is drawn when its files are asked for."""

    slug: str
    """The figure's name in files."""
    title: str
    caption: str
    draw: Callable[[], Figure]

    def files(self) -> dict[str, bytes]:
        """Draw the figure: PNG and SVG by file name, the same bytes for the same data."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.backends.backend_svg import FigureCanvasSVG

        png, svg = io.BytesIO(), io.BytesIO()
        with style(), warnings.catch_warnings():
            # Names may have letters that no font here has: they are drawn as boxes.
            warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)
            figure = self.draw()
            arrange(figure)
            # `savefig` would draw each twice.
            FigureCanvasAgg(figure).print_png(png, metadata={"Software": None})
            FigureCanvasSVG(figure).print_svg(svg, metadata={"Date": None, "Creator": None})
        return {f"{self.slug}.png": png.getvalue(), f"{self.slug}.svg": svg.getvalue()}


def style(changes: Mapping[str, Any] | None = None) -> AbstractContextManager[None]:
    """Return the context that figures are drawn in.

    Args:
        changes: settings of matplotlib that stand over the report's own, such as "font.size".
    """
    import matplotlib as mpl

    usual: Any = {"figure.figsize": (WIDTH, HEIGHT), **_RC}
    return mpl.rc_context(usual | dict(changes or {}))


WIDTH, HEIGHT = 5.8, 3.9
"""Size of a figure without its legend, in inches: text is readable on a phone, too."""
_LEGEND_LINE = 0.19
"""Height of a line of the legend, in inches."""
_LEGEND_LETTERS = 76
"""Number of letters that fit beside each other below a figure of the usual width."""


def new_figure(
    legend: Iterable[str] = (), *, width: float | None = None, height: float | None = None
) -> Figure:
    """Make an empty figure, with room for a legend of these names below it.

    Args:
        legend: names in the legend.
        width: in inches; None for that of the style.
        height: in inches without the legend; None for that of the style.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = [legend_name(name) for name in legend]
    rows = math.ceil(len(names) / _legend_columns(names)) if names else 0
    lines = rows * max((name.count("\n") + 1 for name in names), default=0)
    usual_width, usual_height = mpl.rcParams["figure.figsize"]
    size = (width or usual_width, (height or usual_height) + _LEGEND_LINE * lines)
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(
        figure
    )  # has one renderer to measure text with; without it, each text makes its own
    return figure


def arrange(figure: Figure) -> None:
    """Find places for axes and legends once; otherwise every drawing would do so again."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    if isinstance(figure.get_layout_engine(), ConstrainedLayoutEngine):
        figure.draw_without_rendering()
        figure.set_layout_engine("none")


def log_scale(axes: Axes) -> None:
    """Make the y axis logarithmic, with decimal numbers at its ticks.

    Matplotlib's own labels are in mathematical notation, which is not parsed here.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_yscale("log")
    axis = axes.yaxis
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def length_scale(axes: Axes, lengths: Iterable[int]) -> None:
    """Make the x axis logarithmic, with a tick at each of these lengths in positions."""
    from matplotlib.ticker import NullFormatter, NullLocator

    every = sorted(set(lengths))
    axes.set_xscale("log", base=2)
    axes.set_xticks(every, [f"{length:,}" for length in every])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("length, positions")


def legend_name(name: str) -> str:
    """Wrap a long name, and hide a leading underscore from matplotlib, which would leave it out."""
    name = f"\N{THIN SPACE}{name}" if name.startswith("_") else name
    return "\n".join(textwrap.wrap(name, _legend_letters() - 6))


def _legend_letters() -> int:
    """Return the number of letters that fit beside each other below a figure of this style."""
    import matplotlib as mpl

    letters = mpl.rcParams["figure.figsize"][0] / mpl.rcParams["font.size"]
    return round(_LEGEND_LETTERS * letters * _RC["font.size"] / WIDTH)


def _legend_columns(names: Sequence[str]) -> int:
    longest = max((len(line) for name in names for line in name.split("\n")), default=1)
    return max(1, min(len(names), 5, _legend_letters() // (longest + 6)))


def legend_below(axes: Axes) -> list[Any]:
    """Put the legend below the axes, where it hides nothing; return its handles."""
    handles, names = axes.get_legend_handles_labels()
    assert handles, "give what is drawn a label, by `legend_name`"
    columns = _legend_columns(names)
    legend = axes.figure.legend(handles, names, loc="outside lower center", ncols=columns)
    return list(legend.legend_handles)


class Looks:
    """A colour, a line and a marker for every method, the same in all figures of a report."""

    def __init__(self, methods: Iterable[str]) -> None:
        self._index = {name: i for i, name in enumerate(sorted(set(methods)))}

    def colour(self, method: str) -> str:
        """Return a method's colour; after eight methods, colours recur with other lines."""
        return COLOURS[self._index[method] % len(COLOURS)]

    def line(self, method: str) -> dict[str, Any]:
        """Return the arguments with which matplotlib draws a method's line."""
        cycle = self._index[method] // len(COLOURS)
        return {
            "color": self.colour(method),
            "linestyle": LINES[cycle % len(LINES)],
            "marker": MARKERS[cycle % len(MARKERS)],
        }


@dataclass(frozen=True)
class _Box:
    left: float
    bottom: float
    right: float
    top: float

    def overlaps(self, other: _Box) -> bool:
        return (
            self.left < other.right
            and other.left < self.right
            and self.bottom < other.top
            and other.bottom < self.top
        )

    def inside(self, other: _Box) -> bool:
        return (
            other.left <= self.left
            and self.right <= other.right
            and other.bottom <= self.bottom
            and self.top <= other.top
        )

    def nearest_point(self, x: float, y: float) -> tuple[float, float]:
        """Return the point of the box that is nearest to a given one."""
        return min(max(x, self.left), self.right), min(max(y, self.bottom), self.top)

    def distance(self, x: float, y: float) -> float:
        """Return how far a point is from the box."""
        return math.dist(self.nearest_point(x, y), (x, y))


def place_labels(
    axes: Axes,
    points: Sequence[tuple[float, float]],
    texts: Sequence[str],
    areas: Sequence[float],
    colours: Sequence[str],
) -> None:
    """Write a label for each bubble, so that no label covers another or leaves the axes.

    A label is as near to its bubble as other bubbles and labels allow, and has a thin line to its
    bubble if it is not beside it. Limits and scales of the axes must be final.

    Args:
        axes: axes that the bubbles are drawn in.
        points: centres of the bubbles, in data coordinates.
        texts: the labels.
        areas: areas of the bubbles, in square points.
        colours: colours of the lines from labels to bubbles.
    """
    figure = axes.get_figure(root=True)
    assert figure is not None
    arrange(figure)
    scale = 72 / figure.dpi  # pixels to points
    extent = axes.get_window_extent()
    frame = _Box(*(edge * scale for edge in extent.extents))
    where = [tuple(axes.transData.transform(point) * scale) for point in points]
    radii = [math.sqrt(area / math.pi) for area in areas]
    taken: list[_Box] = []
    for i in sorted(range(len(texts)), key=lambda i: (-where[i][1], where[i][0], texts[i])):
        label = axes.annotate(
            texts[i], points[i], xytext=(0, 0), textcoords="offset points", fontsize=8,
            ha="center", va="center", in_layout=False, annotation_clip=False,
        )  # fmt: skip
        size = label.get_window_extent()
        half = (size.width * scale / 2 + 3, size.height * scale / 2 + 1)
        circles = list(zip(where, radii, strict=True))
        best = _best_place(circles[i], half, circles, frame, taken)
        if best is None:
            label.remove()  # the legend still names it
            continue
        box, (dx, dy) = best
        taken.append(box)
        label.set_position((dx, dy))
        if box.distance(*where[i]) > radii[i] + 4:
            near = box.nearest_point(*where[i])
            end = (near[0] - where[i][0], near[1] - where[i][1])
            axes.annotate(
                "", points[i], xytext=end, textcoords="offset points", in_layout=False,
                arrowprops={"arrowstyle": "-", "color": colours[i], "linewidth": 1.0},
                zorder=1, annotation_clip=False,
            )  # fmt: skip


_Circle = tuple[tuple[float, ...], float]
"""A circle by its middle (x, y) and its radius."""


def _best_place(
    own: _Circle,
    half: tuple[float, float],
    circles: Sequence[_Circle],
    frame: _Box,
    taken: Sequence[_Box],
) -> tuple[_Box, tuple[float, float]] | None:
    """Find a place for a label of half sizes `half` near the circle `own`; None if there is none.

    Returns: the label's box, and the offset of its middle from that of the circle.
    """
    (x, y), radius = own
    found = []
    for away, direction in itertools.product(range(2, 160, 6), range(16)):
        angle = 2 * math.pi * direction / 16
        # The middle of a box that nearly touches a circle of radius `radius + away` at this angle.
        dx = (radius + away) * math.cos(angle) + half[0] * math.cos(angle)
        dy = (radius + away) * math.sin(angle) + half[1] * math.sin(angle)
        box = _Box(x + dx - half[0], y + dy - half[1], x + dx + half[0], y + dy + half[1])
        if not box.inside(frame) or any(box.overlaps(other) for other in taken):
            continue
        covered = sum(box.distance(*middle) < reach for middle, reach in circles)
        found.append((away + 40 * covered, direction % 4 != 0, direction, box, (dx, dy)))
    if not found:
        return None
    *_, box, offset = min(found, key=lambda candidate: candidate[:3])
    return box, offset
