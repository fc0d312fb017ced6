"""How charts look: Vega-Lite specifications, which the page shows and figures are drawn from.

Points have the fields x, y, low, high, size, row, line, family, colour, shape, dash, width,
opacity, stroke and tip. In figures, those with a name beside them also have what `placing` adds.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lra.report.charts import Chart, Field, lines_of_table
from lra.report.placing import LETTER, LINE, PADDING, place_at_ends, place_beside
from lra.report.scores import group_by
from lra.report.styles import BASELINE, FAMILIES, GRAY, Styles, assign_styles
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
    "rule": {"color": "#333333"},
}
_ANCHORS = (
    "right", "left", "top", "bottom", "top-right", "bottom-right", "top-left", "bottom-left",
)  # fmt: skip
NAMES: dict[str, Any] = {
    "type": "text",
    "encode": {
        "enter": {
            "text": {"field": "datum.row"}, "fill": {"field": "datum.colour"},
            "fontSize": {"value": 11}, "font": {"value": FONT}, "fontWeight": {"value": 600},
        },
        "update": {"opacity": {"field": "datum.opacity"}},
    },
    "transform": [
        {
            "type": "label", "padding": 0, "anchor": [*_ANCHORS] * 8,
            "offset": [distance for distance in range(2, 34, 4) for _ in _ANCHORS],
        }
    ],
}  # fmt: skip
"""Vega's mark of the names of bubbles, where there is room: Vega-Lite has none."""
LEGEND = {
    "title": None, "orient": "bottom", "symbolType": "circle", "symbolOpacity": 1,
    "symbolSize": 90, "labelLimit": 0,
}  # fmt: skip
MOST_NAMED = 6
"""Rows of a figure of lines that have a colour, one's own not counted."""
OTHERS = "other rows"
"""Family of the rows whose lines have none."""
_ONE_OF_PANEL = [{"aggregate": [], "groupby": ["panel"]}]
_MOST_TICKS = 12
"""Most numbers on the x axis that are named at its ticks."""
_MOST_ROWS = 3
"""Most rows of panels."""
_WIDEST_PANEL, _AXIS_ROOM = 450, 55
"""Pixels of the widest panel, with the labels of its axis; and of these labels."""


def specify(
    kind: str,
    fields: Mapping[str, Field] | None = None,
    ticks: Sequence[float] = (),
    families: Mapping[str, str] | None = None,
    largest_area: float = LARGEST_AREA,
) -> dict[str, Any]:
    """Specify the layers of a chart.

    Args:
        kind: bubbles or lines.
        fields: what the axes and the area show. None: their titles and scales are set later.
        ticks: numbers on the x axis that have ticks. Without any, Vega-Lite chooses them.
        families: the families that a legend names, with their colours.
        largest_area: area of the largest bubble.
    """

    def on_axis(field: str, axis: str) -> dict[str, Any]:
        """Encode what points have in a field by its place on an axis."""
        scale: dict[str, Any] = {"padding": PADDING if kind == "bubbles" else 16, "nice": False}
        node: dict[str, Any] = {"field": field, "type": "quantitative", "scale": scale}
        if fields:
            node["title"] = fields[axis].title
            scale |= {"type": "log"} if fields[axis].is_logarithmic else {}
        return node

    def as_given(field: str, type_: str = "nominal") -> dict[str, Any]:
        """Encode what points have in a field as it is, such as a colour."""
        if families and field == "colour":
            scale = {"domain": [*families], "range": [*families.values()]}
            return {"field": "family", "type": type_, "scale": scale, "legend": LEGEND}
        return {"field": field, "type": type_, "scale": None, "legend": None}

    def layer(mark: str, look: dict[str, Any], **encoding: Any) -> dict[str, Any]:
        return {"mark": {"type": mark, **look}, "encoding": encoding}

    x, y, low = on_axis("x", "x"), on_axis("y", "y"), {"title": None, **on_axis("low", "y")}
    x |= {"axis": {"values": [*ticks]}} if ticks else {}
    scale = {"range": [0, largest_area], "zero": True}
    size = {"field": "size", "type": "quantitative", "scale": scale, "legend": None}
    if fields and "size" in fields:
        legend = {"orient": "bottom", "tickCount": 2}
        size |= {"title": fields["size"].title, "legend": legend}
    shared = {
        "x": x, "opacity": as_given("opacity", "quantitative"),
        "tooltip": {"field": "tip", "type": "nominal"},
    }  # fmt: skip
    colour, ends = as_given("colour"), {"y": low, "y2": {"field": "high"}}
    if kind == "bubbles":
        circle = {"y": y, "color": colour, "stroke": as_given("stroke"), "size": size}
        thin = {"size": 4, "strokeWidth": 0.8, "color": "#333333"}
        leader = layer("point", thin, y=y, shape=as_given("leader"))
        layers = [
            layer("circle", {"strokeWidth": 2}, **circle),
            layer("rule", {"strokeWidth": 1.2}, **ends),
            {"transform": [{"filter": "isValid(datum.leader)"}], **leader},
        ]
        name = {"fontWeight": 600} | {shift: {"expr": f"datum.{shift}"} for shift in ("dx", "dy")}
        name_y = y
    else:
        shared |= {"detail": {"field": "line", "type": "nominal"}, "color": colour}
        width = as_given("width", "quantitative")
        layers = [layer("rule", {"strokeWidth": 1.2}, **ends)]
        layers.append(layer("line", {}, y=y, strokeDash=as_given("dash"), strokeWidth=width))
        points = {"filled": True, "size": 50}
        layers.append(layer("point", points, y=y, shape=as_given("shape")))
        name = {"align": "left", "dx": 8, "fontWeight": 600}
        name_y = {"title": None, **on_axis("name_y", "y")}
    names = layer("text", name, y=name_y, color=colour, text={"field": "name", "type": "nominal"})
    layers.append({"transform": [{"filter": "isValid(datum.name)"}], **names})
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
    named: Sequence[str] = ()
    """Rows whose lines have their names at their ends."""
    width: float = 860
    """About how many pixels it is wide."""

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
        drawn = [p for p in points if all(p[axis] is not None for axis in self.chart.axes)]
        return sorted(drawn, key=lambda point: point["row"] in self.named)  # gray lines are behind

    def svg(self) -> str:
        """Draw the figure as SVG."""
        from vl_convert import vega_to_svg, vegalite_to_vega

        return vega_to_svg(vegalite_to_vega(self._specification()))

    def pdf(self, width: float) -> bytes:
        """Draw the figure as PDF of a width in points."""
        from vl_convert import svg_to_pdf

        return svg_to_pdf(replace(self, width=width).svg())

    def _specification(self) -> dict[str, Any]:
        points, width = self.drawn_points, self.width
        is_lines = self.chart.kind == "lines"
        ticks = sorted({point["x"] for point in points})
        panels = [name for name in self.chart.panels if any(p["panel"] == name for p in points)]
        columns = max(math.ceil(width / _WIDEST_PANEL), math.ceil(len(panels) / _MOST_ROWS))
        columns = min(len(panels), columns)
        name_room = LETTER * max(map(len, self.named), default=0)
        panel_width = max(width / columns - _AXIS_ROOM - name_room, width / columns / 2)
        panel_height = (0.75 if is_lines else 1) * panel_width
        colours = {point["family"]: point["colour"] for point in points}
        families = {name: colours[name] for name in [*FAMILIES, *colours] if name in colours}
        by_name = {
            field.name: replace(field, title=field.title.partition(", on ")[0])
            for field in self.chart.fields
        }
        logs = [by_name[self.chart.axes[axis]].is_logarithmic for axis in "xy"]
        largest_area = LARGEST_AREA * min(1, (panel_width / _WIDEST_PANEL + 0.1) ** 2)
        largest = largest_area / max((p.get("size") or 1 for p in points), default=1)
        for panel in group_by(points, lambda point: point["panel"]).values():
            if is_lines:
                place_at_ends(panel, self.named, LINE / panel_height, is_logarithmic=logs[1])
            else:
                cheap = 1 if self.chart.axes["x"].startswith(("relative", "speed")) else -1
                place_beside(panel, logs, (panel_width, panel_height), largest, cheap)
        layers = specify(
            self.chart.kind,
            {axis: by_name[name] for axis, name in self.chart.axes.items()},
            ticks if is_lines and len(ticks) <= _MOST_TICKS else (),
            families,
            largest_area,
        )
        if len(panels) > 1:  # headers of a facet would stand at different heights
            title = {"mark": {"type": "text", "fontSize": 13}, "transform": _ONE_OF_PANEL,
                     "encoding": {"text": {"field": "panel"}, "x": {"value": panel_width / 2},
                                  "y": {"value": -LINE}}}  # fmt: skip
            layers = {"layer": [layers, title]}
        # Vega fails for texts in a specification that JavaScript's objects have as names, such as
        # constructor, so panels go by their numbers there.
        points = [{**point, "number": panels.index(point["panel"])} for point in points]
        facet = {"field": "number", "type": "ordinal", "title": None}
        config = {"text": {"limit": panel_width}, "legend": {"columns": int(width // 210)}}
        return {
            "data": {"name": POINTS},
            "facet": {**facet, "header": {"labelExpr": "''"}},
            "columns": columns,
            "spec": {"width": panel_width, "height": panel_height, **layers},
            "resolve": {"scale": {"x": "independent", "y": "independent"}},
            "datasets": {POINTS: points},
            "config": {**CONFIG, "background": "white", **config},
        }


def choose_named(table: Table) -> list[str]:
    """Choose the rows of a table that its lines name: one's own, and the best in the mean rank."""
    import pandas as pd

    columns = [c for c in table.columns if any(c.name in line.places for line in table.lines)]
    values = pd.DataFrame({c.name: [e.value for e in c.entries] for c in columns}, dtype=float)
    values *= [-1 if c.lowest_is_best else 1 for c in columns]
    ranks = values[: len(table.methods)].rank(ascending=False, method="min", na_option="bottom")
    order = ranks.mean(axis=1).sort_values(kind="stable").index
    is_own = [entry.is_own for entry in table.columns[0].entries]
    return [table.methods[i] for n, i in enumerate(order) if n < MOST_NAMED or is_own[i]]


def figures_of_table(table: Table, styles: Styles) -> list[Figure]:
    """Draw the lines of a table, if it has any; those without a name are gray."""
    has_deviations = any(e.deviation is not None for c in table.columns for e in c.entries)
    bars = "95 % intervals"
    if has_deviations:
        bars = f"standard deviations over seeds or, for a single seed, {bars}"
    caption = f"{table.caption.replace(RANKS, '').strip()} Bars: {bars}."
    # Rows of other charts may have the same dashes, and must not keep them from these rows.
    dashes = {row: look["dash"] for row, look in assign_styles(table.methods).items()}
    looks = {row: {**styles[row], "dash": dash} for row, dash in dashes.items()}
    named = choose_named(table)
    if others := [row for row in table.methods if row not in named]:
        looks |= {row: {**looks[row], "family": OTHERS, "colour": GRAY} for row in others}
        in_gray = ", ".join(others) if len(others) <= MOST_NAMED else f"{len(others)} other rows"
        caption += f" Gray: {in_gray}."
    named.append(BASELINE)
    return [
        Figure(table.slug, table.title, caption, chart, looks, named)
        for chart in lines_of_table(table)
    ]
