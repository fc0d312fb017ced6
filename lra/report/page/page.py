"""The page of a report: one HTML file to explore results in, which needs no network.

Python writes the tables, the points of the charts and what is known of each run as JSON. The page's
own script shows them, and Vega-Lite draws the charts.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from common.files import write_atomically
from common.untrusted import read_regular
from lra.record.table import to_frame
from lra.report.data import Data
from lra.report.names import mixer_of, slugify
from lra.report.page.charts import DASHES, EMBEDDING, SHAPES, specifications
from lra.report.page.runs import describe_runs
from lra.report.page.sheets import Chart, Sheet, View, views
from lra.report.published import PublishedRow
from lra.report.scores import AT_CHANCE
from lra.report.styles import assign_styles
from lra.report.tables.table import Column, Entry, Table
from lra.runtime.console import csv_table

TITLE = "Long Range Arena"
GLYPHS = {
    "^": "▲", "v": "▼", "<": "◀", ">": "▶", "o": "●", "s": "■", "D": "◆", "P": "✚", "X": "✖",
    "*": "★",
}  # fmt: skip
"""Letters that look like matplotlib's markers."""
IN_TIPS = ("seeds", "device", "remarks")
"""Fields of points that the page shows in their texts alone."""
DIGITS = 6
"""Significant digits of the numbers in the page's data."""
CONTENTS = ".lra-report"
"""File that lists the files of a report, so that the next report can remove those it lacks."""
_OWN = re.compile(
    r"index\.html|report\.md|paper\.tex|[\w-]+\.csv|tables/[\w.-]+\.(tex|csv)"
    r"|figures/[\w.-]+\.(png|svg|pdf)"
)


def write_report(
    data: Data, published: Sequence[PublishedRow], formats: Collection[str], out: Path
) -> list[str]:
    """Write a report into a folder; files of an earlier one that it no longer has are removed.

    Args:
        data: the records.
        published: the published results that are shown.
        formats: html for the page, csv for a table of numbers for each question.
        out: the folder.
    Returns: the names of the files.
    """
    import pandas as pd

    sheets = {view: [*view.make(data)] for view in views(published)}
    files: dict[str, bytes] = {}
    if "html" in formats:
        files["index.html"] = write_page(data, sheets, out).encode()
    if "csv" in formats:
        runs = ((data.path(run), run) for run in data.records)
        frames = {"runs": to_frame(runs, data.folder)}
        for view, found in sheets.items():
            facts = [fact for sheet in found for fact in sheet.table.facts]
            frames.setdefault(view.slug, pd.DataFrame(facts))
        files |= {
            f"{n}.csv": csv_table(frame).encode() for n, frame in frames.items() if len(frame)
        }
    write_files(files, out)
    return [*files]


def files_before(contents: Path) -> list[str]:
    """List the files that an earlier report wrote, by its table of contents."""
    if not contents.is_file():
        return []
    return read_regular(contents).decode(errors="replace").splitlines()


def write_files(files: Mapping[str, bytes], out: Path, contents: str = CONTENTS) -> None:
    """Write files into a folder, and remove those that an earlier report had besides.

    Args:
        files: contents by path below the folder.
        out: the folder.
        contents: name of the file there that lists all of them.
    """
    for name in files_before(out / contents):
        if _OWN.fullmatch(name) and name not in files:
            (out / name).unlink(missing_ok=True)
    for name, content in files.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out / name, content)
    write_atomically(out / contents, "".join(f"{name}\n" for name in sorted(files)).encode())


def write_page(data: Data, sheets: Mapping[View, Sequence[Sheet]], out: Path) -> str:
    """Return the HTML of the page.

    Args:
        data: the records that the report is on.
        sheets: what the page shows.
        out: folder that the page will be in, for relative links.
    """
    from vl_convert import javascript_bundle

    parts = {
        "TITLE": TITLE,
        "STYLE": _read("page.css"),
        "DATA": write_json(make_data(data, sheets, out)),
        "LIBRARY": javascript_bundle("window.vegaEmbed = vegaEmbed;"),
        "SCRIPT": _read("page.js"),
    }
    pieces = _read("page.html").split("%%")
    return "".join(parts.get(piece, piece) for piece in pieces)


def write_json(value: Any) -> str:
    """Write JSON that cannot end the script element that it stands in."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def make_data(data: Data, sheets: Mapping[View, Sequence[Sheet]], out: Path) -> dict[str, Any]:
    """Make all that the page shows."""
    rows = {row for found in sheets.values() for sheet in found for row in sheet.table.methods}
    return {
        "title": TITLE,
        "summary": _summarize(data),
        "start": _choose_start(sheets),
        "views": [_write_view(view, found) for view, found in sheets.items() if found],
        "styles": _write_styles(rows),
        "charts": specifications(),
        "embedding": EMBEDDING,
        **describe_runs(data, out),
    }


def _summarize(data: Data) -> str:
    """Say how many runs there are, in a sentence."""
    counts = {
        "training runs": len(data.records),
        "of them yours": sum(map(data.is_own, data.records)),
        "without a result": sum(run.status != "done" for run in data.records),
    }
    return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count) + "."


def _choose_start(sheets: Mapping[View, Sequence[Sheet]]) -> dict[str, str]:
    """Choose the sheet of the newest run of the user's own, a finished one first; or the first."""
    every = [(view, sheet) for view, found in sheets.items() for sheet in found]
    if not every:
        return {}
    own = [(view, sheet) for view, sheet in every if sheet.newest is not None]
    view, sheet = max(own, key=lambda one: one[1].newest or (False, 0.0), default=every[0])
    return {"view": view.slug, "sheet": _names_of(sheets[view])[sheets[view].index(sheet)]}


def _names_of(sheets: Sequence[Sheet]) -> list[str]:
    """Name sheets in the page's address; of equal names, all but the first have a number."""
    names: list[str] = []
    for sheet in sheets:
        name = slugify(sheet.table.title)
        same = sum(one == name or one.startswith(f"{name}--") for one in names)
        names.append(f"{name}--{same + 1}" if same else name)
    return names


def _write_view(view: View, sheets: Sequence[Sheet]) -> dict[str, Any]:
    return {
        "id": view.slug,
        "title": view.title,
        "question": view.question,
        "sheets": [
            _write_sheet(sheet, name) for sheet, name in zip(sheets, _names_of(sheets), strict=True)
        ],
    }


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
                "digits": column.digits,
                "lowest": column.lowest_is_best,
                "margin": column.margin,
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
    notes = [*entry.remarks, *entry.unfinished]
    seeds = f"mean of {entry.seeds} seeds" if entry.seeds > 1 else "1 seed" * entry.seeds
    is_chance = AT_CHANCE in notes
    classes = [mark, "own" * entry.is_own, "chance" * is_chance, "text" * (not is_numeric)]
    found = {
        "text": f"{entry.value:.{digits}f}" if is_mean else entry.text,
        "ranked": entry.is_ranked,
        "small": ", ".join(filter(None, [deviation, *notes])).replace(AT_CHANCE, "chance"),
        "seeds": entry.seeds,
        "remarks": "; ".join(filter(None, [seeds, *notes])),
        "classes": " ".join(filter(None, classes)),
        "runs": [*entry.anchors],
        "own": entry.is_own,
    }
    said = {name: value for name, value in found.items() if value}
    return said if entry.value is None else said | {"value": _rounded(entry.value)}  # 0, too


def _write_chart(chart: Chart) -> dict[str, Any]:
    found = dataclasses.asdict(chart)
    found["points"] = [
        {name: _rounded(v) for name, v in point.items() if v is not None and name not in IN_TIPS}
        for point in chart.points
    ]
    return found


def _rounded(value: Any) -> Any:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def _write_styles(rows: set[str]) -> dict[str, Any]:
    return {
        row: {
            "colour": style["color"],
            "shape": SHAPES[style["marker"]],
            "glyph": GLYPHS[style["marker"]],
            "dash": DASHES[style["linestyle"]],
        }
        for row, style in assign_styles(rows).items()
        if row in rows
    }


def _read(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")
