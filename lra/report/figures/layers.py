"""Speed over the values of one setting.

Over layers of the encoder of positions it is Figure 1b of Moreno et al.,
"SKI to go Faster: Accelerating Toeplitz Neural Networks via Asymmetric Kernels", 2023.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from lra.record.benchmark import BenchRecord
from lra.record.changes import write_changes
from lra.report.boards.row_names import RowNames
from lra.report.boards.slugs import slugify
from lra.report.figures.best_rows import choose_rows, rank
from lra.report.figures.drawing import ReportFigure, add_legend, new_figure, plot_line
from lra.report.figures.series import describe
from lra.report.figures.styles import MethodStyles, styles_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LAYERS = "encoder layers"
SPEED = "training speed, steps/s"
"""Label of the y axis."""
_MODELS = {"next": ", causal", "masked": ", bidirectional", None: ""}
"""Words for the models that learn next tokens and masked tokens."""


class _Model(NamedTuple):
    """What a line of a figure is of."""

    method: str
    objective: str | None

    def __str__(self) -> str:
        return self.method + _MODELS[self.objective]


class _Conditions(NamedTuple):
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
    changes: tuple[str, ...]
    mixers: tuple[str, ...]
    layers: tuple[int, ...]
    varied: str

    @property
    def facts(self) -> list[str]:
        """Say what was measured."""
        size = f"{self.length:,} positions", f"batch {self.batch_size}", self.precision
        return [f"Preset {self.preset}", *size, *self.changes, self.device]


class _StepsPerSecond(NamedTuple):
    median: float
    low_quartile: float
    high_quartile: float


_Speeds = Mapping[float, _StepsPerSecond]
"""Speeds by the value of the setting."""


def _varied_number(record: BenchRecord) -> tuple[str, float] | None:
    """Return the one setting that has several values, and its value here; None unless a number."""
    if record.rpe_layers is not None:
        return LAYERS, record.rpe_layers
    with suppress(ValueError, TypeError):
        ((setting, number),) = record.varied_changes.items()
        return setting, float(number)
    return None


def layer_figures(
    records: Sequence[BenchRecord], names: RowNames, styles: MethodStyles
) -> list[ReportFigure]:
    """Make a figure of the measurements that were made with several numbers for one setting.

    Args:
        records: measurements of all kinds.
        names: names of mixers.
        styles: styles of the mixers' lines.
    """
    groups: dict[_Conditions, dict[_Model, dict[float, _StepsPerSecond]]] = {}
    for r in records:
        if (found := _varied_number(r)) is not None and r.steps_per_second is not None:
            setting, number = found
            conditions = _Conditions(setting, str(r.task), r.mode, r.device, r.length, r.batch_size,
                                     r.precision, str(r.preset), write_changes(r.common_changes),
                                     r.measured_with,
                                     r.rounds_rpe_layers, str(r.varied))  # fmt: skip
            model = _Model(names.of_mixer(r), r.objective)
            quartiles = (r.low_quartile or 0.0, r.high_quartile or 0.0)
            speed = _StepsPerSecond(r.steps_per_second, *quartiles)
            groups.setdefault(conditions, {}).setdefault(model, {})[number] = speed
    made: list[ReportFigure] = []
    for conditions, every in groups.items():
        if len({number for speeds in every.values() for number in speeds}) == 1:
            continue
        at_highest = {model: max(speeds.items()) for model, speeds in every.items()}
        chosen, note = choose_rows(every, rank(at_highest, "speed at the highest number"))
        is_of_paper = conditions.setting in (LAYERS, "mixer.rpe_layers")
        after = ", after Figure 1b of the SKI-TNN paper" if is_of_paper else ""
        task, mode, setting = conditions.task, conditions.mode, conditions.setting
        figure = ReportFigure(
            slugify("speed-over", setting, task, mode, *conditions.facts),
            f"{task}, {mode}: speed over {setting}",
            f"{', '.join(conditions.facts)}. Lines are medians over interleaved rounds, and bands "
            f"are their quartiles{after}.{note}",
            partial(_draw, chosen, styles_of([model.method for model in chosen], styles), setting),
        )
        made.append(figure)
    return made


def _draw(chosen: Mapping[_Model, _Speeds], styles: MethodStyles, setting: str) -> Figure:
    figure = new_figure(map(str, chosen))
    axes = figure.subplots()
    for model, speeds in chosen.items():
        numbers = sorted(speeds)
        band = [(speeds[number].low_quartile, speeds[number].high_quartile) for number in numbers]
        plot_line(
            axes,
            model.method,
            [(number, speeds[number].median) for number in numbers],
            {**styles[model.method], "linestyle": "--" if model.objective == "masked" else "-"},
            name=str(model),
            band=band,
            texts=[
                f"{describe(setting, number)}: {describe(SPEED, speeds[number].median, quartiles)}"
                for number, quartiles in zip(numbers, band, strict=True)
            ],
        )
    axes.set_xticks(sorted({number for speeds in chosen.values() for number in speeds}))
    axes.set_xlabel(setting)
    axes.set_ylabel(SPEED)
    axes.set_ylim(bottom=0)
    add_legend(figure)
    return figure
