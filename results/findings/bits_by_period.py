"""Show where models of task periodic need more bits than the ideal predictor.

    python -m results.findings.bits_by_period

The runs are the shipped ones at preset quick.
"""

import math

import pandas as pd
from matplotlib.figure import Figure

from lra.goals.next_token import NextTokenResult
from lra.record.run import read_runs
from lra.report.styles import mixer_looks
from lra.results.findings.shared import FOLDER, save_figure

FIELDS = {"period": "period of the text", "divides length": "period divides the window's length"}
"""Fields of metadata, with the label of their axis."""


def load_bits() -> pd.Series:
    """Load the bits a token above those of the ideal predictor, by field, mixer and value."""
    runs, _ = read_runs(FOLDER.parent / "shipped", task="periodic")
    parts = pd.DataFrame(
        {"mixer": run.mixer, **part.model_dump()}
        for _, run in runs
        if not run.changed and isinstance(run.result, NextTokenResult)
        for part in run.result.by_position
    )
    nats = (parts["loss"] - parts["ideal"]) * parts["targets"]
    sums = parts.assign(nats=nats).groupby(["field", "mixer", "value"])[["nats", "targets"]].sum()
    return sums["nats"] / sums["targets"] / math.log(2)


def draw() -> Figure:
    """Draw the bits above the ideal predictor over each field, with a panel for each."""
    table = load_bits()
    figure = Figure(figsize=(8.4, 3.2), layout="constrained")
    panels = figure.subplots(1, len(FIELDS), sharey=True, width_ratios=(2.4, 1))
    for axes, (field, label) in zip(panels, FIELDS.items(), strict=True):
        by_mixer = table[field].unstack("value")
        values = sorted(by_mixer.columns, key=lambda value: (len(value), value))
        for mixer, bits in by_mixer[values].iterrows():
            _, colour, marker = mixer_looks()[str(mixer)]
            axes.plot(range(len(bits)), bits, color=colour, marker=marker, label=mixer)
        axes.set_xticks(range(len(values)), values)
        axes.set(xlabel=label, xlim=(-0.3, len(values) - 0.7))
    panels[0].set_ylabel("bits a token above the ideal predictor")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper")
    return figure


if __name__ == "__main__":
    save_figure(draw, FOLDER / "bits_by_period.svg")
