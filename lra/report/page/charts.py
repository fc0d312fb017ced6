"""The charts of the page: Vega-Lite specifications without points, which the page fills in.

Points have the fields x, y, low, high, size, row, line, label, colour, shape, dash, opacity, stroke
and tip. The page gives the axes x and y their titles.
"""

from __future__ import annotations

from typing import Any

POINTS = "points"
"""Name of the data that the page fills in."""
SHAPES = {
    "^": "triangle-up", "v": "triangle-down", "<": "triangle-left", ">": "triangle-right",
    "o": "circle", "s": "square", "D": "diamond", "P": "cross",
    "X": "M-1,-.4L-.4,-1L0,-.6L.4,-1L1,-.4L.6,0L1,.4L.4,1L0,.6L-.4,1L-1,.4L-.6,0Z",
    "*": "M0,-1L.3,-.3L1,-.3L.45,.15L.65,.9L0,.45L-.65,.9L-.45,.15L-1,-.3L-.3,-.3Z",
}  # fmt: skip
"""Vega's shapes of matplotlib's markers."""
DASHES = {"-": [1, 0], "--": [6, 4], ":": [2, 3], "-.": [7, 3, 2, 3]}
"""Vega's dashes of matplotlib's lines."""
EMBEDDING = {
    "renderer": "svg",
    "actions": {"export": True, "source": False, "compiled": False, "editor": False},
}
"""How the page embeds charts: each has a menu that saves it as a file."""
LARGEST_AREA = 900
"""Area of the largest bubble, in square pixels."""


def _as_given(channel: str, field: str) -> Any:
    """Encode what points have in a field as it is, such as a colour."""
    import altair as alt

    return getattr(alt, channel)(f"{field}:N", scale=None, legend=None)


def _base() -> Any:
    import altair as alt

    return alt.Chart(alt.NamedData(POINTS), width="container", height=380).encode(
        x=alt.X("x:Q", scale=alt.Scale(padding=16, nice=False)),
        y=alt.Y("y:Q", scale=alt.Scale(padding=16, nice=False)),
        color=_as_given("Color", "colour"),
        opacity=alt.Opacity("opacity:Q", scale=None, legend=None),
        tooltip="tip:N",
    )


def bubbles() -> Any:
    """Draw a circle for each point, with its interval, and names beside some."""
    import altair as alt

    base = _base().encode(
        x=alt.X("x:Q", scale=alt.Scale(padding=45)),
        y=alt.Y("y:Q", scale=alt.Scale(padding=32, nice=False)),
    )
    bars = base.mark_rule(strokeWidth=1.2).encode(y=alt.Y("low:Q", title=None), y2="high:Q")
    area = alt.Scale(range=[0, LARGEST_AREA], zero=True)
    circles = base.mark_circle(strokeWidth=2.5).encode(
        size=alt.Size("size:Q", scale=area, legend=None),
        stroke=alt.Stroke("stroke:N", scale=None, legend=None),
    )
    names = base.mark_text(dy=-22, fontSize=11, limit=130).transform_filter("datum.label")
    return bars + circles + names.encode(text="label:N", color=_as_given("Color", "ink"))


def _lines(x: Any) -> Any:
    import altair as alt

    base = _base().encode(x=x, detail="line:N")
    dashes = {
        "strokeDash": _as_given("StrokeDash", "dash"),
        "strokeWidth": alt.StrokeWidth("width:Q", scale=None, legend=None),
    }
    points = base.mark_point(filled=True, size=50).encode(shape=_as_given("Shape", "shape"))
    return base.mark_line().encode(**dashes) + points


def curves() -> Any:
    """Draw a line for each run."""
    import altair as alt

    return _lines(alt.X("x:Q"))


def lines() -> Any:
    """Draw a line for each row over numbers that double, such as lengths."""
    import altair as alt

    axis = alt.Axis(format=",d", tickCount=5)  # of more ticks, few would be powers of 2
    return _lines(alt.X("x:Q", scale=alt.Scale(type="log", base=2, nice=False), axis=axis))


def steps() -> Any:
    """Draw a line for each row over names, in the order of the table's columns."""
    import altair as alt

    return _lines(alt.X("x:O", sort=None, axis=alt.Axis(labelAngle=-30, labelLimit=160)))


def dots() -> Any:
    """Draw a point for each row, one below the other."""
    import altair as alt

    order = alt.Y("row:N", sort=None, title=None, axis=alt.Axis(labelLimit=190))
    points = _base().encode(y=order).mark_point(filled=True, size=80)
    return points.encode(shape=_as_given("Shape", "shape")).properties(height=alt.Step(18))


CHARTS = bubbles, curves, lines, steps, dots
"""The kinds of charts; each has the name of its function."""


def specifications() -> dict[str, Any]:
    """Return the Vega-Lite specification of each kind of chart, without points."""
    config = {
        "background": "transparent",
        "font": "system-ui, sans-serif",
        "view": {"stroke": "transparent"},
        "axis": {"titleFontWeight": 400, "titleFontSize": 13, "labelFontSize": 12},
        "axisX": {"labelSeparation": 8, "labelBound": 16, "tickCount": 7},
        "scale": {"zero": False},
    }
    return {draw.__name__: draw().to_dict(validate=False) | {"config": config} for draw in CHARTS}
