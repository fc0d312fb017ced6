"""Show how training falls to chance in small: `tnn` on Text with its published settings.

    python -m results.findings.collapse

`lra.results.findings.train_collapse` trained the runs and wrote the table.
"""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lra.results.findings.shared import FOLDER, save_figure

DETAILED = "condition == 'as published' and rate == 0.0042 and seed == 1"
"""The run whose blocks are shown."""
SHOWN = 1200
"""Steps that are shown."""
COLOURS = ("#7fa8d6", "#1f5fa8", "#0b2c52", "#7b4aa0", "#8fc9a1", "#2c8a4b", "#c4501b")
"""Of the conditions and rates in the order of the table, by condition."""


def draw() -> Figure:
    """Draw the activations of all runs, and the activations and kernels of a single one."""
    table = pd.read_csv(FOLDER / "collapse" / "steps.csv")
    table = table.query("step <= @SHOWN and `activation 0`.notna()")
    figure = Figure(figsize=(8, 6), layout="constrained")
    above, below = figure.subplots(2, 1)
    draw_runs(above, table)
    draw_blocks(below, table)
    for axes in (above, below):
        axes.set(xlabel="optimizer steps", yscale="log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def draw_runs(axes: Axes, table: pd.DataFrame) -> None:
    """Draw the largest activation of each run, in the colour of its condition and rate."""
    names = table["condition"] + ", rate " + table["rate"].astype(str)
    table = table.assign(name=names, largest=table.filter(like="activation").max(axis=1))
    for number, (name, runs) in enumerate(table.groupby("name", sort=False)):
        for seed, run in runs.groupby("seed"):
            label = str(name) if seed == 0 else None
            axes.plot(run["step"], run["largest"], color=COLOURS[number], label=label)
    axes.set(title="largest activation of a block's output")


def draw_blocks(axes: Axes, table: pd.DataFrame) -> None:
    """Draw the largest activation of each block of a run, and of its kernels the largest norm."""
    run = table.query(DETAILED)
    names = run.filter(like="activation")
    for number, name in enumerate(names):
        label = f"activation, block {number + 1}"
        axes.plot(run["step"], run[name], color="#1f5fa8", alpha=0.25 + 0.25 * number, label=label)
    for column, colour, label in (
        ("kernel", "#2c8a4b", "largest norm of a kernel"),
        ("largest ratio", "#c4501b", "largest batch / running variance"),
        ("outlier", "#8a6d00", "largest share of a position in a variance"),
    ):
        axes.plot(run["step"], run[column], color=colour, label=label)
    axes.set(title="inside one run: as published, rate 0.0042, seed 1")


if __name__ == "__main__":
    save_figure(draw, FOLDER / "collapse.svg")
