"""What the scripts of this folder share: the runs of the leaderboard, and how a figure is saved.

Each script loads runs with `lra.records` and draws one figure, which it saves in this folder:

    python -m results.findings.locality
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import lra
from lra.tasks.base import BENCHMARK

FOLDER = Path(__file__).resolve().parent
CONDITION_STYLES = (
    ("#c4501b", "v"), ("#1f5fa8", "o"), ("#2c8a4b", "^"), ("#7b4aa0", "s"), ("#8a6d00", "D"),
)  # fmt: skip
"""Colour and marker of each condition that the mixers of a figure were trained under."""

STYLE: Any = {
    "font.family": "sans-serif",
    # The first comes with matplotlib, so that all machines draw the same. A browser that lacks it
    # takes Verdana, which is as wide.
    "font.sans-serif": ["DejaVu Sans", "Verdana", "sans-serif"],
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "legend.labelspacing": 0.4,
    "lines.markersize": 4,
    "svg.hashsalt": "lra",
    "svg.fonttype": "none",  # text stays text, which can be searched, and is small
    "path.simplify_threshold": 0.3,  # pixels: finer detail is not seen, but makes large files
    "figure.dpi": 160,
    "figure.figsize": (5.8, 3.9),
    "text.parse_math": False,  # names are text, whatever characters they have
}
"""Matplotlib's settings for figures of the documentation."""


def load_leaderboard() -> pd.DataFrame:
    """Load the shipped runs of the leaderboard."""
    runs = lra.records(FOLDER.parent / "shipped")
    return runs[runs["leaderboard_row"] != ""]


def save_figure(draw: Callable[[], Figure], path: Path) -> None:
    """Draw a figure in the style of the documentation and save it; equal runs give equal bytes.

    Letters are saved as shapes, so that the figure looks the same in every browser.
    """
    with mpl.rc_context(STYLE | {"svg.fonttype": "path"}):
        draw().savefig(path, metadata={"Date": None, "Creator": None})


def draw_conditions(runs: pd.DataFrame, conditions: Sequence[str]) -> Figure:
    """Draw the test accuracy of mixers under a few conditions, with a panel for each task.

    Horizontal bars are 95 % intervals.

    Args:
        runs: runs with a column `condition`; one for each task, mixer and condition.
        conditions: the conditions in their order from top to bottom.
    """
    tasks = [task for task in BENCHMARK if task in set(runs["task"])]
    mixers = sorted(set(runs["mixer"]))
    height = 0.9 + 0.18 * len(mixers) * (len(conditions) + 1)
    figure = Figure(figsize=(8.4, height), layout="constrained")
    panels: list[Axes] = [*figure.subplots(1, len(tasks), sharey=True)]
    for axes, task in zip(panels, tasks, strict=True):
        for number, condition in enumerate(conditions):
            colour, marker = CONDITION_STYLES[number]
            subset = runs[(runs["task"] == task) & (runs["condition"] == condition)]
            accuracy = subset["test_accuracy"]
            # The conditions of a mixer are drawn below each other, around the mixer's tick.
            shift = (number - (len(conditions) - 1) / 2) / (len(conditions) + 1)
            axes.errorbar(
                accuracy, subset["mixer"].map(mixers.index) + shift,
                xerr=[accuracy - subset["test_low"], subset["test_high"] - accuracy],
                fmt=marker, color=colour, elinewidth=0.9, markersize=5.5, label=condition,
            )  # fmt: skip
        axes.set(title=task, xlabel="test accuracy, %", ylim=(len(mixers) - 0.5, -0.5))
        axes.grid(visible=False, axis="y")
    panels[0].set_yticks(range(len(mixers)), mixers)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper")
    return figure
