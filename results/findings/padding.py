"""Compare accuracies with padding skipped and with padding mixed into the sequences.

    python -m results.findings.padding

The suite computes no padded position. The runs with padding were trained by
`lra.results.findings.train_padded`, with all other settings equal.
"""

import pandas as pd
from matplotlib.figure import Figure

import lra
from lra.results.findings.shared import FOLDER, draw_conditions, load_leaderboard, save_figure

CONDITIONS = ("padding skipped", "padding mixed in")


def draw() -> Figure:
    """Draw the accuracy of each mixer under each condition, with a panel for each task."""
    padded = lra.records(FOLDER / "padding")
    skipped = load_leaderboard().merge(padded[["task", "mixer", "seed"]])
    runs = [skipped.assign(condition=CONDITIONS[0]), padded.assign(condition=CONDITIONS[1])]
    return draw_conditions(pd.concat(runs, ignore_index=True), CONDITIONS)


if __name__ == "__main__":
    save_figure(draw, FOLDER / "padding.svg")
