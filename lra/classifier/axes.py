"""How a mixer is applied to a grid: in raster order, along rows or columns, or natively."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Literal, TypeGuard

from torch import Tensor, nn

from lra.config.schema import RunConfig
from models.base import GatedMixer, GridModule, MixerContext
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

    If axes alternate, even blocks mix rows and odd ones columns.

    Args:
        length: positions of the longest sequence.
        count: number of mixers.
    Yields: modules that map (batch, length, dim) and a mask to (batch, length, dim).
    Raises: UserError for options of the mixer that contradict one another or the context.
    """
    model, component = config.model, config.mixer_component
    lines = info.grid if model.axes == "alternate" else None
    shared: nn.Module | None = None
    for layer in range(count):
        is_row = layer % 2 == 0
        context = MixerContext(
            dim=model.dim,
            max_length=length if lines is None else lines[is_row],
            layer=layer,
            depth=model.depth,
            grid=info.grid if model.axes == "native" else None,
            causal=model.causal,
            inner_dropout=model.inner_dropout,
            tied_dropout=model.tied_dropout,
        )
        if layer == 0:
            shared = component.share(context, config.mixer)
        mixer = component.build(replace(context, shared=shared), config.mixer)
        axis = "rows" if is_row else "columns"
        yield mixer if lines is None else AlongAxis(mixer, lines, axis)
