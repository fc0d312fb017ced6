"""Show what range trained models use: distances that matter, and accuracy on shuffled inputs.

    python -m results.findings.range_used

`lra.results.findings.train_range` measured the runs and wrote the tables.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lra.report.styles import mixer_looks
from lra.results.findings.shared import save_figure
from lra.results.findings.train_range import FILES


def draw() -> Figure:
    """Draw two panels for each task."""
    distances, order = map(pd.read_csv, FILES)
    tasks = [*dict.fromkeys(distances["task"])]
    figure = Figure(figsize=(3.2 * len(tasks) + 1.4, 5), layout="constrained")
    above, below = figure.subplots(2, len(tasks), squeeze=False)
    for column, task in enumerate(tasks):
        of_task = distances[distances["task"] == task]
        draw_lines(above[column], of_task, "distance", 100 * of_task["share"])
        even = of_task[of_task["mixer"] == of_task["mixer"].iloc[0]]
        look = {"color": "0.5", "linestyle": "--", "label": "all changes equal"}
        above[column].plot(even["distance"], 100 * even["even_share"], **look)
        above[column].set(title=task, xlabel="distance of at least, positions")
        of_task = order[order["task"] == task]
        draw_lines(below[column], of_task, "block", of_task["score"])
        below[column].set(xlabel="positions of a shuffled block")
    above[0].set_ylabel("share of all changes, %")
    below[0].set_ylabel("accuracy, %")
    lines = {label: line for axes in above for line, label in zip(
        *axes.get_legend_handles_labels(), strict=True)}  # fmt: skip
    figure.legend(lines.values(), lines.keys(), loc="outside right upper")
    return figure


def draw_lines(axes: Axes, table: pd.DataFrame, x: str, y: pd.Series) -> None:
    """Draw a line for each mixer over powers of 2."""
    for mixer, rows in table.groupby("mixer"):
        _, colour, marker = mixer_looks()[str(mixer)]
        axes.plot(rows[x], y[rows.index], color=colour, marker=marker, label=str(mixer))
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.minorticks_off()


if __name__ == "__main__":
    save_figure(draw, FILES[0].parents[1] / "range_used.svg")
