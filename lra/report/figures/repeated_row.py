"""The validation curves of runs with published settings, beside the published test accuracies."""

from __future__ import annotations

import itertools
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

_COLORS = ("#1f6fb4", "#c4501b", "#3c8c40")
"""Colours of the attempts."""

Attempt = tuple[Results, RunRecord]
"""A run of published settings, finished or not, and the results that it is of."""

Published = Sequence[tuple[str, float]]
"""Published rows of a mixer, and their test accuracies in percent on the task of a run."""


def repeated_row_figure(attempts: Sequence[Attempt]) -> ReportFigure:
    """Draw the validation accuracy of runs over all of their steps, made or not.

    Args:
        attempts: runs of the same task, mixer and settings.
    """
    run = attempts[0][1]
    published = [
        (row.method, value)
        for row in rows_of([run.mixer])
        if (value := row.values[run.task]) is not None
    ]
    curves = [
        [
            (float(line.step), line.val_accuracy)
            for line in results.validations(attempt)
            if line.val_accuracy is not None
        ]
        for results, attempt in attempts
    ]
    printed = ", ".join(f"{method} {value:.2f} %" for method, value in published)
    sentences = [
        *(
            _describe(attempt, f"Attempt {number}")
            for number, (_, attempt) in enumerate(attempts, start=1)
        ),
        f"Published test accuracies (horizontal lines): {printed}.",
    ]
    return ReportFigure(
        f"repeated-{run.task}-{run.mixer}",
        f"{run.mixer} on {run.task} with published settings",
        " ".join(sentences),
        partial(_draw, curves, run.total_steps, published),
    )


def _describe(run: RunRecord, name: str) -> str:
    """Say how far a run came, and what it reached."""
    made = (
        f"all of its {run.total_steps:,} steps"
        if run.steps == run.total_steps
        else f"{run.steps:,} of its {run.total_steps:,} steps "
        f"({100 * run.steps / run.total_steps:.0f} %)"
    )
    sentences = [f"{name} made {made} on {run.device}, with seed {run.seed}."]
    if run.val_accuracy is not None:
        sentences.append(
            f"Its best validation accuracy is {run.val_accuracy:.2f} %, at step {run.best_step:,}."
        )
    if run.test_accuracy is not None:
        sentences.append(f"Its test accuracy is {run.test_accuracy:.2f} %.")
    return " ".join(sentences)


def _draw(
    curves: Sequence[Sequence[tuple[float, float]]], steps: int, published: Published
) -> Figure:
    figure = new_figure()
    axes = figure.subplots()
    for number, (points, color) in enumerate(
        zip(curves, itertools.cycle(_COLORS), strict=False), start=1
    ):
        name = f"validation, attempt {number}"
        plot_line(axes, name, points, {"color": color, "marker": "o", "linewidth": 1.2})
    for (method, value), style in zip(published, itertools.cycle(_LINES), strict=False):
        name = f"{method} {value:.2f}"
        axes.axhline(value, color="#444444", linewidth=1.0, linestyle=style, label=name)
    axes.set_xlabel("optimizer steps")
    axes.set_ylabel("accuracy, %")
    axes.set_xlim(0, steps)
    axes.legend(loc="lower right")
    return figure
