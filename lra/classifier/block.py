"""The residual block around a token mixer: norms, channel mixers, dropout, rows and columns."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lra.classifier.norms import BatchNorm, ScaleNorm
from lra.classifier.packing import Packing
from lra.config.schema import ModelConfig, RunConfig
from lra.models.base import GatedMixer, GridModule, MixerContext
from lra.models.layers.basic import (
    ACTIVATIONS,
    Activation,
    ChannelDropout,
    Dropout,
    LinearMap,
    SimpleRMSNorm,
    build_dropout,
    to_autocast_type,
)
from lra.models.ops.reference import reference_forms, reference_forms_are_used
from lra.tasks.base import TaskInfo

NORMS: dict[str, Callable[[int], nn.Module]] = {
    "batch": BatchNorm,
    "layer": nn.LayerNorm,
    "simple_rms": lambda dim: SimpleRMSNorm(),
    "scale": lambda dim: ScaleNorm(),
}


class GLU(nn.Module):
    """Gated linear unit, W_3 (f(W_1 x) * W_2 x) (Shazeer 2020; the channel mixer of TNN).

    Dropout acts on the gate, f(W_1 x), as in TNN's published code.
    """

    def __init__(self, dim: int, hidden: int, activation: Activation, dropout: float) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[activation]
        self.dropout = Dropout(dropout)
        self.gate = LinearMap(dim, hidden)
        self.value = LinearMap(dim, hidden)
        self.output = LinearMap(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Mix channels: (..., dim) -> (..., dim)."""
        x = to_autocast_type(x)
        gate, value = self.gate(x), self.value(x)
        return self.output(self.dropout(self.activation(gate)) * value)


class MLP(nn.Module):
    """Two linear maps around an activation, the Transformer's feed-forward layer.

    Dropout acts between the activation and the second map.
    """

    def __init__(self, dim: int, hidden: int, activation: Activation, dropout: float) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[activation]
        self.dropout = Dropout(dropout)
        self.hidden = LinearMap(dim, hidden)
        self.output = LinearMap(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Mix channels: (..., dim) -> (..., dim)."""
        return self.output(self.dropout(self.activation(self.hidden(x))))


CHANNEL_MIXERS = {"glu": GLU, "mlp": MLP}


class Residual(nn.Module):
    """A residual connection: norm, sublayer, dropout and sum, or the norm after the sum.

    A gated sublayer returns a value and a gate, and the result is x + gate * (value - x).
    """

    def __init__(self, config: ModelConfig, *, is_gated: bool = False) -> None:
        super().__init__()
        self.prenorm = config.prenorm
        self.is_gated = is_gated
        self.norm = NORMS[config.norm](config.dim)
        self.dropout = build_dropout(config.dropout, tied=config.tied_dropout)

    def forward(self, sublayer: Callable[[Tensor], Tensor], x: Tensor, packing: Packing) -> Tensor:
        """Add a sublayer's output: x (positions, dim), packed -> the same shape."""
        if self.prenorm:
            return self._joined(x, sublayer(self.norm(x)), packing)
        return self.norm(self._joined(x, sublayer(x), packing))

    def _joined(self, x: Tensor, result: Tensor, packing: Packing) -> Tensor:
        if not self.is_gated:
            return x + self._drop(result, packing)
        value, gate = result.chunk(2, dim=-1)
        return x + gate * (self._drop(value, packing) - x)

    def _drop(self, x: Tensor, packing: Packing) -> Tensor:
        if isinstance(self.dropout, ChannelDropout) and self.dropout.is_active:
            return x * packing.repeated(self.dropout.factors(len(packing.lengths), x))
        return self.dropout(x)


def is_gated(mixer: nn.Module) -> bool:
    """Whether a mixer, or the mixer along an axis, returns a value and a gate."""
    return isinstance(mixer.mixer if isinstance(mixer, AlongAxis) else mixer, GatedMixer)


def find_mixing(mixer: nn.Module) -> Callable[..., Tensor]:
    """Return the function that maps (batch, length, dim) and a mask to the residual's input."""
    return mixer.value_and_gate if isinstance(mixer, GatedMixer) else mixer


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

        By a `GatedMixer`: -> value and gate, (batch, height * width, 2 * dim).
        Raises: ValueError for a mask, or for another number of positions than the grid has.
        """
        if mask is not None:
            raise ValueError("got a mask, expected a grid without padding")
        apply = self.along_columns if self.is_turned else self.along_rows
        return apply(find_mixing(self.mixer), x)


@contextlib.contextmanager
def _recompute(block: nn.Module, forms: AbstractContextManager[None]) -> Iterator[None]:
    """Compute a block again without changing the running statistics of its norms.

    Args:
        forms: selects the same forms of operators as the first computation.
    """
    before = {name: buffer.clone() for name, buffer in block.named_buffers()}
    try:
        with forms:
            yield
    finally:
        with torch.no_grad():
            for name, buffer in block.named_buffers():
                buffer.copy_(before[name])


class Block(nn.Module):
    """A mixer and an optional channel mixer, each with a residual connection."""

    def __init__(self, config: ModelConfig, mixer: nn.Module) -> None:
        super().__init__()
        self.mixer = mixer
        self.mixer_residual = Residual(config, is_gated=is_gated(mixer))
        self.channel_mixer = None
        if config.channel_mixer != "none":
            self.channel_mixer = CHANNEL_MIXERS[config.channel_mixer](
                config.dim, config.hidden, config.channel_activation, config.inner_dropout
            )
            self.channel_residual = Residual(config)

    def forward(self, x: Tensor, packing: Packing) -> Tensor:
        """Transform packed positions: x (positions, dim) -> the same shape."""
        return self.around(functools.partial(packing.mix, find_mixing(self.mixer)), x, packing)

    def around(self, mix: Callable[[Tensor], Tensor], x: Tensor, packing: Packing) -> Tensor:
        """Compute `forward` with another form of the mixer, `mix`, on packed positions."""
        x = self.mixer_residual(mix, x, packing)
        if self.channel_mixer is None:
            return x
        return self.channel_residual(self.channel_mixer, x, packing)

    def checkpointed(self, x: Tensor, packing: Packing) -> Tensor:
        """Compute `forward`, keep only x, and compute it again in the backward pass."""
        # The backward pass may run on another thread, which does not know this context.
        again = _recompute(self, reference_forms(reference_forms_are_used()))
        contexts = lambda: (contextlib.nullcontext(), again)  # noqa: E731
        result = checkpoint(self, x, packing, use_reentrant=False, context_fn=contexts)
        assert isinstance(result, Tensor)
        return result


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
