"""Compare self-pretraining of several lengths with training on labels alone.

    python -m results.findings.pretraining_steps

All pretrained models were then trained on labels for as many steps as the leaderboard's. Others
were trained on labels for twice as many steps instead.
"""

import pandas as pd
from matplotlib.figure import Figure

import lra
from lra.results.findings.shared import FOLDER, draw_conditions, load_leaderboard, save_figure

CONDITIONS = (
    "labels only",
    "pretrained for 0.5 x the steps",
    "pretrained for 1 x the steps",
    "pretrained for 2 x the steps",
    "labels only, 2 x the steps",
)


def draw() -> Figure:
    """Draw the accuracy of each mixer under each condition, with a panel for each task."""
    runs = lra.records(FOLDER / "pretraining-steps")
    labels_only = load_leaderboard().merge(runs[["task", "mixer", "seed"]].drop_duplicates())
    usual = labels_only.set_index(["task", "mixer"])["total_steps"].rename("usual")
    runs = runs.join(usual, on=["task", "mixer"])
    before, after = (runs[name] / runs["usual"] for name in ("pretraining.steps", "total_steps"))
    conditions = [
        f"pretrained for {pretrained:g} x the steps" if pretrained > 0
        else f"labels only, {trained:g} x the steps"
        for pretrained, trained in zip(before, after, strict=True)
    ]  # fmt: skip
    conditioned = [labels_only.assign(condition=CONDITIONS[0]), runs.assign(condition=conditions)]
    return draw_conditions(pd.concat(conditioned, ignore_index=True), CONDITIONS)


if __name__ == "__main__":
    save_figure(draw, FOLDER / "pretraining_steps.svg")
