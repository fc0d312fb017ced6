"""The residual block around a token mixer: norms, channel mixers, dropout."""

from __future__ import annotations

from torch import Tensor, nn

from lra.config import ModelConfig
from lra.layout import Layout
from models._activations import ACTIVATIONS, Activation
from models.base import Mixer

# On packed positions both are free of padding: no mask to heed, nothing to leak.
NORMS = {"batch": nn.BatchNorm1d, "layer": nn.LayerNorm}


class GLU(nn.Module):
    """Gated linear unit, W_3 (f(W_1 x) * W_2 x) (Shazeer 2020; the channel mixer of TNN)."""

    def __init__(self, dim: int, hidden: int, activation: Activation) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[activation]
        self.gate = nn.Linear(dim, hidden)
        self.value = nn.Linear(dim, hidden)
        self.output = nn.Linear(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Mix channels: (..., dim) -> (..., dim)."""
        return self.output(self.activation(self.gate(x)) * self.value(x))


class MLP(nn.Module):
    """Two linear maps around an activation, the Transformer's feed-forward layer."""

    def __init__(self, dim: int, hidden: int, activation: Activation) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[activation]
        self.hidden = nn.Linear(dim, hidden)
        self.output = nn.Linear(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Mix channels: (..., dim) -> (..., dim)."""
        return self.output(self.activation(self.hidden(x)))


CHANNEL_MIXERS = {"glu": GLU, "mlp": MLP}


class Block(nn.Module):
    """Norm, mixer, residual, norm, channel mixer, residual; or the norms after the sums."""

    def __init__(self, config: ModelConfig, mixer: Mixer) -> None:
        super().__init__()
        self.prenorm = config.prenorm
        self.mixer = mixer
        self.channel_mixer = CHANNEL_MIXERS[config.channel_mixer](
            config.dim, config.hidden, config.channel_activation
        )
        self.mixer_norm = NORMS[config.norm](config.dim)
        self.channel_norm = NORMS[config.norm](config.dim)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        """Transform packed positions: x (positions, dim) -> the same shape."""
        if self.prenorm:
            x = x + self.dropout(layout.mix(self.mixer, self.mixer_norm(x)))
            return x + self.dropout(self.channel_mixer(self.channel_norm(x)))
        x = self.mixer_norm(x + self.dropout(layout.mix(self.mixer, x)))
        return self.channel_norm(x + self.dropout(self.channel_mixer(x)))
