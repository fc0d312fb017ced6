"""The points of bubble charts: what each row scores, and what that costs."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lra.record.run import RunRecord
from lra.report.boards import Board
from lra.report.data import Data
from lra.report.scores import ACCURACY, AVERAGES, Cell, Measure, average_interval
from lra.report.tables.probes import Probe
from lra.report.tables.speeds import PresetSpeed, preset_speeds
from lra.runtime.console import MISSING

MOST_NAMES = 20
"""Most names of points, one above the other, for which a chart is high enough."""
LARGEST_WITH_DIGITS = 1000
"""Number from which texts have no decimals."""
Value = float | str | bool | None
Point = dict[str, Value]
"""A row in a panel: its score, and a number for each field that is known."""
SCORE, SAME, RELATIVE = "score", "same", "relative"
"""Fields: what points score; 1, for circles of equal area; speed relative to another mixer's."""


@dataclass(frozen=True)
class Field:
    """A number of each point that an axis, or the area of circles, can show."""

    name: str
    title: str
    is_logarithmic: bool = False


@dataclass(frozen=True)
class Bubbles:
    """Points, the fields that they have, and the field of each axis that a chart shows at first."""

    points: Sequence[Point]
    fields: Sequence[Field]
    axes: Mapping[str, str]

    @property
    def panels(self) -> list[str]:
        """What a chart can show, one at a time."""
        return list(dict.fromkeys(str(point["panel"]) for point in self.points))


def bubbles_of_board(data: Data, board: Board) -> Bubbles:
    """Make a point for each row and task, and for each row and average over tasks."""
    measure = board.measures[0]
    devices = [name for name, _ in Counter(sorted(r.device for r in board.records)).most_common()]
    titles = {SCORE: "test accuracy, %" if measure is ACCURACY else measure.name}
    speeds = preset_speeds(data.bench, board.preset, board.protocol, data.relative_to)
    if speeds.by_mixer and not board.of_positions:
        titles[RELATIVE] = f"training speed, {speeds.relative_to} = 1, on {speeds.device}"
        titles["measured_memory"] = f"peak memory, MiB, on {speeds.device}"
    for number, device in enumerate(devices):
        titles[f"speed{number}"] = f"training speed, steps/s, on {device}"
        titles[f"minutes{number}"] = f"training time, minutes, on {device}"
        titles[f"memory{number}"] = f"peak memory, MiB, on {device}"
    titles["parameters"] = "parameters"
    panels = {task: [task] for task in board.tasks}
    if board.is_main and not board.of_positions:
        panels |= {name: [*tasks] for name, tasks in AVERAGES.items()}
    points: list[Point] = []
    for panel, tasks in panels.items():
        for row, cells in board.rows.items():
            found = [cells.get(task, Cell()) for task in tasks]
            if (point := _point(row, panel, found, measure)) is not None:
                measured = _measured(speeds.by_mixer.get(row), tasks)
                points.append(point | _costs(devices, found) | measured)
    return _describe(points, titles)


def bubbles_of_probe(probe: Probe) -> Bubbles:
    """Make a point for each row and variant of a probe."""
    points: list[Point] = []
    for variant in probe.variants:
        for row in probe.rows:
            cell = variant.cell(row)
            point = _point(row, variant.heading, [cell], ACCURACY)
            if point is not None:
                states = [run.state_size for run in cell.runs if run.state_size is not None]
                point["state"] = statistics.mean(states) if states else None
                point["width"] = float(cell.runs[0].settings.get("model.dim", 0))
                point["parameters"] = float(max(run.params for run in cell.runs))
                points.append(point)
    titles = {
        SCORE: "test accuracy, %",
        "parameters": "parameters",
        "width": "width, channels",
        "state": "state of a sequence, numbers",
    }
    return _describe(points, titles)


def _point(
    row: str, panel: str, cells: Sequence[Cell[RunRecord]], measure: Measure
) -> Point | None:
    """Describe the score of a row in a panel; None without a score on any of its tasks."""
    known = [value for cell in cells if (value := cell.number(measure)) is not None]
    if len(known) < len(cells):
        return None
    interval = average_interval(known, [cell.interval(measure) for cell in cells])
    low, high = interval or (None, None)
    remarks = dict.fromkeys(remark for cell in cells for remark in cell.remarks(measure))
    return {
        "row": row, "panel": panel, SCORE: statistics.mean(known), SAME: 1.0, "low": low,
        "high": high, "seeds": min(len(cell.numbers(measure)) for cell in cells),
        "device": ", ".join(sorted({run.device for cell in cells for run in cell.runs})),
        "remarks": ", ".join(remarks), "is_own": any(cell.has_own for cell in cells),
    }  # fmt: skip


def _costs(devices: Sequence[str], cells: Sequence[Cell[RunRecord]]) -> Point:
    """Return what training took on each device that made runs of all cells, and the parameters."""
    found: Point = {"parameters": float(max(run.params for cell in cells for run in cell.runs))}
    for number, device in enumerate(devices):
        groups = [
            [run for run in cell.runs if run.device == device and run.status != "oom"]
            for cell in cells
        ]
        if not all(groups):
            continue
        for name, field, join in (
            (f"speed{number}", "steps_per_second", statistics.geometric_mean),
            (f"minutes{number}", "train_seconds", lambda values: sum(values) / 60),
            (f"memory{number}", "peak_memory_mib", max),
        ):
            values = [[v for run in group if (v := getattr(run, field))] for group in groups]
            middle = max if field == "peak_memory_mib" else statistics.median
            if all(values):
                found[name] = join([*map(middle, values)])
    return found


def _measured(speed: PresetSpeed | None, tasks: Sequence[str]) -> Point:
    """Return the speed and the memory of a mixer that were measured at a preset."""
    if speed is None or (len(tasks) == 1 and tasks[0] not in speed.by_task):
        return {}
    relative = speed.by_task[tasks[0]] if len(tasks) == 1 else speed.relative
    return {RELATIVE: relative, "measured_memory": speed.memory}


def _describe(points: Sequence[Point], titles: Mapping[str, str]) -> Bubbles:
    """Choose the fields that any point has, and those that a chart shows at first.

    Of the costs that most rows of the user's own have, it is the first that half of all rows have.
    Each point gets its text, and whether its name stands beside it.
    """
    values = {name: [number_of(p, name) for p in points if name in p] for name in titles}
    known = {name: [v for v in found if v is not None] for name, found in values.items()}
    fields = [
        Field(name, titles[name], name != SCORE and has_outlier(found))
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
        return Bubbles(points, fields, {})
    areas = [*(name for name in costs if "memory" in name), SAME]
    fields.append(Field(SAME, "the same for all"))
    axes = {"x": max(costs, key=merit), "y": SCORE, "size": max(areas, key=merit)}
    return Bubbles(points, fields, axes)


def number_of(point: Point, name: str) -> float | None:
    """Return a number of a point; None where it is not known."""
    value = point.get(name)
    return float(value) if isinstance(value, (int, float)) else None


def has_outlier(values: Sequence[float]) -> bool:
    """Whether one value would push the others into a corner: it is over twice their median."""
    return len(values) > 1 and min(values) > 0 and max(values) > 2 * statistics.median_low(values)


def _describe_point(point: Point, fields: Sequence[Field]) -> str:
    """Write all that is known of a point, a line each."""
    low, high = number_of(point, "low"), number_of(point, "high")
    lines = [str(point["row"])]
    for one in fields:
        if (value := number_of(point, one.name)) is not None:
            has_interval = one.name == SCORE and low is not None and high is not None
            interval = f" ({_write(low)} to {_write(high)})" if has_interval else ""
            lines.append(f"{one.title}: {_write(value)}{interval}")
    lines += [f"seeds: {point['seeds']}", f"device: {point['device']}", str(point["remarks"])]
    return "\n".join(filter(None, lines))


def _write(value: float | None) -> str:
    if value is None:
        return MISSING
    return f"{value:,.0f}" if abs(value) >= LARGEST_WITH_DIGITS else f"{value:.4g}"


def _choose_names(points: Sequence[Point]) -> None:
    """Choose whose names stand beside them: the user's own and the highest, none upon another."""
    heights = [number_of(point, SCORE) or 0.0 for point in points]
    least = (max(heights) - min(heights)) / MOST_NAMES
    taken: list[float] = []
    order = sorted(
        zip(heights, points, strict=True), key=lambda one: (not one[1]["is_own"], -one[0])
    )
    for height, point in order:
        if all(abs(height - other) > least for other in taken):
            point["is_named"] = True
            taken.append(height)
