"""Drawing that all figures use: colours that everyone can tell apart, sizes, labels and files."""

from __future__ import annotations

import hashlib
import io
import math
import statistics
import textwrap
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from lra.report.figures.svg import compact

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000",
           "#AA3377", "#666633", "#663333", "#00429D", "#A50F15")  # fmt: skip
"""Okabe and Ito's palette without its yellow, which is hard to see on white, and five colours that
stay apart from it and from each other for eyes that lack one kind of cones."""
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
    "svg.fonttype": "none",  # text stays text, which can be searched, and is small
    "path.simplify_threshold": 0.3,  # pixels: finer detail is not seen, but makes large files
    "figure.dpi": 160,
    "text.parse_math": False,  # names are text, whatever characters they have
}


@dataclass(frozen=True)
class ReportFigure:
    """A figure of the report, which is drawn when its files are asked for."""

    slug: str
    """The figure's name in files."""
    title: str
    caption: str
    draw: partial[Figure]
    """Draws the figure; its arguments are all that it is drawn from."""
    is_wide: bool = False
    """Whether it needs a whole row of the page."""

    @property
    def digest(self) -> str:
        """Return a hash of the numbers that are drawn, for the names of files."""
        drawn = self.draw.func.__qualname__, self.draw.args, self.draw.keywords
        return hashlib.sha256(repr(drawn).encode()).hexdigest()[:8]

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
        return {f"{self.slug}.png": png.getvalue(), f"{self.slug}.svg": compact(svg.getvalue())}


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
_LINE = 0.19
"""Height of a line of text, in inches."""
_LABEL_LETTERS = 24
"""Number of letters after which a label in a figure goes on in another line."""
_LEGEND_LETTERS = 76
"""Number of letters that fit beside each other below a figure of the usual width."""


def new_figure(
    legend: Iterable[str] = (), *, width: float | None = None, height: float | None = None
) -> Figure:
    """Make an empty figure, with room for a legend of these names below it.

    Args:
        legend: names in the legend.
        width: in inches, if a column is as wide; None for that of the style.
        height: in inches without the legend; None for that of the style.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = [legend_name(name) for name in legend]
    rows = math.ceil(len(names) / _legend_columns(names)) if names else 0
    lines = rows * max((name.count("\n") + 1 for name in names), default=0)
    usual_width, usual_height = mpl.rcParams["figure.figsize"]
    inches = min(width or usual_width, column_width() or math.inf)
    size = (inches, (height or usual_height) + _LINE * lines)
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(
        figure
    )  # has one renderer to measure text with; without it, each text makes its own
    return figure


def column_width() -> float | None:
    """Return the inches that no figure of this style may exceed; None if there is no limit."""
    import matplotlib as mpl

    width = mpl.rcParams["figure.figsize"][0]
    return None if width == WIDTH else width


def figure_with_labels(texts: Iterable[str]) -> Figure:
    """Make an empty figure with room for labels of these texts, one below the other."""
    import matplotlib as mpl

    lines = sum(label_text(text).count("\n") + 1 for text in texts)
    usual_height = mpl.rcParams["figure.figsize"][1]
    return new_figure(width=WIDTH + 0.6, height=max(usual_height, _LINE * lines + 0.8))


def arrange(figure: Figure) -> None:
    """Find places for axes and legends once; otherwise every drawing would do so again."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    engine = figure.get_layout_engine()
    if isinstance(engine, ConstrainedLayoutEngine):
        engine.execute(figure)
        figure.set_layout_engine("none")


def log_scale(axes: Axes, which: Literal["x", "y"] = "y") -> None:
    """Make an axis logarithmic, with decimal numbers at its ticks.

    Matplotlib's own labels are in mathematical notation, which is not parsed here.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.set(**{f"{which}scale": "log"})
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = sorted(axis.get_view_interval())
    most = 1000
    if which == "x":  # numbers beside each other need more room
        most = 100 if column_width() is None else 10
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < most * low else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_locator(NullLocator())


def is_stretched(ends: Sequence[float]) -> bool:
    """Whether one value would push the others into a corner: it is over twice their median."""
    return min(ends) > 0 and max(ends) > 2 * statistics.median_low(ends)


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


def label_text(text: str) -> str:
    """Break a long label into lines; lines that it has already stay apart."""
    lines = [line for part in text.split("\n") for line in textwrap.wrap(part, _LABEL_LETTERS)]
    return "\n".join(lines)


def _legend_columns(names: Sequence[str]) -> int:
    longest = max((len(line) for name in names for line in name.split("\n")), default=1)
    return max(1, min(len(names), 5, _legend_letters() // (longest + 6)))


def legend_below(axes: Axes, *others: Axes) -> list[Any]:
    """Put the legend of axes below them, where it hides nothing; return its handles."""
    handles: dict[str, Any] = {}
    for panel in (axes, *others):
        found, names = panel.get_legend_handles_labels()
        handles |= zip(map(str, names), found, strict=True)
    assert handles, "give what is drawn a label, by `legend_name`"
    columns = _legend_columns(list(handles))
    legend = axes.figure.legend(
        list(handles.values()), list(handles), loc="outside lower center", ncols=columns
    )
    return list(legend.legend_handles)


class Looks:
    """A colour, a line and a marker for every method, the same in all figures of a report."""

    def __init__(self, methods: Iterable[str]) -> None:
        # Names of several words are of changed settings: mixers as they come have colours first.
        ordered = sorted(set(methods), key=lambda name: (" " in name, name))
        self._index = {name: i for i, name in enumerate(ordered)}

    def __repr__(self) -> str:
        return f"Looks({list(self._index)})"

    def colour(self, method: str) -> str:
        """Return a method's colour; after twelve methods, colours recur with other lines."""
        return COLOURS[self._index[method] % len(COLOURS)]

    def line(self, method: str) -> dict[str, Any]:
        """Return the arguments with which matplotlib draws a method's line."""
        cycle = self._index[method] // len(COLOURS)
        return {
            "color": self.colour(method),
            "linestyle": LINES[cycle % len(LINES)],
            "marker": MARKERS[cycle % len(MARKERS)],
        }
