"""What charts show: the bubbles of what results cost, and lines over lengths and steps."""

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lra.goals.measure import ACCURACY, Measure
from lra.goals.result import Result
from lra.report.boards import Board
from lra.report.data import Data
from lra.report.scores import AVERAGES, Cell
from lra.report.styles import BASELINE
from lra.report.tables.speeds import preset_speeds
from lra.report.tables.table import Column, Table
from lra.runtime.tables import count_nouns
from lra.statistics import average_interval

Point = dict[str, Any]
"""The row and the panel of a point, its numbers by field, and the ends of its interval."""


@dataclass(frozen=True)
class Field:
    """A number of each point that an axis, or the area of circles, can show."""

    name: str
    title: str
    is_logarithmic: bool = False


@dataclass(frozen=True)
class Chart:
    """Points, in panels of which the page shows one at a time."""

    kind: str
    """bubbles, lines, or curves, whose points the page takes from runs."""
    title: str
    panels: Sequence[str]
    fields: Sequence[Field]
    axes: Mapping[str, str]
    """The field that each axis shows at first."""
    points: Sequence[Point] = ()


def bubbles_of_board(data: Data, board: Board) -> Chart:
    """Make a point for each row and task, and for each row and average over tasks."""
    measure = board.measures[0]
    devices = [name for name, _ in Counter(sorted(r.device for r in board.records)).most_common()]
    titles = {"score": "test accuracy, %" if measure is ACCURACY else measure.name}
    speeds = preset_speeds(data, board)
    titles["relative"] = f"training speed, {speeds.relative_to} = 1, on {speeds.device}"
    titles["measured_memory"] = f"peak memory, MiB, on {speeds.device}"
    for number, device in enumerate(devices):
        titles[f"speed{number}"] = f"training speed, steps/s, on {device}"
        titles[f"minutes{number}"] = f"training time, minutes, on {device}"
        titles[f"memory{number}"] = f"peak memory, MiB, on {device}"
    titles |= {
        "parameters": "parameters",
        "width": "width, channels",
        "state": "state of a sequence, numbers",
    }
    panels = {task: (task,) for task in board.tasks}
    if board.is_main and board.is_of_accuracy:
        panels |= AVERAGES
    points: list[Point] = []
    for panel, tasks in panels.items():
        for row, cells in board.rows.items():
            row_cells = [cells.get(task, Cell()) for task in tasks]
            point = _score(row, panel, row_cells, measure)
            if point is None:
                continue
            if (speed := speeds.by_mixer.get(row)) is not None:
                relative = speed.by_task.get(tasks[0]) if len(tasks) == 1 else speed.mean
                if relative is not None:
                    point |= {"relative": relative, "measured_memory": speed.memory}
            points.append(point | _costs(devices, row_cells))
    what = "What accuracy costs" if measure is ACCURACY else "What results cost"
    return _describe(what, points, titles)


def _score(row: str, panel: str, cells: Sequence[Cell], measure: Measure) -> Point | None:
    """Make the point of a row in a panel; None without a score on any of its tasks."""
    if any(run.has_failed for cell in cells for run in cell.runs):
        return None
    entries = [cell.entry(measure) for cell in cells]
    known = [entry.value for entry in entries if entry.value is not None]
    if len(known) < len(entries):
        return None
    low, high = average_interval(known, [entry.interval for entry in entries]) or (None, None)
    remarks = dict.fromkeys(remark for entry in entries for remark in entry.remarks)
    seeds = min(entry.seeds for entry in entries)
    return {
        "row": row, "panel": panel, "score": statistics.mean(known), "low": low,
        "high": high, "note": ", ".join([count_nouns(seeds, "seed"), *remarks]),
        "own": any(cell.has_own for cell in cells),
    }  # fmt: skip


def _costs(devices: Sequence[str], cells: Sequence[Cell]) -> Point:
    """Return what training took on each device that made runs of all cells, and models' sizes."""
    runs = [run for cell in cells for run in cell.runs]
    states = [run.state_size for run in runs if run.state_size is not None]
    point: Point = {
        "parameters": float(max(run.params for run in runs)),
        "width": float(max(run.settings.get("model.dim") or 0 for run in runs)),
        "state": float(max(states)) if states else None,
    }
    for number, device in enumerate(devices):
        groups = [
            [run for run in cell.runs if run.device == device and run.status != "oom"]
            for cell in cells
        ]
        for name, field, of_seeds, of_tasks in (
            ("speed", "steps_per_second", statistics.median, statistics.geometric_mean),
            ("minutes", "train_seconds", statistics.median, lambda values: math.fsum(values) / 60),
            ("memory", "peak_memory_mib", max, max),
        ):
            values = [[v for run in group if (v := getattr(run, field))] for group in groups]
            if all(values):
                point[f"{name}{number}"] = of_tasks([of_seeds(numbers) for numbers in values])
    return point


def _describe(what: str, points: Sequence[Point], titles: Mapping[str, str]) -> Chart:
    """Choose the fields that any point has, and those that a chart shows at first.

    As the cost, a chart shows at first what most of the user's own rows have. Of several such costs
    it is the first that at least half of all rows have.
    """
    values = {name: [p[name] for p in points if p.get(name) is not None] for name in titles}
    fields = [
        Field(name, titles[name], name != "score" and has_outlier(numbers))
        for name, numbers in values.items()
        if numbers
    ]

    def merit(name: str) -> tuple[int, bool]:
        having = [point for point in points if point.get(name) is not None]
        return sum(point["own"] for point in having), 2 * len(having) >= len(points)

    costs = [field.name for field in fields if field.name != "score"]
    if not costs:
        return Chart("bubbles", what, [], [], {})
    areas = [name for name in costs if "memory" in name or name == "parameters"]
    axes = {"x": max(costs, key=merit), "y": "score", "size": max(areas, key=merit)}
    panels = list(dict.fromkeys(point["panel"] for point in points))
    return Chart("bubbles", what, panels, fields, axes, points)


def has_outlier(values: Sequence[float]) -> bool:
    """Whether one value would push the others into a corner: it is over twice their median."""
    return len(values) > 1 and min(values) > 0 and max(values) > 2 * statistics.median_low(values)


def lines_of_table(table: Table) -> list[Chart]:
    """Join the numbers of a table over lengths, and the best ones of trivial baselines."""
    columns = {column.name: column for column in table.columns}
    names = table.columns[0].texts
    trivial = [i for i, name in enumerate(names) if name.startswith("trivial baseline")]
    rows = {name: [i] for i, name in enumerate(table.methods)} | {BASELINE: trivial}
    points: list[Point] = []
    for line in table.lines:
        for name, x in line.places.items():
            for row, numbers in rows.items():
                if name in columns and (point := _best_point(columns[name], numbers, line.y)):
                    points.append({"panel": line.panel, "row": row, line.x: x, **point})
    fields = {line.x: True for line in table.lines}
    fields |= {line.y: line.is_logarithmic for line in table.lines}
    if not points:
        return []
    first = table.lines[0]
    panels = list(dict.fromkeys(line.panel for line in table.lines))
    shown = [Field(name, name, is_logarithmic) for name, is_logarithmic in fields.items()]
    return [Chart("lines", "Over length", panels, shown, {"x": first.x, "y": first.y}, points)]


def _best_point(column: Column, rows: Sequence[int], y: str) -> Point | None:
    """Make the point of one row, or of the best of several."""
    entries = [column.entries[i] for i in rows if column.entries[i].value is not None]
    sign = -1 if column.lowest_is_best else 1
    best = max(entries, key=lambda entry: sign * (entry.value or 0.0), default=None)
    if best is None:
        return None
    low, high = best.interval or (None, None)
    return {y: best.value, "low": low, "high": high, "own": best.is_own}


def validation_title(result: Result) -> str:
    """Name what curves of validations show: accuracies, or losses."""
    return "validation accuracy, %" if result.is_accuracy else result.loss_name


def curves_of_board(board: Board) -> Chart:
    """Describe the learning curves of a board, whose points the page takes from its runs."""
    y = "val" if board.is_of_accuracy else "loss"
    titles = {
        "step": "optimizer steps",
        "minutes": "minutes of training and validation",
        y: validation_title(board.records[0].result),
        "train": "accuracy on training examples, %",
    }
    panels = [board.measures[0].name] if not board.is_of_accuracy else board.tasks
    fields = [Field(name, title) for name, title in titles.items()]
    return Chart("curves", "Learning curves", panels, fields, {"x": "step", "y": y})
