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
from lra.record.run_files import to_frame
from lra.report.charts import Chart
from lra.report.data import Data
from lra.report.drawing import NAMES, SPECIFICATIONS
from lra.report.names import mixer_of, slugify
from lra.report.page.runs import describe_runs
from lra.report.page.sheets import Sheet, View, make_views
from lra.report.published import PublishedRow
from lra.report.scores import AT_CHANCE
from lra.report.styles import BASELINE, assign_styles
from lra.report.tables.table import FACTS, Column, Entry, Table

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
    """Return the HTML of the page.

    Args:
        data: the records that the report is on.
        views: what the page shows.
        out: folder that the page will be in, for relative links.
    """
    from vl_convert import javascript_bundle

    parts = {
        "STYLE": _read("page.css"),
        "DATA": write_json(make_data(data, views, out)),
        "LIBRARY": javascript_bundle("window.vegaEmbed = vegaEmbed;"),
        "SCRIPT": _read("page.js"),
    }
    pieces = _read("page.html").split("%%")
    return "".join(parts.get(piece, piece) for piece in pieces)


def write_json(value: Any) -> str:
    """Write JSON that cannot end the script element that it stands in."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def make_data(data: Data, views: Sequence[View], out: Path) -> dict[str, Any]:
    """Make all that the page shows."""
    rows = {row for view in views for sheet in view.sheets for row in sheet.table.methods}
    counts = {
        "training runs": len(data.records),
        "of them yours": sum(map(data.is_own, data.records)),
        "without a result": sum(run.status != "done" for run in data.records),
    }
    named = {view.slug: _name_sheets(view.sheets) for view in views}
    # The sheet of the newest run of the user's own, or the first sheet.
    sheets = [(view.slug, name, one) for view in views for name, one in named[view.slug].items()]
    start = max(sheets, key=lambda one: one[2].newest, default=("", ""))
    return {
        "summary": ", ".join(f"{n:,} {what}" for what, n in counts.items() if n) + ".",
        "start": {"view": start[0], "sheet": start[1]},
        "views": [
            {
                "id": view.slug,
                "title": view.title,
                "question": view.question,
                "sheets": [_write_sheet(one, name) for name, one in named[view.slug].items()],
            }
            for view in views
            if view.sheets
        ],
        "styles": {
            row: style for row, style in assign_styles(rows).items() if row in {*rows, BASELINE}
        },
        "charts": SPECIFICATIONS,
        "names": NAMES,
        **describe_runs(data, out),
    }


def _name_sheets(sheets: Sequence[Sheet]) -> dict[str, Sheet]:
    """Name sheets in the page's address; of equal names, all but the first have a number."""
    names: dict[str, Sheet] = {}
    for number, sheet in enumerate(sheets, start=1):
        name = slugify(sheet.table.title)
        names[f"{name}--{number}" if name in names else name] = sheet
    return names


def _write_sheet(sheet: Sheet, name: str) -> dict[str, Any]:
    counts = {column.name: _count_numbers(column) for column in sheet.table.columns}
    return {
        "id": name,
        "title": sheet.table.title,
        "caption": sheet.table.caption,
        "sort": sheet.sort or (max(counts, key=counts.__getitem__) if any(counts.values()) else ""),
        "columns": [
            {
                "name": column.name,
                "lowest": column.lowest_is_best,
                "numeric": bool(counts[column.name]),
            }
            for column in sheet.table.columns
        ],
        "rows": _write_rows(sheet.table),
        "charts": [_write_chart(chart) for chart in sheet.charts if chart.panels],
    }


def _count_numbers(column: Column) -> int:
    return sum(entry.value is not None for entry in column.entries)


def _write_rows(table: Table) -> list[dict[str, Any]]:
    numeric = [bool(_count_numbers(column)) for column in table.columns]
    marks = [column.marks for column in table.columns]
    names = table.columns[0].entries
    return [
        {
            "name": str(name.text),
            "mixer": mixer_of(str(name.text)) if i < len(table.methods) else "",
            "own": name.is_own,
            "beneath": len(table.methods) <= i and bool(table.methods),
            "cells": [
                _write_entry(column.entries[i], column.digits, marks[j].get(i), numeric[j])
                for j, column in enumerate(table.columns)
            ],
        }
        for i, name in enumerate(names)
    ]


def _write_entry(entry: Entry, digits: int, mark: str | None, is_numeric: bool) -> dict[str, Any]:
    """Write an entry; of a mean over seeds the number, and what the text has behind it apart."""
    is_mean = entry.value is not None and entry.seeds
    deviation = None
    if entry.deviation is not None:
        deviation = f"±\N{NO-BREAK SPACE}{entry.deviation:.{digits}f}"
    is_chance = AT_CHANCE in entry.remarks
    classes = [mark, "own" * entry.is_own, "chance" * is_chance, "text" * (not is_numeric)]
    found = {
        "text": f"{entry.value:.{digits}f}" if is_mean else entry.text,
        "small": ", ".join(filter(None, [deviation, *entry.remarks])).replace(AT_CHANCE, "chance"),
        "classes": " ".join(filter(None, classes)),
        "runs": [*entry.anchors],
    }
    said = {name: value for name, value in found.items() if value}
    return said if entry.value is None else said | {"value": _rounded(entry.value)}  # 0, too


def _write_chart(chart: Chart) -> dict[str, Any]:
    return dataclasses.asdict(chart) | {
        "points": [
            {name: _rounded(v) for name, v in point.items() if v is not None}
            for point in chart.points
        ]
    }


def _rounded(value: Any) -> Any:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def _read(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")
