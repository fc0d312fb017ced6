"""Where results differ: accuracy by length and by metadata of the examples, and confusions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from lra.record.run import NO_PREDICTION, RunRecord
from lra.report.boards.board import Board
from lra.report.boards.results import Results
from lra.report.boards.slugs import slugify
from lra.report.figures.drawing import (
    Looks,
    ReportFigure,
    figure_with_labels,
    label_text,
    legend_below,
    legend_name,
    new_figure,
)
from lra.report.figures.drawn_rows import choose_rows, rank_by_result
from lra.report.figures.labels import LineEnd, label_ends

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_FIELDS = 20
"""Most metadata fields of a task that accuracy is drawn by."""
BINS = 8
"""Number of groups, of about equal size, that a field of many numbers is divided into."""
FEWEST = 10
"""Fewest examples of a group whose accuracy is shown."""
_Z95 = 1.959964
_PANELS_A_ROW = 3


@dataclass(frozen=True)
class GroupAccuracy:
    """Accuracy of one method on a group of the test examples."""

    name: str
    """Value of the metadata field; for a range of values, the lowest."""
    x: float
    """Position on the x axis: the mean of numbers, or the place of a name among all names."""
    accuracy: float
    """Percent, mean over seeds."""
    low: float
    high: float
    """Upper end of the 95 % interval (Wilson) that starts at `low`, for as many draws as examples,
    however many seeds there are."""
    examples: int


@dataclass(frozen=True)
class Outcome:
    """Predictions of all seeds of one method on the same test examples."""

    labels: np.ndarray
    """(examples,) true classes."""
    predictions: np.ndarray
    """(seeds, examples) classes."""
    metadata: dict[str, np.ndarray]
    """Metadata fields by name, (examples,) each."""

    @property
    def rate(self) -> np.ndarray:
        """Fraction of the seeds that are right, (examples,)."""
        return (self.predictions == self.labels).mean(axis=0)


def wilson(proportion: float, total: int) -> tuple[float, float]:
    """Return the 95 % interval of a proportion of `total` draws, in percent (Wilson, 1927)."""
    z2 = _Z95**2
    scale = 1 + z2 / total
    middle = (proportion + z2 / (2 * total)) / scale
    spread = math.sqrt(proportion * (1 - proportion) / total + z2 / (4 * total**2)) / scale
    half = _Z95 * spread
    return 100 * max(0.0, middle - half), 100 * min(1.0, middle + half)


def outcome(results: Results, runs: Sequence[RunRecord]) -> Outcome | None:
    """Join the predictions of runs that differ only in their seed; None if there are none."""
    found = results.predictions_on_same(runs)
    if not found:
        return None
    first = next(iter(found.values()))
    return Outcome(
        first.labels, np.stack([one.predictions for one in found.values()]), first.metadata
    )


def is_number(values: np.ndarray) -> bool:
    """Whether the values of a metadata field are drawn on an axis of numbers."""
    return values.dtype.kind in "if"


def group_accuracies(found: Outcome, field: str) -> list[GroupAccuracy]:
    """Break accuracy down by a metadata field; many different numbers are grouped by quantiles."""
    values = found.metadata[field]
    names, groups = np.unique(values, return_inverse=True)
    if is_number(values) and len(names) > 2 * BINS:
        edges = np.unique(np.quantile(values, np.linspace(0, 1, BINS + 1)))
        groups = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
        names = edges[:-1]
    made = []
    for place, name in enumerate(names):
        inside = groups == place
        total = int(inside.sum())
        if total >= FEWEST:
            rate = float(found.rate[inside].mean())
            x = float(values[inside].mean()) if is_number(values) else float(place)
            made.append(GroupAccuracy(str(name), x, 100 * rate, *wilson(rate, total), total))
    return made


def breakdown_figures(
    results: Results, board: Board, looks: Looks, slug: str
) -> list[ReportFigure]:
    """Make a figure per task and metadata field, and one of confusions per task."""
    figures = []
    for task in board.tasks:
        by_method, note = _drawn_outcomes(results, board, task)
        if not by_method:
            continue
        fields = next(iter(by_method.values())).metadata
        of_fields = (
            f" Of {len(fields):,} metadata fields, figures show the first {MOST_FIELDS}."
            if len(fields) > MOST_FIELDS
            else ""
        )
        for field, values in itertools.islice(fields.items(), MOST_FIELDS):
            groups = {
                method: group_accuracies(one, field)
                for method, one in by_method.items()
                if field in one.metadata
            }
            if max(map(len, groups.values())) < 2:  # noqa: PLR2004
                continue
            figures.append(
                ReportFigure(
                    slugify("accuracy", task, "by", field, slug),
                    f"{task}: accuracy by {field}",
                    f"{board.name}. Mean over seeds on groups of at least {FEWEST} test examples; "
                    f"bars: 95 % interval of a proportion of so many (Wilson)."
                    f"{of_fields}{note}",
                    partial(draw_group_accuracies, groups, field, is_number(values), looks),
                )
            )
        figures.append(
            ReportFigure(
                slugify("confusions", task, slug),
                f"{task}: confusions",
                f"{board.name}. Percent of the test examples of each true class (row), seeds "
                f"pooled.{note}",
                partial(
                    _draw_confusions,
                    {name: replace(found, metadata={}) for name, found in by_method.items()},
                ),
            )
        )
    return figures


def _drawn_outcomes(results: Results, board: Board, task: str) -> tuple[dict[str, Outcome], str]:
    """Read the predictions of the rows that figures draw, and of no others: files may be many.

    Returns: the predictions by row, and a sentence for captions on the rows that are left out.
    """
    runs = {
        method: cells[task].runs
        for method, cells in board.rows.items()
        if task in cells and any(map(results.has_predictions, cells[task].runs))
    }
    chosen, note = choose_rows(runs, rank_by_result(board, task))
    found = {method: outcome(results, group) for method, group in chosen.items()}
    return {method: one for method, one in found.items() if one is not None}, note


def draw_group_accuracies(
    found: dict[str, list[GroupAccuracy]], field: str, of_numbers: bool, looks: Looks
) -> Figure:
    """Draw groups' accuracies by method over a metadata field, numbers or names."""
    figure = figure_with_labels(found) if of_numbers else new_figure(found)
    axes = figure.subplots()
    ends = plot_group_accuracies(axes, found, of_numbers, looks)
    axes.set_xlabel("length, positions" if field == "length" else field)
    if of_numbers:
        label_ends(axes, ends)
    else:
        legend_below(axes)
    return figure


def plot_group_accuracies(
    axes: Axes, found: dict[str, list[GroupAccuracy]], of_numbers: bool, looks: Looks
) -> list[LineEnd]:
    """Put groups' accuracies by method, with their intervals, on axes; return the lines' ends."""
    ends: list[LineEnd] = []
    for k, (method, groups) in enumerate(sorted(found.items())):
        # Names side by side, so that intervals can be told apart.
        shift = 0.0 if of_numbers else (k - (len(found) - 1) / 2) * (0.6 / len(found))
        look = looks.line(method)
        if not of_numbers:
            look["linestyle"] = "none"
        axes.errorbar(
            [group.x + shift for group in groups],
            [group.accuracy for group in groups],
            yerr=[
                [max(0.0, group.accuracy - group.low) for group in groups],
                [max(0.0, group.high - group.accuracy) for group in groups],
            ],
            label=legend_name(method),
            markersize=4,
            elinewidth=0.8,
            **look,
        )
        if groups:
            ends.append(LineEnd(groups[-1].x, groups[-1].accuracy, method, look["color"]))
    if not of_numbers:
        names = {group.x: group.name for groups in found.values() for group in groups}
        axes.set_xticks(list(names), list(names.values()))
    axes.set_ylabel("test accuracy, %")
    return ends


def confusion(found: Outcome) -> np.ndarray:
    """Return the percent of each true class (row) predicted as each class (column), seeds pooled.

    A row adds up to less than 100 if some of its examples were given no prediction.
    """
    classes = 1 + int(max(found.labels.max(), found.predictions.max()))
    counts = np.zeros((classes, classes))
    for predictions in found.predictions:
        is_given = predictions != NO_PREDICTION
        np.add.at(counts, (found.labels[is_given], predictions[is_given]), 1)
    totals = len(found.predictions) * np.bincount(found.labels, minlength=classes)[:, None]
    return 100 * counts / np.maximum(totals, 1)


def _draw_confusions(by_method: dict[str, Outcome]) -> Figure:
    """Draw a unit square for each method, all in the same axes: axes of their own take long."""
    matrices = {method: confusion(found) for method, found in sorted(by_method.items())}
    columns = min(_PANELS_A_ROW, len(matrices))
    rows = math.ceil(len(matrices) / columns)
    figure = new_figure(width=2.3 * columns + 1.3, height=2.5 * rows + 0.3)
    axes = figure.subplots()
    axes.set_axis_off()
    for k, (method, matrix) in enumerate(matrices.items()):
        left, bottom = 1.15 * (k % columns), -1.3 * (k // columns)
        axes.imshow(
            matrix, vmin=0, vmax=100, cmap="cividis", extent=(left, left + 1, bottom, bottom + 1)
        )
        axes.text(left + 0.5, bottom + 1.02, label_text(method), ha="center", va="bottom")
        classes = len(matrix)
        for number in range(0, classes, 1 + (classes - 1) // 5):
            place = (number + 0.5) / classes
            if k + columns >= len(matrices):  # nothing below
                axes.text(left + place, bottom - 0.02, str(number), ha="center", va="top")
            if k % columns == 0:
                axes.text(left - 0.02, bottom + 1 - place, str(number), ha="right", va="center")
        if k + columns >= len(matrices):
            axes.text(left + 0.5, bottom - 0.12, "prediction", ha="center", va="top")
        if k % columns == 0:
            axes.text(left - 0.12, bottom + 0.5, "class", ha="right", va="center", rotation=90)
    axes.set(xlim=(0, 1.15 * columns - 0.15), ylim=(-1.3 * (rows - 1), 1), aspect="equal")
    figure.colorbar(axes.images[0], ax=axes, label="% of the class", shrink=0.8)
    return figure
