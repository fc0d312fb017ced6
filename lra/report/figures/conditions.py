"""Accuracies of the same mixers and tasks under a few conditions."""

from __future__ import annotations

from functools import partial

from lra.report.boards.cells import cell_of
from lra.report.boards.finding_runs import Conditions
from lra.report.boards.measures import ACCURACY
from lra.report.figures.dots import Dot, draw_dots
from lra.report.figures.drawing import ReportFigure
from lra.report.figures.intervals import interval_of
from tasks.base import BENCHMARK


def condition_figure(slug: str, title: str, caption: str, conditions: Conditions) -> ReportFigure:
    """Draw the test accuracy of each mixer on each task under each condition.

    Args:
        slug: name of the figure in files.
        title: title of the figure.
        caption: what the conditions are.
        conditions: the runs; those of one condition, mixer and task are seeds.
    """
    places = {(run.task, run.mixer) for runs in conditions.values() for run in runs}
    rows: list[tuple[str, list[Dot]]] = []
    for task, mixer in sorted(places, key=lambda place: (BENCHMARK.index(place[0]), place[1])):
        dots: list[Dot] = []
        for number, runs in enumerate(conditions.values()):
            cell = cell_of([run for run in runs if (run.task, run.mixer) == (task, mixer)])
            if cell.mean is not None:
                dots.append(Dot(number, cell.mean, interval=interval_of(cell, ACCURACY)))
        if dots:
            rows.append((f"{mixer}, {task}", dots))
    return ReportFigure(
        slug,
        title,
        f"{caption} Horizontal lines through markers are 95 % intervals of a single seed (Wilson), "
        f"or the standard deviation over seeds.",
        partial(draw_dots, rows, [*conditions], "test accuracy, %"),
    )
