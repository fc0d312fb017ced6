"""The points of bubble charts: what each row scores, and what that costs."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lra.record.run import RunRecord
from lra.report.boards.averages import AVERAGES
from lra.report.boards.board import Board
from lra.report.boards.cells import Cell
from lra.report.boards.measures import ACCURACY, Measure
from lra.report.boards.preset_speeds import PresetSpeed
from lra.report.boards.probes import Probe
from lra.report.boards.speeds import Speed, speed_of
from lra.report.data import ReportData
from lra.report.figures.drawing import has_outlier
from lra.report.figures.intervals import average_interval, interval_of
from lra.runtime.console import MISSING

MOST_NAMES = 20
"""Most names of points, one above the other, for which a chart is high enough."""
LARGEST_WITH_DIGITS = 1000
"""Number from which texts have no decimals."""
Value = float | str | bool | None
Point = Mapping[str, Value]
"""A row in a panel: its score, and a number for each field that is known."""
SCORE, SAME = "score", "same"
"""Fields of all points: what they score, and 1, for circles of equal area."""


@dataclass(frozen=True)
class Field:
    """A number of each point that an axis, or the area of circles, can show."""

    name: str
    title: str
    is_logarithmic: bool = False


Described = tuple[Sequence[Point], Sequence[Field], Mapping[str, str]]
"""Points, the fields that they have, and the field of each axis that a chart shows at first."""


def of_results(data: ReportData, board: Board) -> Described:
    """Make a point for each row and task, and for each row and average over tasks."""
    measure = board.measures[0]
    devices = [name for name, _ in Counter(sorted(r.device for r in board.records)).most_common()]
    titles = {SCORE: "test accuracy, %" if measure is ACCURACY else measure.name}
    speeds = data.speeds_at_preset(board)
    if speeds.by_mixer and not board.of_positions:
        titles["relative"] = f"training speed, {speeds.relative_to} = 1, on {speeds.device}"
        titles["measured_memory"] = f"peak memory, MiB, on {speeds.device}"
    for number, device in enumerate(devices):
        titles[f"speed{number}"] = f"training speed, steps/s, on {device}"
        titles[f"minutes{number}"] = f"training time, minutes, on {device}"
        titles[f"memory{number}"] = f"peak memory, MiB, on {device}"
    titles["parameters"] = "parameters"
    panels = {task: [task] for task in board.tasks}
    if board.is_main and not board.of_positions:
        panels |= {name: [*tasks] for name, tasks in AVERAGES.items()}
    points: list[dict[str, Value]] = []
    for panel, tasks in panels.items():
        for row, cells in board.rows.items():
            point = _point(row, panel, [cells.get(task, Cell()) for task in tasks], measure)
            if point is None:
                continue
            point |= _costs(devices, [cells[task] for task in tasks])
            point |= _measured(speeds.by_mixer.get(row), tasks)
            point["is_own"] = any(cells[task].has_own for task in tasks)
            points.append(point)
    fields, axes = _describe(points, titles)
    return points, fields, axes


def of_probe(probe: Probe) -> Described:
    """Make a point for each row and variant of a probe."""
    points: list[dict[str, Value]] = []
    for variant in probe.variants:
        for row in probe.rows:
            cell = probe.cell(row, variant)
            point = _point(row, variant.name or "accuracy", [cell or Cell()], ACCURACY)
            if cell is None or point is None:
                continue
            states = [run.state_size for run in cell.runs if run.state_size is not None]
            point["state"] = statistics.mean(states) if states else None
            point["width"] = float(probe.widths[row])
            point["parameters"] = float(max(run.params for run in cell.runs))
            point["is_own"] = cell.has_own
            points.append(point)
    titles = {
        SCORE: "test accuracy, %",
        "parameters": "parameters",
        "width": "width, channels",
        "state": "state of a sequence, numbers",
    }
    fields, axes = _describe(points, titles)
    return points, fields, axes


def _point(
    row: str, panel: str, cells: Sequence[Cell[RunRecord]], measure: Measure
) -> dict[str, Value] | None:
    """Describe the score of a row in a panel; None without a score on any of its tasks."""
    values = [cell.number_of(measure) for cell in cells]
    known = [value for value in values if value is not None]
    if len(known) < len(cells):
        return None
    mean = statistics.mean(known)
    interval = average_interval(known, [interval_of(cell, measure) for cell in cells])
    low, high = interval or (None, None)
    remarks = dict.fromkeys(remark for cell in cells for remark in cell.remarks_of(measure))
    return {
        "row": row, "panel": panel, SCORE: mean, SAME: 1.0, "low": low, "high": high,
        "seeds": min(len(cell.numbers(measure)) for cell in cells),
        "device": ", ".join(sorted({run.device for cell in cells for run in cell.runs})),
        "remarks": ", ".join(remarks),
    }  # fmt: skip


def _costs(devices: Sequence[str], cells: Sequence[Cell[RunRecord]]) -> dict[str, Value]:
    """Return what training took on each device that made runs of all cells, and the parameters."""
    found: dict[str, Value] = {
        "parameters": float(max(run.params for cell in cells for run in cell.runs))
    }
    for number, device in enumerate(devices):
        groups = [[run for run in cell.runs if run.device == device] for cell in cells]
        if not all(groups):
            continue
        speeds: list[Speed] = [speed_of(runs) for runs in groups]
        known = [speed.steps_per_second for speed in speeds if speed.steps_per_second is not None]
        if len(known) == len(groups):
            found[f"speed{number}"] = statistics.geometric_mean(known)
        seconds = [
            [run.train_seconds for run in runs if run.train_seconds is not None] for runs in groups
        ]
        if all(seconds):
            found[f"minutes{number}"] = sum(map(statistics.mean, seconds)) / 60
        memory = [speed.peak_memory_mib for speed in speeds if speed.peak_memory_mib is not None]
        if memory:
            found[f"memory{number}"] = max(memory)
    return found


def _measured(speed: PresetSpeed | None, tasks: Sequence[str]) -> dict[str, Value]:
    """Return the speed and the memory of a mixer that were measured at a preset."""
    if speed is None or (len(tasks) == 1 and tasks[0] not in speed.by_task):
        return {}
    relative = speed.by_task[tasks[0]] if len(tasks) == 1 else speed.relative
    return {"relative": relative, "measured_memory": speed.memory}


def _describe(
    points: Sequence[dict[str, Value]], titles: Mapping[str, str]
) -> tuple[list[Field], dict[str, str]]:
    """Return the fields that any point has, and those that a chart shows at first.

    Of the costs that most rows of the user's own have, it is the first that half of all rows have.
    Each point gets its text, and whether its name stands beside it.
    """
    values = {name: [_number_of(p, name) for p in points if name in p] for name in titles}
    known = {name: [v for v in found if v is not None] for name, found in values.items()}
    fields = [
        Field(name, titles[name], name != SCORE and len(found) > 1 and has_outlier(found))
        for name, found in known.items()
        if found
    ]
    for point in points:
        point["tip"] = _describe_point(point, fields)
    for panel in {point["panel"] for point in points}:
        _choose_names([point for point in points if point["panel"] == panel])

    def merit(name: str) -> tuple[int, bool]:
        having = [point for point in points if point.get(name) is not None]
        return sum(bool(point["is_own"]) for point in having), 2 * len(having) >= len(points)

    costs = [one.name for one in fields if one.name != SCORE]
    if not costs:
        return fields, {}
    areas = [*(name for name in costs if "memory" in name), SAME]
    fields.append(Field(SAME, "the same for all"))
    return fields, {"x": max(costs, key=merit), "y": SCORE, "size": max(areas, key=merit)}


def _number_of(point: Point, name: str) -> float | None:
    value = point.get(name)
    return float(value) if isinstance(value, (int, float)) else None


def _describe_point(point: Point, fields: Sequence[Field]) -> str:
    """Write all that is known of a point, a line each."""
    low, high = _number_of(point, "low"), _number_of(point, "high")
    lines = [str(point["row"])]
    for one in fields:
        if (value := _number_of(point, one.name)) is not None:
            has_interval = one.name == SCORE and low is not None and high is not None
            interval = f" ({_write(low)} to {_write(high)})" if has_interval else ""
            lines.append(f"{one.title}: {_write(value)}{interval}")
    seeds, device, remarks = (str(point[name]) for name in ("seeds", "device", "remarks"))
    return "\n".join([*lines, f"seeds: {seeds}", f"device: {device}", *filter(None, [remarks])])


def _write(value: float | None) -> str:
    if value is None:
        return MISSING
    return f"{value:,.0f}" if abs(value) >= LARGEST_WITH_DIGITS else f"{value:.4g}"


def _choose_names(points: Sequence[dict[str, Value]]) -> None:
    """Choose whose names stand beside them: the user's own and the highest, none upon another."""
    heights = [_number_of(point, SCORE) or 0.0 for point in points]
    apart = (max(heights) - min(heights)) / MOST_NAMES
    taken: list[float] = []
    order = sorted(
        zip(heights, points, strict=True), key=lambda one: (not one[1]["is_own"], -one[0])
    )
    for height, point in order:
        if all(abs(height - other) > apart for other in taken):
            point["is_named"] = True
            taken.append(height)
