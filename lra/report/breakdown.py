"""Where results differ: accuracy by length and by traits of the examples, and confusions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from lra.record import RunRecord
from lra.report.boards import Board
from lra.report.drawing import Looks, Picture, legend_below, new_figure
from lra.report.results import Guesses, Results

if TYPE_CHECKING:
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
    accuracy: float
    low: float
    high: float
    """95 % interval (Wilson)."""
    examples: int


def wilson(correct: int, total: int) -> tuple[float, float]:
    """Return the 95 % interval of a share, in percent (Wilson, 1927)."""
    share, z2 = correct / total, _Z95**2
    middle = (share + z2 / (2 * total)) / (1 + z2 / total)
    spread = math.sqrt(share * (1 - share) / total + z2 / (4 * total**2)) / (1 + z2 / total)
    half = _Z95 * spread
    return 100 * max(0.0, middle - half), 100 * min(1.0, middle + half)


def pooled(results: Results, runs: Sequence[RunRecord]) -> Guesses | None:
    """Put the guesses of runs together that differ in seed alone."""
    found = [guesses for run in runs if (guesses := results.guesses(run)) is not None]
    if not found:
        return None
    return Guesses(
        labels=np.concatenate([one.labels for one in found]),
        guesses=np.concatenate([one.guesses for one in found]),
        traits={
            name: np.concatenate([one.traits[name] for one in found])
            for name in found[0].traits
            if all(name in one.traits for one in found)
        },
    )


def shares(guesses: Guesses, trait: str) -> list[Share]:
    """Break an accuracy down by a trait: numbers of many values by quantiles."""
    values = guesses.traits[trait]
    is_number = values.dtype.kind in "if"
    names, groups = np.unique(values, return_inverse=True)
    if is_number and len(names) > 2 * BINS:
        edges = np.unique(np.quantile(values, np.linspace(0, 1, BINS + 1)))
        groups = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
        names = edges[:-1]
    found = []
    for place, name in enumerate(names):
        inside = groups == place
        total, right = int(inside.sum()), int(guesses.is_right[inside].sum())
        if total >= FEWEST:
            x = float(values[inside].mean()) if is_number else float(place)
            found.append(Share(str(name), x, 100 * right / total, *wilson(right, total), total))
    return found


def breakdown_pictures(results: Results, board: Board, looks: Looks, slug: str) -> list[Picture]:
    """Make a figure per task and trait, and one of confusions per task."""
    pictures = []
    for task in board.tasks:
        by_method = {
            method: guesses
            for method, cells in board.rows.items()
            if task in cells and (guesses := pooled(results, cells[task].runs)) is not None
        }
        if not by_method:
            continue
        for trait in next(iter(by_method.values())).traits:
            found = {m: shares(one, trait) for m, one in by_method.items() if trait in one.traits}
            if max(len(parts) for parts in found.values()) < 2:  # noqa: PLR2004
                continue
            pictures.append(
                Picture(
                    f"{slug}-{task}-by-{trait.replace(' ', '-')}",
                    f"{task}: accuracy by {trait}",
                    f"{board.name}. Test examples of all seeds pooled, parts of at least {FEWEST}; "
                    f"bars: 95 % interval of a share (Wilson).",
                    partial(_draw_shares, found, trait, looks),
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


def _draw_shares(found: dict[str, list[Share]], trait: str, looks: Looks) -> Figure:
    figure = new_figure(found)
    axes = figure.subplots()
    names = [share.group for share in max(found.values(), key=len)]
    is_named = not _is_number(names[0])
    for k, (method, parts) in enumerate(sorted(found.items())):
        # Side by side, so that intervals can be told apart.
        shift = (k - (len(found) - 1) / 2) * (0.6 / len(found)) if is_named else 0.0
        look = looks.line(method)
        if is_named:
            look["linestyle"] = "none"
        axes.errorbar(
            [share.x + shift for share in parts],
            [share.accuracy for share in parts],
            yerr=[
                [max(0.0, share.accuracy - share.low) for share in parts],
                [max(0.0, share.high - share.accuracy) for share in parts],
            ],
            label=method,
            markersize=4,
            elinewidth=0.8,
            **look,
        )
    if is_named:
        axes.set_xticks(range(len(names)), names)
    axes.set_xlabel("length, positions" if trait == "length" else trait)
    axes.set_ylabel("test accuracy, %")
    legend_below(axes)
    return figure


def _is_number(text: str) -> bool:
    return any(character.isdigit() for character in text)


def confusion(found: Guesses) -> np.ndarray:
    """Return the percent of each true class (row) given each guess (column)."""
    classes = 1 + int(max(found.labels.max(), found.guesses.max()))
    counts = np.zeros((classes, classes))
    np.add.at(counts, (found.labels, found.guesses), 1)
    return 100 * counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)


def _draw_confusions(by_method: dict[str, Guesses]) -> Figure:
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
        axes.set_xlabel("guess")
        axes.set_ylabel("class")
    for axes in panels[len(by_method) :]:
        axes.set_visible(False)
    assert drawn is not None
    figure.colorbar(drawn, ax=list(panels), label="% of the class", shrink=0.8)
    return figure
