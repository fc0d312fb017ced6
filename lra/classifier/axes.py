"""How a mixer is applied to a grid: in raster order, along rows or columns, or natively."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Literal, TypeGuard

from torch import Tensor, nn

from lra.config.schema import RunConfig
from lra.runtime.errors import UserError
from models.base import GatedMixer, GridModule, Mixer, MixerContext
from tasks.base import TaskInfo


def is_gated(mixer: nn.Module) -> TypeGuard[GatedMixer | AlongAxis]:
    """Whether a mixer, or the mixer along an axis, returns a value and a gate."""
    return isinstance(mixer.mixer if isinstance(mixer, AlongAxis) else mixer, GatedMixer)


class AlongAxis(GridModule):
    """A mixer that is applied to each row, or each column, of a grid as to a sequence.

    Args:
        grid: (height, width).
    """

    def __init__(
        self, mixer: nn.Module, grid: tuple[int, int], axis: Literal["rows", "columns"]
    ) -> None:
        super().__init__(grid)
        self.mixer = mixer
        self.is_turned = axis == "columns"

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Mix grids in raster order: x (batch, height * width, dim) -> the same shape.

        Raises: ValueError for a mask, or for another number of positions than the grid has.
        """
        return self._along(self.mixer, x, mask)

    def value_and_gate(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Mix grids as `forward` does, by a `GatedMixer`: -> (batch, height * width, 2 * dim)."""
        assert isinstance(self.mixer, GatedMixer)
        return self._along(self.mixer.value_and_gate, x, mask)

    def _along(self, mix: Callable[..., Tensor], x: Tensor, mask: Tensor | None) -> Tensor:
        if mask is not None:
            raise ValueError("got a mask, expected a grid without padding")
        lines = self.on_grid(x)
        if self.is_turned:
            lines = lines.transpose(1, 2)
        mixed = mix(lines.flatten(0, 1), None).unflatten(0, lines.shape[:2])
        return (mixed.transpose(1, 2) if self.is_turned else mixed).flatten(1, 2)


def build_layers(config: RunConfig, info: TaskInfo, length: int, count: int) -> Iterator[nn.Module]:
    """Construct the mixers of the first blocks, one after another, for `model.axes`.

    Args:
        length: positions of the longest sequence.
        count: number of mixers.
    Yields: modules that map (batch, length, dim) and a mask to (batch, length, dim).
    Raises: UserError if the task has no grid or the mixer cannot mix one, if pooling reads a single
        position that sees no others, or for options of the mixer that contradict one another or
        the context.
    """
    grid = None if config.model.axes == "flat" else _grid(config, info)
    contexts = [_context(config, grid, length, layer) for layer in range(count)]
    component = config.mixer_component
    shared = component.share(contexts[0], config.mixer)
    for context in contexts:
        mixer = component.build(replace(context, shared=shared), config.mixer)
        yield _on_axes(mixer, config, grid, context.layer)


def _context(
    config: RunConfig, grid: tuple[int, int] | None, length: int, layer: int
) -> MixerContext:
    model = config.model
    if model.axes == "alternate" and grid is not None:
        length = grid[1] if _is_row(layer) else grid[0]
    return MixerContext(
        dim=model.dim,
        max_length=length,
        layer=layer,
        depth=model.depth,
        grid=grid if model.axes == "native" else None,
        causal=model.causal,
        inner_dropout=model.inner_dropout,
        tied_dropout=model.tied_dropout,
    )


def _is_row(layer: int) -> bool:
    """Whether a block mixes rows, if rows and columns alternate."""
    return layer % 2 == 0


def _on_axes(
    mixer: nn.Module, config: RunConfig, grid: tuple[int, int] | None, layer: int
) -> nn.Module:
    axes = config.model.axes
    if axes == "native" and not (isinstance(mixer, Mixer) and mixer.has_native_grid):
        raise UserError(
            f"mixer {config.mixer_name} has no two-dimensional form, and model.axes is native; "
            f"use --set model.axes=alternate or flat"
        )
    if isinstance(mixer, Mixer):
        _refuse_blind_pooling(config, mixer)
    if axes == "alternate" and grid is not None:
        return AlongAxis(mixer, grid, "rows" if _is_row(layer) else "columns")
    return mixer


def _refuse_blind_pooling(config: RunConfig, mixer: Mixer) -> None:
    """Refuse pooling that reads a single position which sees no others."""
    pooling = config.model.pooling
    if pooling in ("cls", "last") and mixer.reach == (0, 0):
        raise UserError(
            f"mixer {config.mixer_name} does not mix positions, and model.pooling={pooling} reads "
            f"a single one; use --set model.pooling=mean"
        )
    if pooling == "cls" and not mixer.looks_ahead:
        raise UserError(
            f"mixer {config.mixer_name} sees no later positions with these options, and "
            f"model.pooling=cls reads the first position; use --set model.pooling=last"
        )


def _grid(config: RunConfig, info: TaskInfo) -> tuple[int, int]:
    if info.grid is None:
        raise UserError(
            f"task {config.task_name} has no grid, and model.axes is {config.model.axes}; "
            f"use --set model.axes=flat"
        )
    return info.grid
