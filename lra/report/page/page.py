"""The page of a report: one HTML file to explore results in, which needs no network.

Python writes the tables, the points of the charts and what is known of each run as JSON. The page's
own script shows them, and Vega-Lite draws the charts.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from common.files import write_atomically
from lra.record.run import to_frame
from lra.report.charts import Point
from lra.report.data import Data
from lra.report.drawing import NAMES, SPECIFICATIONS
from lra.report.names import mixer_of
from lra.report.page.runs import describe_runs
from lra.report.page.sheets import Sheet, View, make_views
from lra.report.published import PublishedRow
from lra.report.scores import AT_CHANCE
from lra.report.styles import BASELINE, assign_styles
from lra.report.tables.table import FACTS, Column

DIGITS = 6
"""Significant digits of the numbers in the page's data."""


def write_report(
    data: Data, published: Sequence[PublishedRow], formats: Collection[str], out: Path
) -> list[str]:
    """Write a report into a folder.

    Args:
        data: the records.
        published: the published results that are shown.
        formats: html for the page, csv for a table of numbers for each question.
        out: the folder.
    Returns: the names of the files.
    """
    import pandas as pd

    found = make_views(data, published)
    files: dict[str, str] = {}
    if "html" in formats:
        files["index.html"] = write_page(data, found, out)
    if "csv" in formats:
        runs = ((data.path(run), run) for run in data.records)
        frames = {"runs": to_frame(runs, data.folder)}
        for view in found:
            facts = [fact for sheet in view.sheets for fact in sheet.table.facts]
            frames.setdefault(view.slug, pd.DataFrame(facts, columns=[*FACTS]))
        files |= {f"{name}.csv": frame.to_csv(index=False) for name, frame in frames.items()}
    out.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write_atomically(out / name, content.encode())
    return [*files]


def write_page(data: Data, views: Sequence[View], out: Path) -> str:
    """Return the HTML of the page, which will be in the folder `out`."""
    from vl_convert import javascript_bundle

    parts = {
        "STYLE": _read("page.css"),
        "DATA": write_json(make_data(data, views, out)),
        "LIBRARY": javascript_bundle("window.vegaEmbed = vegaEmbed;"),
        "SCRIPT": _read("page.js"),
    }
    pieces = _read("page.html").split("%%")
    return "".join(parts.get(piece, piece) for piece in pieces)


def _read(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def write_json(value: Any) -> str:
    """Write JSON that cannot end the script element that it stands in."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def make_data(data: Data, views: Sequence[View], out: Path) -> dict[str, Any]:
    """Make all that the page shows."""
    counts = {
        "training runs": len(data.records),
        "of them yours": sum(map(data.is_own, data.records)),
        "without a result": sum(run.status != "done" for run in data.records),
    }
    rows = {BASELINE} | {row for view in views for one in view.sheets for row in one.table.methods}
    shown: list[dict[str, Any]] = []
    for view in [view for view in views if view.sheets]:
        slugs = [sheet.table.slug for sheet in view.sheets]
        names = [slug if slugs.index(slug) == i else f"{slug}--{i}" for i, slug in enumerate(slugs)]
        sheets = [
            {"id": name, **_write_sheet(one)} for name, one in zip(names, view.sheets, strict=True)
        ]
        facts = {"id": view.slug, "title": view.title, "question": view.question}
        shown.append({**facts, "sheets": sheets})
    return {
        "summary": ", ".join(f"{n:,} {what}" for what, n in counts.items() if n) + ".",
        "views": shown,
        "styles": {row: style for row, style in assign_styles(rows).items() if row in rows},
        "charts": SPECIFICATIONS,
        "names": NAMES,
        **describe_runs(data, out),
    }


def _write_sheet(sheet: Sheet) -> dict[str, Any]:
    table = sheet.table
    counts = {c.name: sum(e.value is not None for e in c.entries) for c in table.columns}
    fullest = max(counts, key=counts.__getitem__) if any(counts.values()) else ""
    return {
        "title": table.title,
        "caption": table.caption,
        "sort": sheet.sort or fullest,
        "columns": [
            {"name": c.name, "lowest": c.lowest_is_best, "numeric": bool(counts[c.name])}
            for c in table.columns
        ],
        "rows": [
            {
                "name": str(name.text),
                "mixer": mixer_of(str(name.text)) if i < len(table.methods) else "",
                "own": name.is_own,
                "beneath": len(table.methods) <= i and bool(table.methods),
                "cells": cells,
            }
            for i, (name, *cells) in enumerate(
                zip(table.columns[0].entries, *map(_write_column, table.columns), strict=True)
            )
        ],
        "charts": [
            dataclasses.asdict(chart) | {"points": [*map(_write_point, chart.points)]}
            for chart in sheet.charts
            if chart.panels
        ],
    }


def _write_column(column: Column) -> list[dict[str, Any]]:
    """Write entries; of a mean over seeds the number, and what the text has behind it apart."""
    is_text = all(entry.value is None for entry in column.entries)
    marks = column.marks
    cells: list[dict[str, Any]] = []
    for i, entry in enumerate(column.entries):
        deviation = ""
        if entry.deviation is not None:
            deviation = f"±\N{NO-BREAK SPACE}{entry.deviation:.{column.digits}f}"
        is_mean, is_chance = entry.value is not None and entry.seeds, AT_CHANCE in entry.remarks
        classes = [marks.get(i), "own" * entry.is_own, "chance" * is_chance, "text" * is_text]
        small = ", ".join(filter(None, [deviation, *entry.remarks]))
        found = {
            "text": f"{entry.value:.{column.digits}f}" if is_mean else entry.text,
            "small": small.replace(AT_CHANCE, "chance"),
            "classes": " ".join(filter(None, classes)),
            "runs": [*entry.anchors],
        }
        cell = {name: value for name, value in found.items() if value}
        cells.append(cell if entry.value is None else cell | {"value": _rounded(entry.value)})
    return cells


def _write_point(point: Point) -> Point:
    return {name: _rounded(value) for name, value in point.items() if value is not None}


def _rounded(value: Any) -> Any:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
