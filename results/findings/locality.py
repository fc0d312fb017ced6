"""Show how far a model has to see on each task: short convolutions beside other mixers.

    python -m results.findings.locality

The runs are convolutions of other widths than the leaderboard's, and runs with shuffled pixels:
`task.permutation=1` gives the pixels of all images the same random order. Convolutions of k
positions in each block see R = 1 + blocks * (k - 1). On Pathfinder these are positions of a row, or
of a column, and half of the blocks count.
"""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

import lra
from lra.report.styles import mixer_looks
from lra.results.findings.shared import FOLDER, save_figure
from lra.tasks.base import BENCHMARK

WIDTH, PERMUTATION, FIELD = "mixer.width", "task.permutation", "receptive field"
"""Settings of the runs, and R. Pixels that are not shuffled, and no bound, are 0."""


def load_accuracies(shipped: pd.DataFrame) -> pd.DataFrame:
    """Load the mean test accuracy for each task, mixer, order of pixels and receptive field."""
    runs = lra.records(FOLDER / "locality")
    is_width = (shipped["preset"] == "budget") & shipped["overrides"].str.fullmatch(rf"{WIDTH}=\d+")
    compared = shipped[(shipped["leaderboard_row"] != "") | is_width]
    compared = compared[compared["mixer"].isin(runs["mixer"])]
    columns = ["task", "mixer", PERMUTATION, WIDTH, "model.depth", "model.axes", "test_accuracy"]
    runs = pd.concat([compared[columns], runs[columns]], ignore_index=True)
    blocks = runs["model.depth"].where(runs["model.axes"] != "alternate", runs["model.depth"] / 2)
    runs[FIELD] = 1 + blocks * (runs[WIDTH] - 1)
    runs = runs.fillna({FIELD: 0, PERMUTATION: 0})
    keys = ["task", "mixer", PERMUTATION, FIELD]
    return runs.groupby(keys, as_index=False)["test_accuracy"].mean()


def draw() -> Figure:
    """Draw a panel for each task, and the legend in place of the sixth panel."""
    shipped = lra.records(FOLDER.parent / "shipped")
    accuracies, leaderboard = load_accuracies(shipped), shipped[shipped["leaderboard_row"] != ""]
    means = leaderboard.groupby(["task", "mixer"])["test_accuracy"].mean()
    figure = Figure(figsize=(8.6, 5.2), layout="constrained")
    *panels, last = figure.subplots(2, 3).ravel()
    tasks = [task for task in BENCHMARK if task in set(accuracies["task"])]
    for axes, task in zip(panels, tasks, strict=True):
        best = means[task].idxmax()
        style = {"color": "black", "linestyle": ":", "linewidth": 1.8, "zorder": 3}
        axes.axhline(means[task][best], **style, label="best mixer")
        draw_task(axes, accuracies[accuracies["task"] == task])
        axes.set_title(f"{task} (best: {best})", fontsize=10)
    for axes in panels[::3]:
        axes.set_ylabel("test accuracy, %")
    drawn = [line for axes in panels for line in axes.get_legend_handles_labels()[0]]
    lines = {str(line.get_label()): line for line in drawn}
    shuffled = Line2D([], [], color="0.5", linestyle="--", label="shuffled pixels")
    last.axis("off")
    last.legend(loc="center left", handles=[*lines.values(), shuffled])
    return figure


def draw_task(axes: Axes, accuracies: pd.DataFrame) -> None:
    """Draw the accuracy of `conv` over R, and other mixers as horizontal lines."""
    for (mixer, permutation), group in accuracies.groupby(["mixer", PERMUTATION]):
        _, colour, marker = mixer_looks()[str(mixer)]
        line, label = ("--", "") if permutation else ("-", str(mixer))
        if mixer == "conv":
            fields, values = group[FIELD].astype(int), group["test_accuracy"]
            axes.plot(fields, values, color=colour, marker=marker, linestyle=line, label=label)
            axes.set_xscale("log", base=4)
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        else:
            value = group["test_accuracy"].item()
            look = {"color": colour, "marker": marker, "clip_on": False}
            axes.axhline(value, **look, linestyle=line, linewidth=1.2, label=label)
    axes.minorticks_off()
    axes.set_xlabel("receptive field R, positions")


if __name__ == "__main__":
    save_figure(draw, FOLDER / "locality.svg")
