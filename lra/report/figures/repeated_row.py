"""The validation curve of a run with published settings, beside the published test accuracies."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from lra.record.run import RunRecord
from lra.report.boards.results import Results
from lra.report.figures.drawing import ReportFigure, new_figure, plot_line
from lra.report.published.rows import rows_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LINES = ("--", ":", "-.")
"""Styles of the lines of published numbers."""

Published = Sequence[tuple[str, float]]
"""Published rows of a mixer, and their test accuracies in percent on the task of a run."""


def repeated_row_figure(results: Results, run: RunRecord) -> ReportFigure:
    """Draw a run's validation accuracy over all of its steps, made or not.

    Args:
        results: the results that the run is of.
        run: a run of published settings, finished or not.
    """
    published = [
        (row.method, value)
        for row in rows_of([run.mixer])
        if (value := row.values[run.task]) is not None
    ]
    points = [
        (float(line.step), line.val_accuracy)
        for line in results.validations(run)
        if line.val_accuracy is not None
    ]
    return ReportFigure(
        f"repeated-{run.task}-{run.mixer}",
        f"{run.mixer} on {run.task} with published settings",
        _caption(run, published),
        partial(_draw, points, run.total_steps, published),
    )


def _caption(run: RunRecord, published: Published) -> str:
    made = (
        f"The run made all of its {run.total_steps:,} steps"
        if run.steps == run.total_steps
        else f"The run made {run.steps:,} of its {run.total_steps:,} steps "
        f"({100 * run.steps / run.total_steps:.0f} %)"
    )
    reached = []
    if run.val_accuracy is not None:
        reached.append(
            f"Its best validation accuracy is {run.val_accuracy:.2f} %, at step {run.best_step:,}."
        )
    if run.test_accuracy is not None:
        reached.append(f"Its test accuracy is {run.test_accuracy:.2f} %.")
    printed = ", ".join(f"{method} {value:.2f} %" for method, value in published)
    return " ".join(
        [
            f"{made} on {run.device}, with seed {run.seed}.",
            *reached,
            f"Published test accuracies (horizontal lines): {printed}.",
        ]
    )


def _draw(points: Sequence[tuple[float, float]], steps: int, published: Published) -> Figure:
    figure = new_figure()
    axes = figure.subplots()
    plot_line(axes, "validation", points, {"color": "#1f6fb4", "marker": "o", "linewidth": 1.2})
    for (method, value), style in zip(published, _LINES, strict=False):
        name = f"{method} {value:.2f}"
        axes.axhline(value, color="#444444", linewidth=1.0, linestyle=style, label=name)
    axes.set_xlabel("optimizer steps")
    axes.set_ylabel("accuracy, %")
    axes.set_xlim(0, steps)
    axes.legend(loc="lower right")
    return figure
