"""Show which seeds learn Pathfinder, and when.

    python -m results.findings.pathfinder_seeds

The runs are those of the leaderboard on Pathfinder, of all mixers with at least three seeds.
"""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

import lra
from lra.report.styles import mixer_looks
from lra.results.findings.shared import FOLDER, load_leaderboard, save_figure

FEWEST_SEEDS = 3
BASELINE = "baselines.marker positions"
"""Test accuracy of the best trivial baseline, which sees only where the two markers are."""


def draw() -> Figure:
    """Draw the training accuracy of every run over its steps, with a panel for each mixer."""
    runs = load_leaderboard()
    runs = runs[(runs["task"] == "pathfinder") & (runs["status"] == "done")]
    seeds = runs.groupby("mixer")["seed"].transform("nunique")
    runs = runs[seeds >= FEWEST_SEEDS].sort_values(["mixer", "seed"])
    mixers = list(runs["mixer"].unique())
    baseline = runs[BASELINE].max()
    figure = Figure(figsize=(2.1 * len(mixers), 2.6), layout="constrained")
    panels: list[Axes] = [*figure.subplots(1, len(mixers), sharey=True)]
    for axes, mixer in zip(panels, mixers, strict=True):
        for path in runs.loc[runs["mixer"] == mixer, "path"]:
            curve = lra.metrics(path).set_index("step")["accuracy"].dropna()
            axes.plot(curve.index, curve, color=mixer_looks()[mixer][1], linewidth=1, alpha=0.8)
        axes.axhline(baseline, color="0.3", linewidth=0.9, linestyle="--")
        axes.set(title=mixer, xlabel="optimizer steps", xlim=(0, None))
    panels[0].set_ylabel("training accuracy, %")
    panels[-1].text(
        0.5, baseline + 1, f"marker positions\n{baseline:.1f} %", fontsize=8, ha="center",
        va="bottom", transform=panels[-1].get_yaxis_transform(),
    )  # fmt: skip
    return figure


if __name__ == "__main__":
    save_figure(draw, FOLDER / "pathfinder_seeds.svg")
