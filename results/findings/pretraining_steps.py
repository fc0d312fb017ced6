"""Compare self-pretraining of several lengths with training on labels alone.

    python -m results.findings.pretraining_steps

All pretrained models were then trained on labels for as many steps as the leaderboard's. Others
were trained on labels for twice as many steps instead.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

import lra
from results.findings.shared import FOLDER, draw_conditions, load_leaderboard, save_figure

CONDITIONS = (
    "labels only",
    "pretrained for 0.5 x the steps",
    "pretrained for 1 x the steps",
    "pretrained for 2 x the steps",
    "labels only, 2 x the steps",
)


def load_runs() -> pd.DataFrame:
    """Load the runs with their condition, and the leaderboard's runs of the same mixers."""
    runs = lra.records(FOLDER / "pretraining-steps")
    labels_only = load_leaderboard().merge(runs[["task", "mixer", "seed"]].drop_duplicates())
    usual_steps = labels_only.set_index(["task", "mixer"])["total_steps"]
    runs = runs.join(usual_steps.rename("usual_steps"), on=["task", "mixer"])
    runs = runs.assign(condition=[describe_condition(run) for _, run in runs.iterrows()])
    return pd.concat([labels_only.assign(condition=CONDITIONS[0]), runs], ignore_index=True)


def describe_condition(run: pd.Series) -> str:
    """Say how long a run was pretrained, or trained on labels, relative to the leaderboard's."""
    if run["pretraining.steps"] > 0:
        return f"pretrained for {run['pretraining.steps'] / run['usual_steps']:g} x the steps"
    return f"labels only, {run['total_steps'] / run['usual_steps']:g} x the steps"


def draw() -> Figure:
    """Draw the accuracy of each mixer under each condition, with a panel for each task."""
    return draw_conditions(load_runs(), CONDITIONS)


if __name__ == "__main__":
    save_figure(draw, FOLDER / "pretraining_steps.svg")
