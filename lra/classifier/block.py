"""The residual block around a token mixer: norms, channel mixers, dropout."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lra.classifier.axes import is_gated
from lra.classifier.packing import Packing
from lra.config.schema import ModelConfig
from models.layers.basic import (
    ACTIVATIONS,
    Activation,
    ChannelDropout,
    Dropout,
    LinearMap,
    SimpleRMSNorm,
    build_dropout,
    linear_pair,
)
from models.layers.norms import BatchNorm, ScaleNorm
from models.ops.reference import keep_forms

# Packed positions have no padding, so these norms need no mask.
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

    def __init__(
        self, dim: int, hidden: int, activation: Activation, *, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[activation]
        self.dropout = Dropout(dropout)
        self.gate = LinearMap(dim, hidden)
        self.value = LinearMap(dim, hidden)
        self.output = LinearMap(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Mix channels: (..., dim) -> (..., dim)."""
        gate, value = linear_pair(x, self.gate, self.value)
        return self.output(self.dropout(self.activation(gate)) * value)


class MLP(nn.Module):
    """Two linear maps around an activation, the Transformer's feed-forward layer.

    Dropout acts between the activation and the second map.
    """

    def __init__(
        self, dim: int, hidden: int, activation: Activation, *, dropout: float = 0.0
    ) -> None:
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

    Args:
        config: settings of the model.
        is_gated: whether the sublayer returns a value and a gate; the result is then
            x + gate * (value - x) instead of a sum.
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
            build = CHANNEL_MIXERS[config.channel_mixer]
            sizes = config.dim, config.hidden, config.channel_activation
            self.channel_mixer = build(*sizes, dropout=config.inner_dropout)
            self.channel_residual = Residual(config)

    def forward(self, x: Tensor, packing: Packing) -> Tensor:
        """Transform packed positions: x (positions, dim) -> the same shape."""
        return self.around(functools.partial(packing.mix, self.mixing), x, packing)

    @property
    def mixing(self) -> Callable[..., Tensor]:
        """The function that maps (batch, length, dim) and a mask to the input of the residual."""
        return self.mixer.value_and_gate if is_gated(self.mixer) else self.mixer

    def around(self, mix: Callable[[Tensor], Tensor], x: Tensor, packing: Packing) -> Tensor:
        """Compute `forward` with another form of the mixer.

        Args:
            mix: maps packed positions to what is added to x, or to value and gate of a
                `GatedMixer`.
            x: (positions, dim).
            packing: the lengths of the packed sequences.
        """
        x = self.mixer_residual(mix, x, packing)
        if self.channel_mixer is None:
            return x
        return self.channel_residual(self.channel_mixer, x, packing)

    def checkpointed(self, x: Tensor, packing: Packing) -> Tensor:
        """Compute `forward`, keep only x, and compute it again in the backward pass."""
        again = _recompute(self, keep_forms())
        contexts = lambda: (contextlib.nullcontext(), again)  # noqa: E731
        result = checkpoint(self, x, packing, use_reentrant=False, context_fn=contexts)
        assert isinstance(result, Tensor)
        return result
