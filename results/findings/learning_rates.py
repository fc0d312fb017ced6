"""Show how much the accuracy of each mixer depends on its learning rate.

    python -m results.findings.learning_rates

This draws the searches on ListOps and on Image. Each mixer was trained at three learning rates,
with preset budget and a third of its steps.
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import lra
from lra.results.findings.shared import CONDITION_STYLES, FOLDER, save_figure

TASKS = ("listops", "image")
RATES = ("a third", "middle rate", "three times")
"""The learning rates of a mixer, the lowest first."""


def load_search(task: str) -> pd.DataFrame:
    """Load the search on a task as a table with a row for each mixer, the most accurate first.

    It has the best validation accuracy at each learning rate, in percent, and the rate with the
    best accuracy; if two are equal, the lower rate.
    """
    runs = lra.records(FOLDER / "learning-rates")
    runs = runs[runs["task"] == task].sort_values("train.lr")
    by_mixer = runs.groupby("mixer")
    names = by_mixer.cumcount().map(dict(enumerate(RATES)))
    table = runs.assign(rate=names).pivot(index="mixer", columns="rate", values="val_accuracy")
    table = table[[*RATES]]
    best_runs = runs.loc[by_mixer["val_accuracy"].idxmax()]
    order = table.max(axis=1).sort_values(ascending=False, kind="stable").index
    return table.assign(**{"best rate": best_runs.set_index("mixer")["train.lr"]}).loc[order]


def draw() -> Figure:
    """Draw the accuracies of all mixers at their learning rates, with a panel for each task."""
    figure = Figure(figsize=(9, 6), layout="constrained")
    panels: list[Axes] = [*figure.subplots(1, len(TASKS))]
    for axes, task in zip(panels, TASKS, strict=True):
        draw_search(axes, load_search(task))
        axes.set_title(task)
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=len(RATES) + 1)
    return figure


def draw_search(axes: Axes, search: pd.DataFrame) -> None:
    """Draw a row for each mixer, with a marker for each learning rate; the best is filled."""
    rows = np.arange(len(search))
    accuracies = search[[*RATES]]
    lowest, highest = accuracies.min(axis=1), accuracies.max(axis=1)
    axes.hlines(rows, lowest, highest, color="#bbbbbb", linewidth=1.5, zorder=1)
    best = np.argmax(accuracies.to_numpy(), axis=1)  # of equal ones the first
    for number, rate in enumerate(RATES):
        colour, marker = CONDITION_STYLES[number]
        axes.scatter(
            search[rate], rows, marker=marker, s=30, edgecolors=colour, zorder=2,
            facecolors=np.where(best == number, colour, "white").tolist(),
        )  # fmt: skip
        # For the legend, which shows an empty marker for each rate.
        axes.scatter([], [], marker=marker, s=30, edgecolors=colour, facecolors="white", label=rate)
    axes.scatter([], [], marker="s", s=30, color="#777777", label="filled: best rate")
    axes.set_yticks(rows, list(search.index))
    axes.set_ylim(len(search) - 0.4, -0.6)
    axes.set_xlabel("best validation accuracy, %")


if __name__ == "__main__":
    save_figure(draw, FOLDER / "learning_rates.svg")
