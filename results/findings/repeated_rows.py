"""Show two attempts at repeating a published number: `tnn` on Text with its published settings.

    python -m results.findings.repeated_rows

Neither attempt was run to its end, so there are validation accuracies alone.
"""

import pandas as pd
from matplotlib.figure import Figure

import lra
from lra.results.findings.shared import FOLDER, save_figure

TASK, MIXER = "text", "tnn"
COLOURS = ("#1f6fb4", "#c4501b")
"""Colours of the attempts."""
LINES = ("--", ":")
"""Lines of the published numbers."""


def draw() -> Figure:
    """Draw the validation accuracy of each attempt over all of its planned steps."""
    # The attempts have equal settings, so each has a folder.
    folders = sorted((FOLDER / "repeated-rows").glob("attempt-*"))
    attempts = pd.concat([lra.records(folder) for folder in folders], ignore_index=True)
    table = pd.read_csv(FOLDER.parent / "published.csv")
    published = table[table["mixer"] == MIXER].set_index("method")[TASK].dropna().astype(float)
    figure = Figure(layout="constrained")
    axes = figure.subplots()
    for number, path in enumerate(attempts["path"]):
        curve = lra.metrics(path).set_index("step")["val_accuracy"].dropna()
        name = f"validation, attempt {number + 1}"
        axes.plot(curve.index, curve, color=COLOURS[number], marker="o", linewidth=1.2, label=name)
    for (method, value), line in zip(published.items(), LINES, strict=True):
        axes.axhline(value, color="0.3", linewidth=1, linestyle=line, label=f"{method} {value:.2f}")
    axes.set(
        xlabel="optimizer steps", ylabel="accuracy, %", xlim=(0, attempts["total_steps"].max())
    )
    axes.legend(loc="lower right")
    return figure


if __name__ == "__main__":
    save_figure(draw, FOLDER / "repeated_rows.svg")
