"""Speed over the values of one setting.

Over layers of the encoder of positions it is Figure 1b of Moreno et al.,
"SKI to go Faster: Accelerating Toeplitz Neural Networks via Asymmetric Kernels", 2023.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
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

LAYERS = "encoder layers"
_MODELS = {"next": ", causal", "masked": ", bidirectional", None: ""}
"""Words for the models that learn next tokens and masked tokens."""


class _Line(NamedTuple):
    """A line of a figure."""

    method: str
    objective: str | None

    def __str__(self) -> str:
        return self.method + _MODELS[self.objective]


class _Rounds(NamedTuple):
    """What measurements in one figure have in common."""

    setting: str
    """The setting that has several values."""
    task: str
    mode: str
    device: str
    length: int
    batch_size: int
    precision: str
    preset: str
    overrides: tuple[str, ...]
    mixers: tuple[str, ...]
    layers: tuple[int, ...]
    varied: tuple[str, ...]

    @property
    def facts(self) -> list[str]:
        """Say what was measured."""
        size = f"{self.length:,} positions", f"batch {self.batch_size}", self.precision
        return [f"Preset {self.preset}", *size, *self.overrides, self.device]


def _varied_number(record: BenchRecord) -> tuple[str, float] | None:
    """Return the one setting that has several values, and its value here; None unless a number."""
    if record.rpe_layers is not None:
        return LAYERS, record.rpe_layers
    with suppress(ValueError):
        (value,) = record.varied_values
        setting, _, number = value.partition("=")
        return setting, float(number)
    return None


def layer_figures(records: Sequence[BenchRecord], names: Names, looks: Looks) -> list[ReportFigure]:
    """Make a figure of the measurements that were made with several numbers for one setting.

    Args:
        records: measurements of all kinds.
        names: names of mixers.
        looks: looks of their lines.
    """
    groups: dict[_Rounds, dict[_Line, dict[float, BenchRecord]]] = {}
    for r in records:
        if (found := _varied_number(r)) is not None and r.steps_per_second is not None:
            setting, number = found
            rounds = _Rounds(setting, str(r.task), r.mode, r.device, r.length, r.batch_size,
                             r.precision, str(r.preset), r.fixed_overrides, r.measured_with,
                             r.rounds_rpe_layers, r.varied)  # fmt: skip
            line = _Line(names.of_mixer(r), r.objective)
            groups.setdefault(rounds, {}).setdefault(line, {})[number] = r
    made: list[ReportFigure] = []
    for rounds, every in groups.items():
        if len({count for points in every.values() for count in points}) == 1:
            continue
        speeds = {
            line: (max(points), points[max(points)].steps_per_second)
            for line, points in every.items()
        }
        lines, note = choose_rows(every, rank(speeds, "speed at the highest number"))
        is_of_paper = rounds.setting in (LAYERS, "mixer.rpe_layers")
        after = ", after Figure 1b of the SKI-TNN paper" if is_of_paper else ""
        figure = ReportFigure(
            slugify("speed-over", rounds.setting, rounds.task, rounds.mode, *rounds.facts),
            f"{rounds.task}, {rounds.mode}: speed over {rounds.setting}",
            f"{', '.join(rounds.facts)}. Medians over interleaved rounds, with their "
            f"quartiles{after}.{note}",
            partial(_draw, lines, looks, rounds.setting),
        )
        made.append(figure)
    return made


def _draw(lines: dict[_Line, dict[float, BenchRecord]], looks: Looks, setting: str) -> Figure:
    figure = figure_with_labels(map(str, lines))
    axes = figure.subplots()
    ends: list[LineEnd] = []
    for line, points in lines.items():
        layers = sorted(points)
        speeds = [points[count].steps_per_second or 0.0 for count in layers]
        lows = [points[count].low_quartile or 0.0 for count in layers]
        highs = [points[count].high_quartile or 0.0 for count in layers]
        look = looks.line(line.method)
        look |= {"linestyle": "--" if line.objective == "masked" else "-"}
        axes.plot(layers, speeds, **look)
        axes.fill_between(layers, lows, highs, color=look["color"], alpha=0.15, linewidth=0)
        ends.append(LineEnd(layers[-1], speeds[-1], str(line), look["color"]))
    axes.set_xticks(sorted({count for points in lines.values() for count in points}))
    axes.set_xlabel(setting)
    axes.set_ylabel("steps per second")
    axes.set_ylim(bottom=0)
    label_ends(axes, ends)
    return figure
