"""What toroidal attention makes of positions alone: the bias of its scores, and its harmonics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lra.report.drawing import COLOURS, LINES, log_scale, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import nn

    from models.layers.torus_positions import TorusPositions

CAPTION = (
    "Left: what the distance takes from the scores of each head, by the lag on one platter (along "
    "rows, on a grid). Middle: the mean over pairs of channels of the cosine of the angle between "
    "query and key, by lag and by the distance of platters: before the bias, a score of equal "
    "queries and keys whose pairs are of one norm is in proportion to it. Right: how often each "
    "pair turns around the circle of positions."
)


@dataclass(frozen=True)
class PositionScores:
    """What one layer makes of positions, by lag on the last axis."""

    name: str
    lags: np.ndarray
    """(lags,) in positions, from minus half of the axis."""
    bias: np.ndarray
    """(heads, lags) that are added to scores on one platter."""
    cosines: np.ndarray
    """(platters, lags), by the distance of platters."""
    turns: np.ndarray
    """(pairs,) around the circle."""


def position_scores(model: nn.Module) -> list[PositionScores]:
    """Compute the scores of positions of every toroidal layer of a model, none without one."""
    import torch

    from models.layers.torus_positions import TorusPositions

    with torch.no_grad():
        layers = [module for module in model.modules() if isinstance(module, TorusPositions)]
        return [_scores(f"layer {n}", layer) for n, layer in enumerate(layers, start=1)]


def _scores(name: str, layer: TorusPositions) -> PositionScores:
    import torch

    torus = layer.torus
    size, period = torus.sizes[-1], torus.periods[-1]
    lags = torch.arange(-(size // 2), (size + 1) // 2)
    places = torch.zeros(1, size, len(torus.sizes), dtype=torch.int64)
    places[..., -1] = lags
    distance = torus.distance(torus.apart(places, torch.zeros_like(places[:, :1])))[0, :, 0]
    weight = layer.distance_weight
    weight = torch.zeros(layer.num_heads) if weight is None else weight.cpu()
    angles = layer.angles(places)[0]
    mine = slice(len(torus.sizes) - 1, None, len(torus.sizes))
    origin = angles[size // 2, 0]
    step = layer.angles(torch.ones_like(places))[0, 0, 0, mine]
    return PositionScores(
        name,
        lags.numpy(),
        (-weight[:, None] * distance).numpy(),
        (angles - origin).cos().mean(dim=-1).T.numpy(),
        (step * period / (2 * torch.pi)).numpy(),
    )


def draw_position_scores(layers: Sequence[PositionScores]) -> Figure:
    """Draw the scores of layers, as many as there are colours; their harmonics are the same."""
    figure = new_figure(width=11.5, height=3.2)
    bias, cosines, turns = figure.subplots(1, 3)
    for layer, colour in zip(layers, COLOURS, strict=False):
        for head, line in zip(layer.bias, LINES * len(layer.bias), strict=False):
            bias.plot(layer.lags, head, color=colour, linestyle=line, linewidth=0.9)
        bias.plot([], [], color=colour, label=layer.name)
    bias.set_ylabel("bias of the score; a line per head")
    first = layers[0]
    for distance, (values, colour) in enumerate(zip(first.cosines, COLOURS, strict=False)):
        label = f"platters {distance} apart"
        cosines.plot(first.lags, values, color=colour, linewidth=0.9, label=label)
    cosines.set_ylabel("mean cosine")
    turns.plot(np.arange(1, len(first.turns) + 1), first.turns, "o", color=COLOURS[0], markersize=4)
    turns.set_ylabel("turns around the circle")
    turns.set_xlabel("pair of channels")
    turns.xaxis.get_major_locator().set_params(integer=True)
    log_scale(turns)
    for panel in (bias, cosines):
        panel.set_xlabel("lag, positions")
        panel.legend(fontsize=7)
    return figure
