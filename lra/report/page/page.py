"""The page of a report: one HTML file to explore results in, which needs no network.

Python writes the tables, the points of the charts and what is known of each run as JSON. The page's
own script shows them, and Vega-Lite draws the charts.
"""

import dataclasses
import json
import os
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pydantic import BaseModel

from lra.common.files import write_atomically
from lra.common.spreadsheets import write_csv
from lra.common.strict_yaml import plain
from lra.record.benchmark import BenchRecord
from lra.record.run import RunRecord
from lra.record.run_files import MetricsLine, to_frame
from lra.report.charts import Point, validation_title
from lra.report.compare import NOTES, compare_pairs
from lra.report.data import Data
from lra.report.drawing import NAMES, SPECIFICATIONS
from lra.report.names import bench_anchor, mixer_of, run_anchor
from lra.report.page.sheets import Sheet, View, make_views
from lra.report.published import PublishedRow
from lra.report.styles import BASELINE, assign_styles
from lra.report.tables.table import FACTS, Column
from lra.runtime.tables import rounded

DIGITS = 6
"""Significant digits of the numbers in the page's data."""
MOST_POINTS = 20_000
"""Most points of all curves together; the more runs there are, the fewer points each curve has."""
LONGEST_CURVE = 40
MEASURES = {"train": ("accuracy", 1), "val": ("val_accuracy", 2), "loss": ("val_loss", 3)}
"""What a curve may show: a field of the lines of metrics.jsonl, and its digits."""
RUN_FACTS = {
    "message": "message", "test_non_finite": "test outputs that are not finite",
    "val_accuracy": "best validation accuracy, %", "best_step": "best step", "steps": "steps",
    "total_steps": "planned steps", "epochs": "epochs", "wall_seconds": "duration, seconds",
    "data": "data", "steps_per_second": "steps per second",
    "low_quartile": "lower quartile of the speed", "high_quartile": "upper quartile of the speed",
    "repeats": "repeats", "ratio_to_reference": "times as fast as the reference",
    "changes": "changed settings", "measured_with": "measured together with",
    "peak_memory_mib": "peak memory, MiB", "flops_per_step": "FLOPs per step",
    "params": "parameters", "device": "device", "precision": "precision", "git": "code",
    "versions": "versions",
}  # fmt: skip
"""Fields of records that the page shows, in words."""


def write_report(
    data: Data, published: Sequence[PublishedRow], formats: Collection[str], out: Path
) -> list[str]:
    """Write a report into a folder; return the names of the files.

    The formats are html for the page, and csv for a table of numbers for each question.
    """
    import pandas as pd

    views = make_views(data, published)
    files: dict[str, str] = {}
    if "html" in formats:
        files["index.html"] = write_page(data, views, out)
    if "csv" in formats:
        runs = ((data.path(run), run) for run in data.records)
        frames = {"runs": to_frame(runs, data.folder)}
        for view in views:
            facts = [fact for sheet in view.sheets for fact in sheet.table.facts]
            frames.setdefault(view.slug, pd.DataFrame(facts, columns=[*FACTS]))
        files |= {f"{name}.csv": write_csv(frame) for name, frame in frames.items()}
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
    tables = [sheet.table for view in views for sheet in view.sheets]
    rows = {BASELINE} | {row for table in tables for row in table.methods}
    shown: list[dict[str, Any]] = []
    for view in [view for view in views if view.sheets]:
        slugs = [sheet.table.slug for sheet in view.sheets]
        names = [slug if slugs.index(slug) == i else f"{slug}--{i}" for i, slug in enumerate(slugs)]
        sheets = [
            {"id": name, **_write_sheet(data, sheet)}
            for name, sheet in zip(names, view.sheets, strict=True)
        ]
        facts = {"id": view.slug, "title": view.title, "question": view.question}
        shown.append({**facts, "sheets": sheets})
    return {
        "summary": ", ".join(f"{n:,} {what}" for what, n in counts.items() if n) + ".",
        "views": shown,
        "styles": {row: style for row, style in assign_styles(rows).items() if row in rows},
        "charts": SPECIFICATIONS,
        "names": NAMES,
        "notes": NOTES,
        **describe_runs(data, out),
    }


def _write_sheet(data: Data, sheet: Sheet) -> dict[str, Any]:
    table = sheet.table
    counts = {c.name: sum(e.value is not None for e in c.entries) for c in table.columns}
    fullest = max(counts, key=counts.__getitem__) if any(counts.values()) else ""
    return {
        "title": table.title,
        "caption": table.caption,
        "sort": sheet.sort or fullest,
        "pairs": compare_pairs(data, sheet.board) if sheet.board else {},
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
            dataclasses.asdict(chart) | {"points": _write_points(chart.points)}
            for chart in sheet.charts
            if chart.panels
        ],
    }


def _write_column(column: Column) -> list[dict[str, Any]]:
    """Write the entries of a column: a mean over seeds, and apart from it deviation and remarks."""
    is_text = all(entry.value is None for entry in column.entries)
    marks = column.marks
    cells: list[dict[str, Any]] = []
    for i, entry in enumerate(column.entries):
        deviation = ""
        if entry.deviation is not None:
            deviation = f"±\N{NO-BREAK SPACE}{rounded(entry.deviation, column.digits)}"
        kinds = {"own": entry.is_own, "chance": entry.chance, "text": is_text}
        classes = [marks.get(i), *(name for name, holds in kinds.items() if holds)]
        small = ", ".join(filter(None, [deviation, *entry.remarks]))
        parts = {
            "text": rounded(entry.value or 0.0, column.digits) if entry.seeds else entry.text,
            "small": small.replace("at chance", "chance"),
            "classes": " ".join(filter(None, classes)),
            "link": entry.link,
            "runs": [*entry.anchors],
        }
        cell = {name: value for name, value in parts.items() if value}
        cells.append(cell if entry.value is None else cell | {"value": _rounded(entry.value)})
    return cells


def _write_points(points: Sequence[Point]) -> dict[str, list[Any]]:
    """Write what points have in each field, so that the names of fields stand there once."""
    names = dict.fromkeys(name for point in points for name in point)
    return {name: [_rounded(point.get(name)) for point in points] for name in names}


def _rounded(value: Any) -> Any:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def describe_runs(data: Data, out: Path) -> dict[str, Any]:
    """Describe all runs and measurements by their anchor, for a page in the folder `out`.

    A text that several of them share is in the page once, and they have its number.
    """
    most = max(8, min(LONGEST_CURVE, MOST_POINTS // max(1, len(data.records))))
    numbers: dict[str, int] = {}

    def number(facts: Mapping[str, str]) -> list[int]:
        texts = [f"{name}: {text}" for name, text in facts.items() if text]
        return [numbers.setdefault(text, len(numbers)) for text in texts]

    def link(path: Path) -> str:
        """Write a link to a record; none to a packed one, which no browser can show."""
        if not path.is_file():
            return ""
        return quote(Path(os.path.relpath(path.resolve(), out.resolve())).as_posix())

    settings: dict[str, list[int]] = {}
    runs: dict[str, dict[str, Any]] = {}
    for run in data.records:
        group = f"{run.task} {run.mixer} {run.config_hash}"
        if group not in settings:
            settings[group] = number({k: plain(value) for k, value in run.settings.items()})
        row = data.names.of(run)
        runs[run_anchor(run)] = {
            "row": row,
            "title": f"{row} on {run.task}, seed {run.seed}: {run.status}",
            "facts": number(_write_facts(run)),
            "command": shlex.join(["python", "run_task.py", *run.flags()]),
            "record": link(data.path(run) / "result.json"),
            "is_own": data.is_own(run),
            "is_done": run.status == "done",
            "settings": group,
            "curve": _curve(data.metrics(run), most),
            "measure": "val" if run.result.is_accuracy else "loss",
            "measured": validation_title(run.result),
        }
    for r in data.bench:
        row = data.names.of_mixer(r)
        what = " ".join(filter(None, [r.mode, r.part, r.task]))
        runs[bench_anchor(r)] = {
            "row": row,
            "title": f"{row}, {what}, {r.length:,} positions, batch {r.batch_size}: {r.status}",
            "facts": number(_write_facts(r)),
            "record": link(data.path(r)),
            "is_own": data.is_own(r),
        }
    return {"runs": runs, "settings": settings, "texts": [*numbers]}


def _curve(lines: Sequence[MetricsLine], most: int) -> dict[str, dict[str, list[float]]]:
    """List steps, minutes and scores of a run for each measure; of training lines only some."""
    scored = [line for line in lines if line.val_accuracy is not None or line.accuracy is not None]
    stride = -(-len(scored) // most) or 1
    kept = [
        line
        for number, line in enumerate(scored)
        if line.val_accuracy is not None or number % stride == 0 or number == len(scored) - 1
    ]
    curve: dict[str, dict[str, list[float]]] = {}
    for measure, (field, digits) in MEASURES.items():
        having = [line for line in kept if getattr(line, field) is not None]
        curve[measure] = {
            "step": [line.step for line in having],
            "minutes": [round(line.seconds / 60, 2) for line in having],
            "score": [round(getattr(line, field), digits) for line in having],
        }
    return curve


def _write_facts(record: RunRecord | BenchRecord) -> dict[str, str]:
    """Write what a record has of the facts in words."""
    known, tested = dict(record), {}
    if isinstance(record, RunRecord):
        known |= dict(record.result)
        tested = {f"test {record.task}": record.result.text}
    return tested | {text: _write(known.get(name)) for name, text in RUN_FACTS.items()}


def _write(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.6g}"
    if isinstance(value, BaseModel):
        value = value.model_dump()
    if isinstance(value, Mapping):
        words = {name: name if "." in name else name.replace("_", " ") for name in value}
        return ", ".join(f"{words[name]} {_write(item)}" for name, item in value.items() if item)
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_write, value))
    return "" if value is None else str(value)
