"""How charts look: Vega-Lite specifications, which the page shows and figures are drawn from.

Points have the fields x, y, low, high, size, row, line, colour, shape, dash, width, opacity, stroke
and tip.
"""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lra.report.charts import Chart, lines_of_table
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
_MOST_TICKS = 12
"""Most numbers on the x axis that are named at its ticks."""
_MOST_ROWS = 3
"""Most rows of panels."""
_WIDEST_PANEL, _AXIS_ROOM, _LEGEND_ROOM = 450, 55, 150
"""Pixels of the widest panel, with the labels of its axis; of these labels; and of a legend."""


def _number(field: str, padding: int = 0) -> dict[str, Any]:
    """Encode what points have in a field by its place on an axis."""
    return {"field": field, "type": "quantitative", "scale": {"padding": padding, "nice": False}}


def _as_given(field: str) -> dict[str, Any]:
    """Encode what points have in a field as it is, such as a colour."""
    return {"field": field, "type": "nominal", "scale": None, "legend": None}


def _layer(mark: str, looks: dict[str, Any], **encoding: Any) -> dict[str, Any]:
    return {"mark": {"type": mark, **looks}, "encoding": encoding}


def _specify(padding: int, detail: dict[str, Any], *layers: dict[str, Any]) -> dict[str, Any]:
    """Specify a chart of layers over the same axes, the intervals first."""
    ends = {"y": _number("low", padding) | {"title": None}, "y2": {"field": "high"}}
    encoding = {
        "x": _number("x", padding),
        "color": _as_given("colour"),
        "opacity": _as_given("opacity") | {"type": "quantitative"},
        "tooltip": {"field": "tip", "type": "nominal"},
        **detail,
    }
    intervals = _layer("rule", {"strokeWidth": 1.2}, **ends)
    return {
        "data": {"name": POINTS}, "width": "container", "height": 380, "encoding": encoding,
        "layer": [intervals, *layers], "config": CONFIG,
    }  # fmt: skip


_AREA = {"range": [0, LARGEST_AREA], "zero": True}
SPECIFICATIONS = {
    "bubbles": _specify(
        30, {},
        _layer("circle", {"strokeWidth": 2.5}, y=_number("y", 30), stroke=_as_given("stroke"),
               size={"field": "size", "type": "quantitative", "scale": _AREA, "legend": None}),
    ),
    "lines": _specify(
        16, {"detail": {"field": "line", "type": "nominal"}},
        _layer("line", {}, y=_number("y", 16), strokeDash=_as_given("dash"),
               strokeWidth=_as_given("width") | {"type": "quantitative"}),
        _layer("point", {"filled": True, "size": 50}, y=_number("y", 16),
               shape=_as_given("shape")),
    ),
}  # fmt: skip
"""The Vega-Lite specification of each kind of chart, without points."""


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
        """Return a hash of the numbers that are drawn, for the names of files."""
        return hashlib.sha256(repr((self.chart, self.title)).encode()).hexdigest()[:8]

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
        """Draw the figure as SVG.

        Args:
            width: width of the figure in pixels, about.
        """
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
        points, has_legend = self.drawn_points, self.chart.kind != "bubbles"
        panels = [name for name in self.chart.panels if any(p["panel"] == name for p in points)]
        columns = max(math.ceil(width / _WIDEST_PANEL), math.ceil(len(panels) / _MOST_ROWS))
        columns = min(len(panels), columns)
        cell = copy.deepcopy(SPECIFICATIONS[self.chart.kind])
        config = cell.pop("config") | {"background": "white"}
        cell["width"] = (width - _LEGEND_ROOM * has_legend) / columns - _AXIS_ROOM
        cell["height"] = 0.75 * cell["width"]
        self._name_axes(cell)
        if has_legend:
            self._add_legend(cell)
        label = "datum.label" if len(panels) > 1 else "''"
        facet = {"field": "panel", "type": "nominal", "title": None, "sort": panels}
        return {
            "data": cell.pop("data"),
            "facet": {**facet, "header": {"labelExpr": label}},
            "columns": columns,
            "spec": cell,
            "resolve": {"scale": {"x": "independent", "y": "independent"}},
            "datasets": {POINTS: points},
            "config": config,
        }

    def _name_axes(self, cell: dict[str, Any]) -> None:
        """Add titles, scales and ticks of the axes."""
        by_name = {field.name: field for field in self.chart.fields}
        fields = {axis: by_name[name] for axis, name in self.chart.axes.items()}
        fields["low"] = fields["y"]
        places = sorted({point["x"] for point in self.drawn_points})
        for node in _nodes(cell):
            if (field := fields.get(node.get("field", ""))) is None:
                continue
            node["title"] = field.title.partition(", on ")[0]
            if node["field"] == "size":
                node["legend"] = {"orient": "bottom", "tickCount": 2}
            elif field.is_logarithmic:
                node["scale"] = {**node.get("scale", {}), "type": "log"}
            if node["field"] == "x" and "size" not in fields and len(places) <= _MOST_TICKS:
                node["axis"] = {"values": places}

    def _add_legend(self, cell: dict[str, Any]) -> None:
        """Name the rows by their colours and dashes."""
        rows = list(dict.fromkeys(point["row"] for point in self.drawn_points))
        legend = {
            "title": None, "symbolLimit": 0, "symbolType": "stroke", "symbolSize": 500,
            "symbolOpacity": 1, "labelLimit": 240,
        }  # fmt: skip
        for node in _nodes(cell):
            if (look := node.get("field")) in ("colour", "dash"):
                scale = {"domain": rows, "range": [self.styles[row][look] for row in rows]}
                node |= {"field": "row", "scale": scale, "legend": legend, "sort": None}


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


def _nodes(node: Any) -> Iterator[dict[str, Any]]:
    """List all objects in a specification."""
    children = node.values() if isinstance(node, Mapping) else node
    if isinstance(node, dict):
        yield node
    for child in [one for one in children if isinstance(one, (dict, list))]:
        yield from _nodes(child)
