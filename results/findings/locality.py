"""Show how far a model has to see on each task: short convolutions beside other mixers.

    python -m results.findings.locality

The runs are convolutions of other widths than the leaderboard's, and runs with shuffled pixels:
`task.permutation=1` gives the pixels of all images the same random order.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

import lra
from lra.report.styles import MIXERS
from results.findings.shared import FOLDER, load_leaderboard, save_figure
from tasks.base import BENCHMARK

WIDTHS = (5, 15, 61)
"""Widths of the filters of `conv`, in positions."""


def load_accuracies() -> pd.DataFrame:
    """Load the mean test accuracy for each task, mixer, width of filters and order of pixels.

    Mixers without a width have the width 0.
    """
    runs = lra.records(FOLDER / "locality")
    leaderboard = load_leaderboard()
    compared = leaderboard[leaderboard["mixer"].isin(runs["mixer"])]
    columns = ["task", "mixer", "mixer.width", "task.permutation", "test_accuracy"]
    runs = pd.concat([compared[columns], runs[columns]], ignore_index=True)
    runs = runs.assign(
        width=runs["mixer.width"].fillna(0).astype(int),
        is_shuffled=runs["task.permutation"].notna(),
    )
    groups = runs.groupby(["task", "mixer", "width", "is_shuffled"], as_index=False)
    return groups["test_accuracy"].mean()


def draw() -> Figure:
    """Draw a panel for each task, and the legend in place of the sixth panel."""
    accuracies = load_accuracies()
    means = load_leaderboard().groupby(["task", "mixer"])["test_accuracy"].mean()
    figure = Figure(figsize=(8.6, 5.2), layout="constrained")
    *panels, last = figure.subplots(2, 3).ravel()
    tasks = [task for task in BENCHMARK if task in set(accuracies["task"])]
    for axes, task in zip(panels, tasks, strict=True):
        best = means[task].idxmax()
        axes.axhline(means[task][best], color="black", linestyle=":", linewidth=1.8, zorder=3)
        draw_task(axes, accuracies[accuracies["task"] == task])
        axes.set_title(f"{task} (best: {best})", fontsize=10)
    for axes in panels[::3]:
        axes.set_ylabel("test accuracy, %")
    draw_legend(last, sorted(set(accuracies["mixer"])))
    return figure


def draw_task(axes: Axes, accuracies: pd.DataFrame) -> None:
    """Draw the accuracy of `conv` over its width, and other mixers as horizontal lines."""
    for (mixer, is_shuffled), found in accuracies.groupby(["mixer", "is_shuffled"]):
        colour, marker = MIXERS[str(mixer)]
        line_style = "--" if is_shuffled else "-"
        if mixer == "conv":
            axes.plot(
                found["width"], found["test_accuracy"], color=colour, marker=marker,
                linestyle=line_style,
            )  # fmt: skip
        else:
            value = found["test_accuracy"].item()
            axes.axhline(value, color=colour, linestyle=line_style, linewidth=1.2)
    axes.set_xscale("log")
    axes.set_xticks(WIDTHS, [str(width) for width in WIDTHS])
    axes.minorticks_off()
    axes.set_xlabel("width of the convolution")


def draw_legend(axes: Axes, mixers: list[str]) -> None:
    """Fill an empty panel with the names of the lines in the others."""
    axes.axis("off")
    lines = [
        Line2D([], [], color=MIXERS[mixer][0], label=mixer,
               marker=MIXERS[mixer][1] if mixer == "conv" else "")
        for mixer in mixers
    ]  # fmt: skip
    axes.legend(loc="center left", handles=[
        Line2D([], [], color="black", linestyle=":", linewidth=1.8, label="best mixer"),
        *lines,
        Line2D([], [], color="0.5", linestyle="--", label="shuffled pixels"),
    ])  # fmt: skip


def main(folder: Path = FOLDER) -> None:
    """Save the figure."""
    save_figure(draw, folder / "locality.svg")


if __name__ == "__main__":
    main()
