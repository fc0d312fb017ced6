"""Speed of pretraining over layers of the encoder of positions, after Figure 1b of Moreno et al.

"SKI to go Faster: Accelerating Toeplitz Neural Networks via Asymmetric Kernels", 2023.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from lra.record.benchmark import BenchRecord
from lra.report.boards.row_names import Names
from lra.report.boards.slugs import slugify
from lra.report.figures.drawing import Looks, ReportFigure, figure_with_labels
from lra.report.figures.drawn_rows import choose_rows, rank
from lra.report.figures.labels import LineEnd, label_ends

if TYPE_CHECKING:
    from matplotlib.figure import Figure

UNIT = "pretraining speed, steps/s"


class _Line(NamedTuple):
    """A line of a figure: causal models learn next tokens, bidirectional ones masked tokens."""

    method: str
    is_causal: bool

    def __str__(self) -> str:
        return f"{self.method}, {'causal' if self.is_causal else 'bidirectional'}"


class _Rounds(NamedTuple):
    """What measurements in one figure have in common."""

    device: str
    length: int
    batch_size: int
    precision: str
    preset: str
    overrides: tuple[str, ...]
    mixers: tuple[str, ...]
    layers: tuple[int, ...]

    @property
    def setting(self) -> list[str]:
        """Say what was measured."""
        size = f"{self.length:,} positions", f"batch {self.batch_size}", self.precision
        return [f"Preset {self.preset}", *size, *self.overrides, self.device]


def layer_figures(records: Sequence[BenchRecord], names: Names, looks: Looks) -> list[ReportFigure]:
    """Make a figure of each pretraining that was timed with several numbers of layers.

    Args:
        records: measurements of all kinds.
        names: names of mixers.
        looks: looks of their lines.
    """
    groups: dict[_Rounds, dict[_Line, dict[int, BenchRecord]]] = {}
    for r in records:
        if r.rpe_layers is not None and r.steps_per_second is not None:
            rounds = _Rounds(r.device, r.length, r.batch_size, r.precision, str(r.preset),
                             r.overrides, r.measured_with, r.rounds_rpe_layers)  # fmt: skip
            line = _Line(names.of_mixer(r), r.objective == "next")
            groups.setdefault(rounds, {}).setdefault(line, {})[r.rpe_layers] = r
    made: list[ReportFigure] = []
    for rounds, every in groups.items():
        if len({count for points in every.values() for count in points}) == 1:
            continue
        speeds = {
            line: (max(points), points[max(points)].steps_per_second)
            for line, points in every.items()
        }
        lines, note = choose_rows(every, rank(speeds, "speed with the most layers"))
        figure = ReportFigure(
            slugify("pretraining-over-layers", *rounds.setting),
            "Steps per second of pretraining over layers of the encoder of positions",
            f"{', '.join(rounds.setting)}. Task lm's model on synthetic tokens: causal with next "
            f"tokens, bidirectional with masked tokens as targets. Medians over interleaved "
            f"rounds, with their quartiles (after Figure 1b of the SKI-TNN paper).{note}",
            partial(_draw, lines, looks),
        )
        made.append(figure)
    return made


def _draw(lines: dict[_Line, dict[int, BenchRecord]], looks: Looks) -> Figure:
    figure = figure_with_labels(map(str, lines))
    axes = figure.subplots()
    ends: list[LineEnd] = []
    for line, points in lines.items():
        layers = sorted(points)
        speeds = [points[count].steps_per_second or 0.0 for count in layers]
        lows = [points[count].low_quartile or 0.0 for count in layers]
        highs = [points[count].high_quartile or 0.0 for count in layers]
        look = looks.line(line.method)
        look |= {"linestyle": "-" if line.is_causal else "--"}
        axes.plot(layers, speeds, **look)
        axes.fill_between(layers, lows, highs, color=look["color"], alpha=0.15, linewidth=0)
        ends.append(LineEnd(layers[-1], speeds[-1], str(line), look["color"]))
    axes.set_xticks(sorted({count for points in lines.values() for count in points}))
    axes.set_xlabel("hidden layers of the encoder of positions")
    axes.set_ylabel(UNIT)
    axes.set_ylim(bottom=0)
    label_ends(axes, ends)
    return figure
