"""Learning curves of single seeds, a panel for each mixer: which leave chance, and when."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from lra.record.run import RunRecord
from lra.report.boards.results import Results
from lra.report.figures.drawing import ReportFigure, new_figure, plot_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PANEL = 2.3, 2.6
"""Width and height of the panel of a mixer, in inches."""
_GRAYS = ("#111111", "#444444", "#777777", "#999999", "#bbbbbb")
_LABEL = "training accuracy, %"

Curves = Sequence[tuple[str, Sequence[Sequence[tuple[float, float]]]]]
"""By mixer, for each seed, the points (step, accuracy in percent) of its curve."""


def seed_figure(
    results: Results, runs: Sequence[RunRecord], *, slug: str, title: str, caption: str
) -> ReportFigure:
    """Draw the training accuracy of every run over its steps, a panel for each mixer.

    Args:
        results: the results that the runs are of.
        runs: runs on one task.
        slug: name of the figure in files.
        title: title of the figure.
        caption: what the runs are; a sentence on the baseline is added.
    """
    runs = sorted(runs, key=lambda run: (run.mixer, run.seed))
    curves = [
        (
            mixer,
            [
                [
                    (float(line.step), line.accuracy)
                    for line in results.metrics(run)
                    if line.accuracy is not None
                ]
                for run in runs
                if run.mixer == mixer
            ],
        )
        for mixer in dict.fromkeys(run.mixer for run in runs)
    ]
    name, baseline = max(
        ((name, value) for run in runs for name, value in run.baselines.items()),
        key=lambda pair: pair[1],
    )
    return ReportFigure(
        slug,
        title,
        f"{caption} The dashed line is the best trivial baseline, {name} ({baseline:.1f} % of the "
        f"test set).",
        partial(_draw, curves, baseline),
        is_wide=True,
    )


def _draw(curves: Curves, baseline: float) -> Figure:
    width, height = _PANEL
    figure = new_figure(width=width * len(curves), height=height)
    every = figure.subplots(1, len(curves), squeeze=False, sharey=True)[0]
    for axes, (mixer, seeds) in zip(every, curves, strict=True):
        for colour, points in zip(itertools.cycle(_GRAYS), seeds, strict=False):
            line = {"color": colour, "linewidth": 1.2}
            plot_line(axes, mixer, points, line)
        axes.axhline(baseline, color="#c4501b", linewidth=0.9, linestyle="--", zorder=0.9)
        axes.set_title(mixer, fontsize=10)
        axes.set_xlabel("optimizer steps")
        axes.set_xlim(left=0)
    every[0].set_ylabel(_LABEL)
    return figure
