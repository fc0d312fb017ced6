"""Where results differ: accuracy by length and by metadata of the examples, and confusions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from lra.record.run import RunRecord
from lra.report.boards import Board
from lra.report.drawing import Looks, Picture, legend_below, legend_name, new_figure, slugify
from lra.report.results import Results
from lra.train.evaluation import NO_PREDICTION

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BINS = 8
"""Of numbers, with about as many examples each."""
FEWEST = 10
"""Examples that a share is shown for."""
_Z95 = 1.959964
_PANELS_A_ROW = 3


@dataclass(frozen=True)
class Share:
    """Accuracy of one method on some of the examples."""

    group: str
    x: float
    """Where it is drawn: the mean of numbers, the place of a name among all names."""
    accuracy: float
    """Percent, mean over seeds."""
    low: float
    high: float
    """95 % interval (Wilson), of as many draws as there are examples: seeds add none."""
    examples: int


@dataclass(frozen=True)
class Outcome:
    """What the seeds of one method made of the same test examples."""

    labels: np.ndarray
    """(examples,) true classes."""
    predictions: np.ndarray
    """(seeds, examples) classes."""
    metadata: dict[str, np.ndarray]
    """(examples,) by name."""

    @property
    def rate(self) -> np.ndarray:
        """(examples,) share of the seeds that are right."""
        return (self.predictions == self.labels).mean(axis=0)


def wilson(share: float, total: int) -> tuple[float, float]:
    """Return the 95 % interval of a share of `total` draws, in percent (Wilson, 1927)."""
    z2 = _Z95**2
    middle = (share + z2 / (2 * total)) / (1 + z2 / total)
    spread = math.sqrt(share * (1 - share) / total + z2 / (4 * total**2)) / (1 + z2 / total)
    half = _Z95 * spread
    return 100 * max(0.0, middle - half), 100 * min(1.0, middle + half)


def outcome(results: Results, runs: Sequence[RunRecord]) -> Outcome | None:
    """Join the predictions of runs that differ in seed alone; None where there are none."""
    found = results.predictions_on_same(runs)
    if not found:
        return None
    first = next(iter(found.values()))
    return Outcome(first.labels, np.stack([one.predictions for one in found.values()]), first.metadata)


def is_number(trait: np.ndarray) -> bool:
    """Whether a trait is drawn on an axis of numbers."""
    return trait.dtype.kind in "if"


def shares(found: Outcome, trait: str) -> list[Share]:
    """Break an accuracy down by a trait: numbers of many values by quantiles."""
    values = found.metadata[trait]
    names, groups = np.unique(values, return_inverse=True)
    if is_number(values) and len(names) > 2 * BINS:
        edges = np.unique(np.quantile(values, np.linspace(0, 1, BINS + 1)))
        groups = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
        names = edges[:-1]
    parts = []
    for place, name in enumerate(names):
        inside = groups == place
        total = int(inside.sum())
        if total >= FEWEST:
            rate = float(found.rate[inside].mean())
            x = float(values[inside].mean()) if is_number(values) else float(place)
            parts.append(Share(str(name), x, 100 * rate, *wilson(rate, total), total))
    return parts


def breakdown_pictures(results: Results, board: Board, looks: Looks, slug: str) -> list[Picture]:
    """Make a figure per task and trait, and one of confusions per task."""
    pictures = []
    for task in board.tasks:
        by_method = {
            method: found
            for method, cells in board.rows.items()
            if task in cells and (found := outcome(results, cells[task].runs)) is not None
        }
        if not by_method:
            continue
        for trait, values in next(iter(by_method.values())).metadata.items():
            parts = {m: shares(one, trait) for m, one in by_method.items() if trait in one.metadata}
            if max(map(len, parts.values())) < 2:  # noqa: PLR2004
                continue
            pictures.append(
                Picture(
                    f"{slug}-{task}-by-{slugify(trait)}",
                    f"{task}: accuracy by {trait}",
                    f"{board.name}. Mean over seeds on parts of at least {FEWEST} test examples; "
                    f"bars: 95 % interval of a share of so many (Wilson).",
                    partial(draw_shares, parts, trait, is_number(values), looks),
                )
            )
        pictures.append(
            Picture(
                f"{slug}-{task}-confusion",
                f"{task}: confusions",
                f"{board.name}. Percent of the test examples of each true class (row), seeds "
                f"pooled.",
                partial(_draw_confusions, by_method),
            )
        )
    return pictures


def draw_shares(
    found: dict[str, list[Share]], trait: str, of_numbers: bool, looks: Looks
) -> Figure:
    """Draw shares by method over a trait, numbers or names."""
    figure = new_figure(found)
    axes = figure.subplots()
    plot_shares(axes, found, of_numbers, looks)
    axes.set_xlabel("length, positions" if trait == "length" else trait)
    legend_below(axes)
    return figure


def plot_shares(axes: Axes, found: dict[str, list[Share]], of_numbers: bool, looks: Looks) -> None:
    """Put shares by method, with their intervals, on axes, over numbers or names."""
    for k, (method, parts) in enumerate(sorted(found.items())):
        # Names side by side, so that intervals can be told apart.
        shift = 0.0 if of_numbers else (k - (len(found) - 1) / 2) * (0.6 / len(found))
        look = looks.line(method)
        if not of_numbers:
            look["linestyle"] = "none"
        axes.errorbar(
            [share.x + shift for share in parts],
            [share.accuracy for share in parts],
            yerr=[
                [max(0.0, share.accuracy - share.low) for share in parts],
                [max(0.0, share.high - share.accuracy) for share in parts],
            ],
            label=legend_name(method),
            markersize=4,
            elinewidth=0.8,
            **look,
        )
    if not of_numbers:
        names = {share.x: share.group for parts in found.values() for share in parts}
        axes.set_xticks(list(names), list(names.values()))
    axes.set_ylabel("test accuracy, %")


def confusion(found: Outcome) -> np.ndarray:
    """Return the percent of each true class (row) predicted as each class (column), seeds pooled.

    A row falls short of 100 by the examples that were given none.
    """
    classes = 1 + int(max(found.labels.max(), found.predictions.max()))
    counts = np.zeros((classes, classes))
    for predictions in found.predictions:
        is_given = predictions != NO_PREDICTION
        np.add.at(counts, (found.labels[is_given], predictions[is_given]), 1)
    totals = len(found.predictions) * np.bincount(found.labels, minlength=classes)[:, None]
    return 100 * counts / np.maximum(totals, 1)


def _draw_confusions(by_method: dict[str, Outcome]) -> Figure:
    columns = min(_PANELS_A_ROW, len(by_method))
    rows = math.ceil(len(by_method) / columns)
    figure = new_figure(width=2.6 * columns + 0.8, height=2.7 * rows)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    drawn = None
    for axes, (method, found) in zip(panels, sorted(by_method.items()), strict=False):
        matrix = confusion(found)
        drawn = axes.imshow(matrix, vmin=0, vmax=100, cmap="cividis")
        axes.set_title(method, fontsize=9)
        axes.grid(visible=False)
        ticks = range(0, len(matrix), 1 + (len(matrix) - 1) // 10)
        axes.set_xticks(ticks)
        axes.set_yticks(ticks)
        axes.set_xlabel("prediction")
        axes.set_ylabel("class")
    for axes in panels[len(by_method) :]:
        axes.set_visible(False)
    assert drawn is not None
    figure.colorbar(drawn, ax=list(panels), label="% of the class", shrink=0.8)
    return figure
