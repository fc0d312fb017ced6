"""How charts look: Vega-Lite specifications, which the page shows and figures are drawn from.

Points have the fields x, y, low, high, size, row, line, colour, shape, dash, width, opacity, stroke
and tip.
"""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lra.report.charts import Chart, Field, lines_of_table
from lra.report.styles import Styles, assign_styles
from lra.report.tables.results import RANKS
from lra.report.tables.table import Table

POINTS = "points"
"""Name of the data of a specification, which it comes without."""
LARGEST_AREA = 500
"""Area of the largest bubble, in square pixels."""
FONT = "Liberation Sans, Arial, sans-serif"
"""The first comes with vl-convert, so that all machines draw the same."""
CONFIG = {
    "background": "transparent",
    "font": FONT,
    "view": {"stroke": "transparent"},
    "axis": {"titleFontWeight": 400, "titleFontSize": 13, "labelFontSize": 12},
    "axisX": {"labelSeparation": 8, "labelBound": 16, "tickCount": 7},
    "scale": {"zero": False},
    "header": {"labelFontSize": 13},
}
NAMES: dict[str, Any] = {
    "type": "text",
    "encode": {
        "enter": {
            "text": {"field": "row"}, "fill": {"field": "colour"}, "fontSize": {"value": 11},
            "font": {"value": FONT}, "fontWeight": {"value": 600},
        }
    },
    "transform": [
        {
            "type": "label", "padding": 0,
            "anchor": ["right", "left", "top", "bottom", "top-right", "bottom-right"] * 3,
            "offset": [distance for distance in (12, 15, 18) for _ in range(6)],
        }
    ],
}  # fmt: skip
"""Vega's mark of the names of bubbles, where there is room: Vega-Lite has none."""
LEGEND = {
    "title": None, "symbolLimit": 0, "symbolType": "stroke", "symbolSize": 500, "symbolOpacity": 1,
    "labelLimit": 240,
}  # fmt: skip
_MOST_TICKS = 12
"""Most numbers on the x axis that are named at its ticks."""
_MOST_ROWS = 3
"""Most rows of panels."""
_WIDEST_PANEL, _AXIS_ROOM, _LEGEND_ROOM = 450, 55, 150
"""Pixels of the widest panel, with the labels of its axis; of these labels; and of a legend."""


def specify(
    kind: str,
    fields: Mapping[str, Field] | None = None,
    places: Sequence[float] = (),
    looks: Styles | None = None,
) -> dict[str, Any]:
    """Specify the layers of a chart, the intervals first.

    Args:
        kind: bubbles or lines.
        fields: what the axes and the area show. None: their titles and scales are set later.
        places: numbers on the x axis that have ticks. Without any, Vega-Lite chooses them.
        looks: the rows that a legend names.
    """

    def on_axis(field: str, axis: str) -> dict[str, Any]:
        """Encode what points have in a field by its place on an axis."""
        scale: dict[str, Any] = {"padding": 30 if kind == "bubbles" else 16, "nice": False}
        node: dict[str, Any] = {"field": field, "type": "quantitative", "scale": scale}
        if fields:
            node["title"] = fields[axis].title
            scale |= {"type": "log"} if fields[axis].is_logarithmic else {}
        return node

    def as_given(field: str, type_: str = "nominal") -> dict[str, Any]:
        """Encode what points have in a field as it is, such as a colour."""
        if looks and field in ("colour", "dash"):
            scale = {"domain": [*looks], "range": [look[field] for look in looks.values()]}
            return {"field": "row", "type": type_, "scale": scale, "legend": LEGEND, "sort": None}
        return {"field": field, "type": type_, "scale": None, "legend": None}

    def layer(mark: str, look: dict[str, Any], **encoding: Any) -> dict[str, Any]:
        return {"mark": {"type": mark, **look}, "encoding": encoding}

    x, y, low = on_axis("x", "x"), on_axis("y", "y"), {"title": None, **on_axis("low", "y")}
    x |= {"axis": {"values": [*places]}} if places else {}
    scale = {"range": [0, LARGEST_AREA], "zero": True}
    size = {"field": "size", "type": "quantitative", "scale": scale, "legend": None}
    if fields and "size" in fields:
        legend = {"orient": "bottom", "tickCount": 2}
        size |= {"title": fields["size"].title, "legend": legend}
    shared = {
        "x": x, "color": as_given("colour"), "opacity": as_given("opacity", "quantitative"),
        "tooltip": {"field": "tip", "type": "nominal"},
    }  # fmt: skip
    layers = [layer("rule", {"strokeWidth": 1.2}, y=low, y2={"field": "high"})]
    if kind == "bubbles":
        circle = {"y": y, "stroke": as_given("stroke"), "size": size}
        layers.append(layer("circle", {"strokeWidth": 2.5}, **circle))
    else:
        shared["detail"] = {"field": "line", "type": "nominal"}
        width = as_given("width", "quantitative")
        layers.append(layer("line", {}, y=y, strokeDash=as_given("dash"), strokeWidth=width))
        points = {"filled": True, "size": 50}
        layers.append(layer("point", points, y=y, shape=as_given("shape")))
    return {"encoding": shared, "layer": layers}


SPECIFICATIONS = {
    kind: {
        "data": {"name": POINTS}, "width": "container", "height": 380, **specify(kind),
        "config": CONFIG,
    }
    for kind in ("bubbles", "lines")
}  # fmt: skip
"""The Vega-Lite specification of each kind of chart on the page, without points."""


@dataclass(frozen=True)
class Figure:
    """A chart as a file, with a panel beside the other."""

    slug: str
    """The figure's name in files."""
    title: str
    caption: str
    chart: Chart
    styles: Styles

    @property
    def digest(self) -> str:
        """Return a hash of the numbers that are drawn, for the names of files.

        Numbers are rounded: their last digits differ between processors and versions of Python.
        """
        points = [
            {name: f"{v:.6g}" if isinstance(v, float) else v for name, v in point.items()}
            for point in self.chart.points
        ]
        rounded = replace(self.chart, points=points)
        return hashlib.sha256(repr((rounded, self.title)).encode()).hexdigest()[:8]

    @property
    def drawn_points(self) -> list[dict[str, Any]]:
        """The points that have a number for each axis, with their looks."""
        points = [
            {
                **point, **self.styles[point["row"]],
                "line": point["row"], "opacity": 0.9, "stroke": "white", "width": 2,
                **{axis: point.get(name) for axis, name in self.chart.axes.items()},
            }
            for point in self.chart.points
        ]  # fmt: skip
        return [p for p in points if all(p[axis] is not None for axis in self.chart.axes)]

    def svg(self, width: float = 860) -> str:
        """Draw the figure as SVG of about a width in pixels."""
        from vl_convert import vega_to_svg, vegalite_to_vega

        vega = vegalite_to_vega(self._specification(width))
        for cell in vega["marks"] if self.chart.kind == "bubbles" else ():
            for mark in [mark for mark in cell.get("marks", ()) if mark["type"] == "symbol"]:
                names = copy.deepcopy(NAMES)
                names["from"] = mark["from"]
                names["encode"]["update"] = {n: mark["encode"]["update"][n] for n in ("x", "y")}
                names["transform"][0]["size"] = {"signal": "[child_width, child_height]"}
                cell["marks"].append(names)
        return vega_to_svg(vega)

    def pdf(self, width: float) -> bytes:
        """Draw the figure as PDF of a width in points."""
        from vl_convert import svg_to_pdf

        return svg_to_pdf(self.svg(width))

    def _specification(self, width: float) -> dict[str, Any]:
        points, is_lines = self.drawn_points, self.chart.kind == "lines"
        rows = dict.fromkeys(point["row"] for point in points)
        places = sorted({point["x"] for point in points})
        panels = [name for name in self.chart.panels if any(p["panel"] == name for p in points)]
        columns = max(math.ceil(width / _WIDEST_PANEL), math.ceil(len(panels) / _MOST_ROWS))
        columns = min(len(panels), columns)
        panel_width = (width - _LEGEND_ROOM * is_lines) / columns - _AXIS_ROOM
        by_name = {
            field.name: replace(field, title=field.title.partition(", on ")[0])
            for field in self.chart.fields
        }
        layers = specify(
            self.chart.kind,
            {axis: by_name[name] for axis, name in self.chart.axes.items()},
            places if is_lines and len(places) <= _MOST_TICKS else (),
            {row: self.styles[row] for row in rows} if is_lines else None,
        )
        label = "datum.label" if len(panels) > 1 else "''"
        facet = {"field": "panel", "type": "nominal", "title": None, "sort": panels}
        return {
            "data": {"name": POINTS},
            "facet": {**facet, "header": {"labelExpr": label}},
            "columns": columns,
            "spec": {"width": panel_width, "height": 0.75 * panel_width, **layers},
            "resolve": {"scale": {"x": "independent", "y": "independent"}},
            "datasets": {POINTS: points},
            "config": {**CONFIG, "background": "white"},
        }


def figures_of_table(table: Table, styles: Styles) -> list[Figure]:
    """Draw the lines of a table, if it has any."""
    has_deviations = any(e.deviation is not None for c in table.columns for e in c.entries)
    deviations = "standard deviations over seeds or, for a single seed, " * has_deviations
    caption = f"{table.caption.replace(RANKS, '').strip()} Bars: {deviations}95 % intervals."
    # Rows of other charts may have the same dashes, and must not keep them from these rows.
    dashes = {row: look["dash"] for row, look in assign_styles(table.methods).items()}
    looks = {row: {**styles[row], "dash": dash} for row, dash in dashes.items()}
    return [
        Figure(table.slug, table.title, caption, chart, looks) for chart in lines_of_table(table)
    ]
