"""Show where models of task periodic need more bits than the ideal predictor.

    python -m results.findings.bits_by_period

The runs are the shipped ones at preset quick. It also prints the numbers as tables.
"""

from __future__ import annotations

import math
import statistics
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from lra.record.run import read_runs
from lra.report.styles import MIXERS
from lra.runtime.tables import markdown_table
from results.findings.shared import FOLDER, save_figure

FIELDS = {"period": "period of the text", "divides length": "period divides the window's length"}
"""Fields of metadata, with the label of their axis."""
IDEAL = "ideal predictor"


def load_bits(field: str) -> pd.DataFrame:
    """Load the bits a token above those of the ideal predictor, and these themselves.

    Returns: a row for each mixer and one for the ideal predictor, a column for each value.
    """
    rows: dict[str, dict[str, float]] = {}
    runs, _ = read_runs(FOLDER.parent / "shipped", task="periodic")
    for _, run in sorted((one for one in runs if not one[1].changed), key=lambda one: one[1].mixer):
        parts = [] if run.positions is None else run.positions.by_position
        for value in dict.fromkeys(part.value for part in parts if part.field == field):
            group = [part for part in parts if (part.field, part.value) == (field, value)]
            counts = [part.targets for part in group]
            loss, ideal = (
                statistics.fmean([nats or math.nan for nats in found], counts) / math.log(2)
                for found in ([part.loss for part in group], [part.ideal for part in group])
            )
            rows.setdefault(run.mixer, {})[value] = loss - ideal
            rows.setdefault(IDEAL, {})[value] = ideal
    frame = pd.DataFrame(rows).T
    order = sorted(frame.columns, key=lambda value: (len(value), value))
    return frame.loc[[*frame.index.drop(IDEAL), IDEAL], order]


def draw() -> Figure:
    """Draw the bits above the ideal predictor over each field, with a panel for each."""
    figure = Figure(figsize=(8.4, 3.2), layout="constrained")
    panels = figure.subplots(1, len(FIELDS), sharey=True, width_ratios=(2.4, 1))
    for axes, (field, label) in zip(panels, FIELDS.items(), strict=True):
        for mixer, bits in load_bits(field).drop(IDEAL).iterrows():
            colour, marker = MIXERS[str(mixer)]
            axes.plot(range(len(bits)), bits, color=colour, marker=marker, label=mixer)
        axes.set_xticks(range(len(bits)), bits.index)
        axes.set(xlabel=label, xlim=(-0.3, len(bits) - 0.7))
    panels[0].set_ylabel("bits a token above the ideal predictor")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper")
    return figure


def main(folder: Path = FOLDER) -> None:
    """Save the figure, and print the numbers."""
    save_figure(draw, folder / "bits_by_period.svg")
    for field, label in FIELDS.items():
        bits = load_bits(field)
        rows = [[str(name), *(f"{one:.3f}" for one in row)] for name, row in bits.iterrows()]
        print(markdown_table([label, *bits.columns], rows))


if __name__ == "__main__":
    main()
