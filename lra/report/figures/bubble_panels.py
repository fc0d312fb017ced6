"""What bubble plots show: speed, accuracy and memory of each method, task by task or averaged."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lra.report.boards.averages import AVERAGES, averages
from lra.report.boards.board import Board
from lra.report.boards.measures import ACCURACY
from lra.report.boards.speeds import Speed, speed_of
from lra.report.figures.best_rows import choose_rows, rank, rank_in_turn
from lra.report.figures.intervals import Interval, average_interval, interval_of


@dataclass(frozen=True)
class Bubble:
    """A bubble: x and y in the units of the axes, memory in MiB."""

    method: str
    x: float
    y: float
    memory: float
    interval: Interval | None = None
    """Lower and upper end on the y axis; None where it is not known."""
    seeds: int = 1
    """Number of seeds that y is a mean of; of an average, the fewest of a task."""


@dataclass(frozen=True)
class Panel:
    """Accuracy, or bits, over speed, on one task or averaged over several."""

    name: str
    tasks: Sequence[str]
    unit: str
    """Unit of speed: steps/s, or examples/s if mixers have batches of different sizes; or in
    percent of another mixer's."""
    bubbles: list[Bubble]
    measured: str = "test accuracy, %"
    """Label of the y axis."""
    lowest_is_best: bool = False
    """Whether low bubbles are the good ones."""


Speeds = dict[tuple[str, str], Speed]
"""Speeds on one device, by method and task."""


def speeds_on(board: Board, device: str) -> Speeds:
    """Return the speeds of a board that were measured on one device."""
    found: Speeds = {}
    for method, cells in board.rows.items():
        for task, cell in cells.items():
            runs = [run for run in cell.runs if run.device == device]
            if runs and (speed := speed_of(runs)).steps_per_second is not None:
                found[method, task] = speed
    return found


def relative_panels(board: Board, relative_to: str, speeds: Speeds) -> list[Panel]:
    """Compare every method with one mixer, a panel for each task that both have results on.

    Args:
        board: the accuracies of all methods.
        relative_to: the mixer compared with; x and y are in percent of its speed and accuracy.
        speeds: the speeds of all methods.
    """
    base = board.rows.get(relative_to, {})
    panels: list[Panel] = []
    for task in board.tasks:
        against = speeds.get((relative_to, task))
        base_value = base[task].value if task in base else None
        if against is None or not base_value:
            continue
        bubbles = [
            Bubble(
                method,
                100 * speed.examples_per_second / against.examples_per_second,
                100 * value / base_value,
                speed.memory,
                _scale(interval_of(cells[task], ACCURACY), 100 / base_value),
                len(cells[task].accuracies),
            )
            for method, cells in board.rows.items()
            if (speed := speeds.get((method, task))) and (value := cells[task].value) is not None
        ]
        unit = f"% of {relative_to}'s"
        panels.append(Panel(task, [task], unit, bubbles, f"test accuracy, {unit}"))
    return _comparable(panels)


def average_panels(board: Board, speeds: Speeds) -> list[Panel]:
    """Make a panel for each average over tasks that at least two methods have."""
    panels: list[Panel] = []
    for name, tasks in AVERAGES.items():
        means = {method: averages(cells)[name] for method, cells in board.rows.items()}
        panels.append(_make_panel(name, tasks, means, speeds, board))
    return _comparable(panels)


def task_panels(board: Board, speeds: Speeds) -> list[Panel]:
    """Make a panel for each task that at least two methods have results on."""
    panels: list[Panel] = []
    measure = board.measures[0]
    for task in board.tasks:
        values = {
            method: cells[task].value_of(measure)
            for method, cells in board.rows.items()
            if task in cells
        }
        panel = _make_panel(task, [task], values, speeds, board)
        if measure.lowest_is_best:
            label = f"{measure.name} (lower is better)"
            panel = replace(panel, measured=label, lowest_is_best=True)
        panels.append(panel)
    return _comparable(panels)


def choose_bubbles(panels: Sequence[Panel], base: str | None) -> tuple[list[Panel], str]:
    """Choose the bubbles that a figure draws, of the same rows in all of its panels.

    Args:
        panels: the panels with all bubbles.
        base: a row that is drawn in any case; None if there is none.
    Returns: the panels, and a sentence for the caption on the rows that are left out.
    """
    heights = [
        rank({b.method: b.y for b in one.bubbles}, one.name, lowest_is_best=one.lowest_is_best)
        for one in panels
    ]
    first = [] if base is None else [rank({base: 0.0}, base)]
    rule = "the vertical axis" + " of each panel in turn" * (len(panels) > 1)
    every = dict.fromkeys(bubble.method for panel in panels for bubble in panel.bubbles)
    chosen, note = choose_rows(every, rank_in_turn([*first, *heights], rule))
    shown = [
        replace(panel, bubbles=[b for b in panel.bubbles if b.method in chosen]) for panel in panels
    ]
    return _comparable(shown), note


def _scale(interval: Interval | None, factor: float) -> Interval | None:
    return None if interval is None else (factor * interval[0], factor * interval[1])


def _comparable(panels: Sequence[Panel]) -> list[Panel]:
    return [panel for panel in panels if len(panel.bubbles) > 1]


def _make_panel(
    name: str,
    tasks: Sequence[str],
    values: Mapping[str, float | None],
    speeds: Speeds,
    board: Board,
) -> Panel:
    """Make a panel of the methods that have a value, and a speed on every task."""
    found: dict[str, list[Speed]] = {}
    for method, value in values.items():
        measured = [speed for task in tasks if (speed := speeds.get((method, task)))]
        if value is not None and len(measured) == len(tasks):
            found[method] = measured
    batches = {tuple(speed.batch_size for speed in measured) for measured in found.values()}
    in_steps = len(batches) <= 1
    measure = board.measures[0]
    bubbles = []
    for method, measured in found.items():
        x = statistics.geometric_mean(
            (s.steps_per_second or math.nan) if in_steps else s.examples_per_second
            for s in measured
        )
        memory = max(speed.memory for speed in measured)
        cells = [board.rows[method][task] for task in tasks]
        interval = average_interval(
            [cell.mean_of(measure) or 0.0 for cell in cells],
            [interval_of(cell, measure) for cell in cells],
        )
        seeds = min(len(cell.numbers(measure)) for cell in cells)
        bubbles.append(Bubble(method, x, values[method] or 0.0, memory, interval, seeds))
    return Panel(name, tasks, "steps/s" if in_steps else "examples/s", bubbles)
