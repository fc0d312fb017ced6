"""Where results differ: accuracy by length and by metadata of the examples."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from lra.record.intervals import wilson_interval
from lra.record.run import NO_PREDICTION, RunRecord
from lra.report.boards.board import Board
from lra.report.boards.predictions import Predictions
from lra.report.boards.results import Results
from lra.report.boards.slugs import natural_order, slugify
from lra.report.figures.best_rows import choose_rows, rank_by_result
from lra.report.figures.drawing import (
    ReportFigure,
    add_legend,
    new_figure,
    plot_line,
    set_length_scale,
)
from lra.report.figures.intervals import draw_intervals
from lra.report.figures.styles import MethodStyles, styles_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_FIELDS = 20
"""Most metadata fields of a task that accuracy is drawn by."""
ACCURACY = "test accuracy, %"
"""Label of the y axis."""
BINS = 8
"""Number of groups, of about equal size, that a field of many numbers is divided into."""
FEWEST = 10
"""Fewest examples of a group whose accuracy is shown."""


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
    seeds: int = dataclass_field(default=1, compare=False)
    """Number of seeds that the accuracy is a mean of."""


@dataclass(frozen=True)
class SeedPredictions:
    """Predictions of all seeds of one method on the same test examples."""

    seeds: list[Predictions]
    """The predictions of each seed."""

    @property
    def metadata(self) -> dict[str, np.ndarray]:
        """Metadata fields by name, (examples,) each."""
        return self.seeds[0].metadata

    @functools.cached_property
    def rate(self) -> np.ndarray:
        """Share of the labels of each example that were predicted, the mean over seeds."""
        return np.mean([one.right for one in self.seeds], axis=0)


def join_predictions(results: Results, runs: Sequence[RunRecord]) -> SeedPredictions | None:
    """Join the predictions of runs that differ only in their seed; None if there are none."""
    found = results.predictions_on_same(runs)
    if not found:
        return None
    return SeedPredictions(list(found.values()))


def is_number(values: np.ndarray) -> bool:
    """Whether the values of a metadata field are drawn on an axis of numbers."""
    return values.dtype.kind in "if"


def group_accuracies(found: SeedPredictions, field: str) -> list[GroupAccuracy]:
    """Break accuracy down by a metadata field; many different numbers are grouped by quantiles."""
    values = found.metadata[field]
    names, groups = np.unique(values, return_inverse=True)
    if is_number(values) and len(names) > 2 * BINS:
        edges = np.unique(np.quantile(values, np.linspace(0, 1, BINS + 1)))
        groups = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
        names = edges[:-1]
    order = sorted(map(str, names), key=natural_order)
    made = []
    for place, name in enumerate(names):
        inside = groups == place
        total = int(inside.sum())
        if total >= FEWEST:
            rate = float(found.rate[inside].mean())
            x = float(values[inside].mean()) if is_number(values) else float(order.index(str(name)))
            interval = wilson_interval(rate, total)
            seeds = len(found.seeds)
            made.append(GroupAccuracy(str(name), x, 100 * rate, *interval, total, seeds))
    return made


def breakdown_figures(
    results: Results,
    board: Board,
    styles: MethodStyles,
    slug: str,
    only: Collection[str] = (),
) -> list[ReportFigure]:
    """Make a figure per task and metadata field, and of labels of positions one over length.

    Args:
        results: where predictions are.
        board: the rows.
        styles: of the rows.
        slug: end of the figures' slugs.
        only: the fields that are drawn; empty for all.
    """
    figures = []
    for task in board.tasks:
        by_method, note = _read_predictions(results, board, task)
        if not by_method:
            continue
        fields = next(iter(by_method.values())).metadata
        of_fields = (
            f" Figures show the first {MOST_FIELDS} of {len(fields):,} metadata fields."
            if len(fields) > MOST_FIELDS
            else ""
        )
        shown = {name: one for name, one in fields.items() if not only or name in only}
        for field, values in itertools.islice(shown.items(), MOST_FIELDS):
            groups = {
                method: group_accuracies(one, field)
                for method, one in by_method.items()
                if field in one.metadata
            }
            if max(map(len, groups.values())) > 1:
                draw = partial(
                    draw_group_accuracies,
                    groups,
                    field,
                    is_number(values),
                    styles_of(groups, styles),
                )
                figures.append(_figure_of_field(board, task, field, slug, of_fields + note, draw))
        samples = [one.seeds[0] for one in by_method.values()]
        if any(one.are_all_positions_scored for one in samples):
            figures.append(_figure_of_prefixes(board, task, by_method, styles, slug, note))
    return figures


def _figure_of_field(  # noqa: PLR0917 (what all figures of a task have)
    board: Board, task: str, field: str, slug: str, note: str, draw: partial[Figure]
) -> ReportFigure:
    return ReportFigure(
        slugify("accuracy", task, "by", field, slug),
        f"{task}: accuracy by {field}",
        f"{board.name}. Mean accuracy over seeds on groups of at least {FEWEST} test examples. "
        f"Vertical bars show the 95 % binomial interval (Wilson) for the number of examples in the "
        f"group.{note}",
        draw,
    )


def _read_predictions(
    results: Results, board: Board, task: str
) -> tuple[dict[str, SeedPredictions], str]:
    """Read the predictions of the rows that figures draw, and of no others: files may be many.

    Returns: the predictions by row, and a sentence for captions on the rows that are left out.
    """
    runs = {
        method: cells[task].runs
        for method, cells in board.rows.items()
        if task in cells and any(map(results.has_predictions, cells[task].runs))
    }
    chosen, note = choose_rows(runs, rank_by_result(board, task))
    found = {method: join_predictions(results, group) for method, group in chosen.items()}
    return {method: one for method, one in found.items() if one is not None}, note


def draw_group_accuracies(
    groups: Mapping[str, Sequence[GroupAccuracy]],
    field: str,
    of_numbers: bool,
    styles: MethodStyles,
) -> Figure:
    """Draw groups' accuracies by method over a metadata field, numbers or names."""
    figure = new_figure(groups)
    axes = figure.subplots()
    plot_group_accuracies(axes, groups, of_numbers, styles)
    axes.set_xlabel("length, positions" if field == "length" else field)
    add_legend(figure)
    return figure


def plot_group_accuracies(
    axes: Axes,
    by_method: Mapping[str, Sequence[GroupAccuracy]],
    of_numbers: bool,
    styles: MethodStyles,
) -> None:
    """Put groups' accuracies by method, with their intervals, on axes."""
    by_method = {method: groups for method, groups in sorted(by_method.items()) if groups}
    for k, (method, groups) in enumerate(by_method.items()):
        # Names side by side, so that intervals do not overlap.
        shift = 0.0 if of_numbers else (k - (len(by_method) - 1) / 2) * (0.6 / len(by_method))
        points = [(group.x + shift, group.accuracy) for group in groups]
        line = {} if of_numbers else {"linestyle": "none"}
        plot_line(axes, method, points, {**styles[method], **line})
        intervals = [(group.low, group.high) for group in groups]
        draw_intervals(axes, points, intervals, styles[method]["color"])
    if not of_numbers:
        names = {group.x: group.name for groups in by_method.values() for group in groups}
        axes.set_xticks(list(names), list(names.values()))
    axes.set_ylabel(ACCURACY)


def accuracies_of_prefixes(found: SeedPredictions) -> list[tuple[float, float]]:
    """Return the share of the examples whose labels are all right up to a length, by length.

    Lengths double, up to that of the longest example; an example shorter than one counts whole.

    Returns: (length, percent) pairs, the mean over seeds.
    """
    longest = int(found.metadata["length"].max())
    lengths = [*(2**k for k in range(longest.bit_length()) if 2**k < longest), longest]
    made: list[tuple[float, float]] = []
    for length in lengths:
        right = [
            np.mean((first == NO_PREDICTION) | (first >= length))
            for one in found.seeds
            if (first := one.first_wrong) is not None
        ]
        made.append((float(length), 100 * float(np.mean(right))))
    return made


def _figure_of_prefixes(  # noqa: PLR0917 (what all figures of a task have)
    board: Board,
    task: str,
    by_method: Mapping[str, SeedPredictions],
    styles: MethodStyles,
    slug: str,
    note: str,
) -> ReportFigure:
    """Make the figure of sequence accuracy over the length up to which labels must be right."""
    points = {method: accuracies_of_prefixes(one) for method, one in sorted(by_method.items())}
    return ReportFigure(
        slugify("sequence-accuracy", task, slug),
        f"{task}: sequence accuracy over length",
        f"{board.name}. Percent of the test examples whose labels are all predicted right up to a "
        f"position, over that position. Mean over seeds.{note}",
        partial(_draw_prefixes, points, styles_of(points, styles)),
    )


def _draw_prefixes(
    by_method: Mapping[str, Sequence[tuple[float, float]]], styles: MethodStyles
) -> Figure:
    figure = new_figure(by_method)
    axes = figure.subplots()
    for method, points in by_method.items():
        plot_line(axes, method, points, styles[method])
    set_length_scale(axes, {int(length) for points in by_method.values() for length, _ in points})
    axes.set_xlabel("positions that must be right")
    axes.set_ylabel("sequence accuracy, %")
    add_legend(figure)
    return figure
