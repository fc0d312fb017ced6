"""Drawing that all figures use: sizes, lines, legends and files."""

from __future__ import annotations

import hashlib
import io
import math
import textwrap
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from lra.report.scores import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 5.8, 3.9
"""Size of a figure without a legend, in inches: text is readable on a phone, too."""
LEGEND_LINE = 0.16
"""Height of a line of a legend, in inches."""
_LEGEND_LETTERS = 24
"""Number of letters after which a name in a legend goes on in another line, at most; narrow columns
have fewer."""
_RC: Any = {
    "font.family": "sans-serif",
    # The first comes with matplotlib, so that all machines draw the same. A browser that lacks it
    # takes Verdana, which is as wide.
    "font.sans-serif": ["DejaVu Sans", "Verdana", "sans-serif"],
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "legend.labelspacing": 0.4,
    "lines.markersize": 4,
    "svg.hashsalt": "lra",
    "svg.fonttype": "none",  # text stays text, which can be searched, and is small
    "path.simplify_threshold": 0.3,  # pixels: finer detail is not seen, but makes large files
    "figure.dpi": 160,
    "figure.figsize": (WIDTH, HEIGHT),
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
    """Whether it needs both columns of a paper that has two."""

    @property
    def digest(self) -> str:
        """Return a hash of the numbers that are drawn, for the names of files."""
        drawn = self.draw.func.__qualname__, self.draw.args, self.draw.keywords
        return hashlib.sha256(repr(drawn).encode()).hexdigest()[:8]

    def svg(self) -> bytes:
        """Draw the figure as SVG, the same bytes for the same data."""
        from matplotlib.backends.backend_svg import FigureCanvasSVG

        content = io.BytesIO()
        with style(), warnings.catch_warnings():
            # Names may have letters that no font here has: they are drawn as boxes.
            warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)
            figure = self.draw()
            arrange(figure)
            # `savefig` would draw it twice.
            nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
            FigureCanvasSVG(figure).print_svg(content, metadata=nothing)
        return content.getvalue()


def style(changes: Mapping[str, Any] | None = None) -> AbstractContextManager[None]:
    """Return the context that figures are drawn in.

    Args:
        changes: settings of matplotlib that stand over the report's own, such as "font.size".
    """
    import matplotlib as mpl

    return mpl.rc_context(_RC | dict(changes or {}))


def new_figure(
    names: Iterable[str] = (), *, width: float | None = None, height: float | None = None
) -> Figure:
    """Make an empty figure that is high enough for a legend of these names.

    Args:
        names: names in the legend.
        width: in inches, if a column is as wide; None for that of the style.
        height: in inches, if the legend is no higher; None for that of the style.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    lines = [line for name in names for line in legend_name(name).split("\n")]
    usual_width, usual_height = mpl.rcParams["figure.figsize"]
    inches = width or usual_width + 0.6 * bool(lines)
    size = (
        min(inches, column_width() or math.inf),
        max(height or usual_height, LEGEND_LINE * len(lines) + 0.8 * bool(lines)),
    )
    figure = Figure(figsize=size, layout="constrained")
    # This canvas has one renderer to measure text with; without it, each text makes its own.
    FigureCanvasAgg(figure)
    return figure


def column_width() -> float | None:
    """Return the inches that no figure of this style may exceed; None if there is no limit."""
    import matplotlib as mpl

    width = mpl.rcParams["figure.figsize"][0]
    return None if width == WIDTH else width


def arrange(figure: Figure) -> None:
    """Find places for axes and legends once; otherwise every drawing would do so again."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    engine = figure.get_layout_engine()
    if isinstance(engine, ConstrainedLayoutEngine):
        engine.execute(figure)
        figure.set_layout_engine("none")


def draw_intervals(
    axes: Axes, x: Sequence[float], intervals: Sequence[Interval], colour: str
) -> None:
    """Draw a vertical bar at each x, from the lower to the upper end of its interval."""
    low, high = zip(*intervals, strict=True)
    axes.vlines(x, low, high, color=colour, linewidth=0.8, zorder=1.5)


def set_log_scale(axes: Axes, which: Literal["x", "y"] = "y") -> None:
    """Make an axis logarithmic, with decimal numbers at its ticks.

    Matplotlib's own labels are in mathematical notation, which is not parsed here.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.set(**{f"{which}scale": "log"})
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = sorted(axis.get_view_interval())
    most = 1000
    if which == "x":  # numbers beside each other need more room, above all long ones
        most = 100 if column_width() is None or high < most else 10
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < most * low else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_locator(NullLocator())


def set_length_scale(axes: Axes, lengths: Iterable[float]) -> None:
    """Make the x axis logarithmic, with a tick at each of these numbers, or at powers of 4."""
    from matplotlib.ticker import NullFormatter, NullLocator

    most = 9
    ticks = sorted({round(length) for length in lengths})
    if len(ticks) > most:
        ticks = [4**k for k in range(20) if ticks[0] <= 4**k <= ticks[-1]]
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [f"{length:,}" for length in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())


def legend_name(name: str) -> str:
    """Wrap a long name, and hide a leading underscore from matplotlib, which would leave it out."""
    import matplotlib as mpl

    name = f"\N{THIN SPACE}{name}" if name.startswith("_") else name
    most = min(_LEGEND_LETTERS, round(5 * mpl.rcParams["figure.figsize"][0]))
    return "\n".join(line for part in name.split("\n") for line in textwrap.wrap(part, most))


def add_legend(figure: Figure) -> None:
    """Put a legend right of the axes, of names with the highest line at the top."""
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(str(name), handle)
    ordered = dict(sorted(handles.items(), key=lambda item: -_last_height(item[1])))
    if ordered:
        figure.legend(list(ordered.values()), list(ordered), loc="outside right upper")


def _last_height(handle: Any) -> float:
    """Return the last y of a line, or of bubbles."""
    from matplotlib.collections import PathCollection

    if isinstance(handle, PathCollection):
        return float(np.asarray(handle.get_offsets())[-1, 1])
    return float(handle.get_ydata()[-1])
