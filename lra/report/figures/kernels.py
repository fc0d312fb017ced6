"""The kernels that mixers have learned, over lag and frequency, from a checkpoint.

The figures follow those of the SKI-TNN paper's appendix, whose kernels have a spike at the
diagonal, are smooth away from it and decay, which is what its decomposition rests on.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from common.errors import KnownError
from common.untrusted import explain_errors
from lra.record.run import RunRecord
from lra.report.boards.board import Board
from lra.report.boards.cells import Cell
from lra.report.boards.results import Results
from lra.report.boards.slugs import slugify
from lra.report.figures.best_rows import choose_rows, rank_by_result
from lra.report.figures.drawing import ReportFigure, new_figure, set_log_scale
from lra.report.figures.series import mark

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import nn

logger = logging.getLogger(__name__)

LONGEST = 256
"""Most positions that a kernel is shown for; longer kernels are cut off there."""
CHANNEL_COLOURS = ("#3c90fc", "#fc6000", "#00a848", "#cc00b4")
"""Colours of the channels that are shown, the strongest first."""
CAPTION = (
    f"The {len(CHANNEL_COLOURS)} channels with the largest norm, with a row of panels for each "
    f"layer. From left to right: the kernel over the lag; its magnitude over frequency; its "
    f"magnitude over the distance, on a logarithmic axis, with the median of all channels as a "
    f"thick line; the Toeplitz matrix of the strongest channel."
)


@dataclass(frozen=True)
class Kernel:
    """One operator's matrices, (channels, length, length)."""

    name: str
    matrices: np.ndarray

    @property
    def lags(self) -> np.ndarray:
        """Lags in increasing order, (2 length - 1,)."""
        length = self.matrices.shape[-1]
        return np.arange(1 - length, length)

    @property
    def by_lag(self) -> np.ndarray:
        """Values by lag, (channels, 2 length - 1): first row backwards, then first column."""
        return np.concatenate([self.matrices[:, 0, :0:-1], self.matrices[:, :, 0]], axis=1)

    @property
    def strongest(self) -> np.ndarray:
        """Indices of the channels of the largest norm, the strongest first."""
        norms = np.linalg.norm(self.by_lag, axis=1)
        return np.argsort(-norms, kind="stable")[: len(CHANNEL_COLOURS)]


@dataclass(frozen=True)
class TrainedModel:
    """The best model of a run."""

    model: nn.Module
    longest: int
    """Positions of its longest axis."""


def trained_model(results: Results, record: RunRecord) -> TrainedModel | None:
    """Load the best model of a run; none if it has no checkpoint.

    A plug-in's is left out, because its code is not run for a report.

    Raises: UserError if the run's settings can no longer be composed as they were.
    """
    if not _has_model(results, record):
        return None
    from lra.classifier.classifier import input_length
    from lra.evaluate.trained import load_best_model, recompose_config

    folder = results.path(record)
    config = recompose_config(folder, record)
    info = config.build_task().info
    model = load_best_model(folder, config, info)
    if model is None:
        return None
    is_grid = info.grid is not None and config.model.axes != "flat"
    return TrainedModel(model, max(info.grid or ()) if is_grid else input_length(config, info))


def _has_model(results: Results, record: RunRecord) -> bool:
    return not record.has_own_code and (results.path(record) / "checkpoints").is_dir()


def learned_kernels(found: TrainedModel) -> list[Kernel]:
    """Compute the kernels of a model; none if it has none."""
    import torch

    from models.layers.long_convolution import PositionOperator

    with torch.no_grad():
        return [
            Kernel(_title(name), module.matrix(min(LONGEST, found.longest)).float().numpy())
            for name, module in found.model.named_modules()
            if isinstance(module, PositionOperator)
        ]


def _title(module_name: str) -> str:
    """Name an operator: blocks.0.mixer.unit.operator.rows is layer 1, rows."""
    parts = module_name.split(".")
    layer = int(parts[parts.index("blocks") + 1]) + 1
    axis = f", {parts[-1]}" if parts[-1] in ("rows", "columns") else ""
    return f"layer {layer}{axis}"


def kernel_figures(results: Results, board: Board, slug: str) -> list[ReportFigure]:
    """Make a figure per method and task, of the first seed; say what cannot be shown."""
    figures: list[ReportFigure] = []
    chosen = {task: _choose_models(results, board, task) for task in board.tasks}
    for method, cells in board.rows.items():
        for task, cell in cells.items():
            drawn, note = chosen[task]
            for run in cell.runs if method in drawn else ():
                try:
                    with explain_errors("its checkpoint"):
                        found = trained_model(results, run)
                        kernels = [] if found is None else learned_kernels(found)
                except KnownError as error:
                    logger.info(f"kernels of {results.path(run)} are not shown: {error}")
                    continue
                if kernels:
                    name = slugify("kernels", task, method, slug)
                    title = f"{task}: learned kernels of {method}"
                    caption = f"{board.name}, run {run.run_id}. {CAPTION}{note}"
                    draw = partial(_draw, method, kernels)
                    figures.append(ReportFigure(name, title, caption, draw, is_wide=True))
                    break
    return figures


def _choose_models(results: Results, board: Board, task: str) -> tuple[dict[str, Cell], str]:
    """Choose the rows whose models are drawn, of those that have one."""
    found = {
        method: cells[task]
        for method, cells in board.rows.items()
        if task in cells and any(_has_model(results, run) for run in cells[task].runs)
    }
    return choose_rows(found, rank_by_result(board, task))


def _draw(row: str, kernels: Sequence[Kernel]) -> Figure:
    figure = new_figure(width=11.5, height=0.5 + 2.1 * len(kernels))
    rows = figure.subplots(len(kernels), 4, squeeze=False, sharex="col")
    for panels, kernel in zip(rows, kernels, strict=True):
        for axes in panels:
            mark(axes, row)
        over_lag, over_frequency, decay, matrix = panels
        length = kernel.matrices.shape[-1]
        frequencies = np.fft.rfftfreq(2 * length - 1)
        distance = np.arange(length)
        for colour, channel in zip(CHANNEL_COLOURS, kernel.strongest, strict=False):
            values = kernel.by_lag[channel]
            over_lag.plot(kernel.lags, values, color=colour, linewidth=0.8)
            over_frequency.plot(
                frequencies, np.abs(np.fft.rfft(values)), color=colour, linewidth=0.8
            )
            decay.plot(distance, by_distance(values), color=colour, linewidth=0.8)
        median = np.median([by_distance(values) for values in kernel.by_lag], axis=0)
        decay.plot(distance, median, color="black", linewidth=1.4)
        set_log_scale(decay)
        shown = kernel.matrices[kernel.strongest[0]]
        limit = float(np.abs(shown).max()) or 1.0
        matrix.imshow(shown, cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="none")
        matrix.grid(visible=False)
        matrix.set_title(f"white 0, blue -{limit:.2g}, red {limit:.2g}", fontsize=8)
        over_lag.set_ylabel(f"{kernel.name}\ncoefficient")
        over_frequency.set_ylabel("magnitude")
        decay.set_ylabel("|coefficient|")
        matrix.set_ylabel("to position")
    for axes, text in zip(
        rows[-1],
        (
            "lag, positions",
            "frequency, cycles per position",
            "distance, positions",
            "from position",
        ),
        strict=True,
    ):
        axes.set_xlabel(text)
    return figure


def by_distance(values: np.ndarray) -> np.ndarray:
    """Return, for each distance l, the larger magnitude of a kernel at the lags +l and -l.

    Args:
        values: (2 length - 1,) values of the kernel, by increasing lag.
    Returns: (length,) magnitudes, for l = 0, 1, ...
    """
    middle = len(values) // 2
    return np.maximum(np.abs(values[middle:]), np.abs(values[middle::-1]))
