"""Linear attention: running sums of keys and values instead of scores, with optional decay.

Katharopoulos et al., "Transformers are RNNs", ICML 2020 (arXiv:2006.16236), section 3, feature elu;
Choromanski et al., "Rethinking Attention with Performers", ICLR 2021 (arXiv:2009.14794), section 2,
feature favor; Qin et al., "cosFormer", ICLR 2022 (arXiv:2202.08791), section 3, feature cos; Sun et
al., "Retentive Network", 2023 (arXiv:2307.08621), and Afzal et al., "LION", NeurIPS 2025
(arXiv:2502.16249), section 3, decays.

Symbols of the papers and their names here:
    phi: features
    W_O: output
    h: num_heads
    M (Performer's m): num_random, the directions w; M (cosFormer): context.max_length
    gamma, lambda (LION): exp(log_decay)
"""

import math
from typing import Literal

import torch
from pydantic import PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from lra.models.base import MixerContext, Recurrence, RecurrentMixer
from lra.models.layers.basic import LinearMap
from lra.models.layers.heads import channels_of_heads, split_parts
from lra.models.ops.deterministic import cumulative_sum
from lra.models.ops.recurrences import decaying_attention

Feature = Literal["elu", "relu", "silu", "cos", "favor"]
Decay = Literal["none", "fixed", "selective"]

SMALLEST_WEIGHT = 1e-6
"""Added to the sum of weights before the division by it, as in the published code."""
SMALLEST_FEATURE = 1e-4
"""Added to random features before they are scaled, so that their sums are never 0."""
RECTIFIED = ("relu", "cos")
"""Features that can all be close to 0. The sum of weights is then close to 0 as well, and gradients
depend on the last digits of queries and keys. Autocast therefore leaves queries, keys and sums in
the precision of the weights."""


def orthogonal_directions(count: int, channels: int) -> Tensor:
    """Draw random directions, orthogonal within blocks, of normal length (Performer, section 2.4).

    Returns: (count, channels).
    """
    blocks = [
        torch.linalg.qr(torch.randn(channels, channels)).Q for _ in range(-(-count // channels))
    ]
    lengths = torch.linalg.vector_norm(torch.randn(count, channels), dim=-1, keepdim=True)
    return lengths * torch.cat(blocks)[:count]


class Linear(RecurrentMixer, Recurrence):
    """Linear attention, O(length dim^2 / num_heads); O(dim^2 / num_heads) a step.

    Args:
        num_heads: number of attention heads.
        feature: feature map of queries and keys. "elu" is elu + 1; "relu"; "silu" is silu + 1/2
            divided by its norm, as in LION; "cos" is relu with weights that are the cosine of
            the lag over max_length; "favor" has random features whose products equal those of
            softmax attention on average.
        num_random: number of random features of favor. None: twice the channels of a head.
        redraw_steps: number of training steps after which favor draws new random directions (in
            `lra.models.base.begin_step`). None: it keeps the first ones.
        decay: "none"; "fixed", one learned decay per head that starts as in RetNet; "selective",
            decays that are computed from the input at each position, as in LION.
    Raises: ValueError if num_heads does not divide the channels, and for options of favor with
        another feature.
    """

    name = "linear"
    directions: Tensor
    steps_since: Tensor

    def __init__(
        self,
        context: MixerContext,
        *,
        num_heads: PositiveInt = 4,
        feature: Feature = "elu",
        num_random: PositiveInt | None = None,
        redraw_steps: PositiveInt | None = None,
        decay: Decay = "none",
    ) -> None:
        super().__init__()
        dim = channels_of_heads(context, num_heads)
        for option, value in {"num_random": num_random, "redraw_steps": redraw_steps}.items():
            if value is not None and feature != "favor":
                raise ValueError(f"{option} concerns feature favor, and feature is {feature}")
        self.context = context
        self.num_heads = num_heads
        self.feature: Feature = feature
        self.decay: Decay = decay
        self.redraw_steps = redraw_steps
        self.query_key_value = LinearMap(dim, 3 * dim)
        self.output = LinearMap(dim, dim)
        if feature == "favor":
            count = num_random or 2 * dim // num_heads
            self.register_buffer("directions", orthogonal_directions(count, dim // num_heads))
            self.register_buffer("steps_since", torch.zeros((), dtype=torch.long))
        if decay == "fixed":
            gamma = 1 - 2.0 ** (-5 - torch.arange(num_heads))
            self.decay_logit = nn.Parameter(torch.logit(gamma))
        elif decay == "selective":
            self.decay_gate = LinearMap(dim, num_heads)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.without_padding(x, mask)
        if self.feature not in RECTIFIED:
            return self._divided(self._sums(x, mask))
        with torch.autocast(x.device.type, enabled=False):
            sums = self._sums(x.to(self.query_key_value.weight.dtype), mask)
        return self._divided(sums)

    def _sums(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Sum weighed values, and weights: (batch, heads, length, size + 1)."""
        query, key, value = split_parts(self.query_key_value(x), 3, self.num_heads)
        position = torch.arange(x.shape[1], device=x.device)
        query, key = self.query_features(query, position), self.key_features(key, position, mask)
        log_decay, value = self.log_decays(x), _weighed(value)
        if mask is not None:
            value = value * mask[:, None, :, None]
        return self._attend(query, key, value, log_decay)

    def query_features(self, query: Tensor, position: Tensor) -> Tensor:
        """Map queries to features that are not negative, see `key_features`.

        Those of favor are divided by a factor that cancels in the division by the sum of weights.
        """
        if self.feature != "favor":
            return self._features(query, position)
        products, half_square, largest = self._random_products(query)
        return positive_features(products, half_square + largest)

    def key_features(self, key: Tensor, position: Tensor, mask: Tensor | None = None) -> Tensor:
        """Map keys to features that are not negative.

        Features of favor are divided by the exponential of the largest product of any key with a
        direction. Causal features are not, because that key could be a later one. They do not
        overflow unless a direction is very long: exponents are at most half its squared length.

        Returns: (batch, heads, length, features), undefined at padding.
        """
        if self.feature != "favor":
            return self._features(key, position)
        products, divisor, largest = self._random_products(key)
        is_padding = None if mask is None else ~mask[:, None, :, None]
        if is_padding is not None:
            largest = largest.masked_fill(is_padding, -torch.inf)
        if not self.context.causal:
            divisor = divisor + largest.amax(dim=-2, keepdim=True)
        if is_padding is not None:
            divisor = divisor.masked_fill(is_padding, torch.inf)
        return positive_features(products, divisor)

    def _features(self, x: Tensor, position: Tensor) -> Tensor:
        """Map queries or keys to features that are not random."""
        if self.feature == "elu":
            return functional.elu(x) + 1
        if self.feature == "silu":
            return functional.normalize(functional.silu(x) + 0.5, dim=-1)
        if self.feature == "relu":
            return functional.relu(x)
        index = position[:, None].to(torch.promote_types(x.dtype, torch.float32)) + 1
        angle = math.pi / 2 / self.context.max_length * index
        turns = angle.sin().to(x.dtype), angle.cos().to(x.dtype)
        return torch.cat([functional.relu(x) * turn for turn in turns], dim=-1)

    def _random_products(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Multiply by the directions: (..., size) -> (..., features).

        Returns: the products, half |x|^2 and the largest product, (..., 1), which is a constant for
            gradients, as in released code: it cancels in the division by the sum of weights.
        """
        x = x * x.shape[-1] ** -0.25
        products = x @ self.directions.to(x.dtype).mT
        largest = products.detach().amax(dim=-1, keepdim=True)
        return products, x.square().sum(dim=-1, keepdim=True) / 2, largest

    def log_decays(self, x: Tensor) -> Tensor:
        """Return the logarithms of decays: (batch, length, dim) -> (batch, heads, length, 1)."""
        batch, length, _ = x.shape
        if self.decay == "selective":
            return functional.logsigmoid(-self.decay_gate(x)).mT[..., None]
        if self.decay == "fixed":
            decay = functional.logsigmoid(self.decay_logit)
            return decay[:, None, None].expand(batch, -1, length, 1)
        return x.new_zeros(batch, self.num_heads, length, 1)

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor) -> Tensor:
        if self.decay == "none" and not self.context.causal:
            return query @ (key.mT @ value)
        parts = query, key, value, log_decay
        behind = _fading(*parts)
        if self.context.causal:
            return behind
        ahead = _fading(*(part.flip(-2) for part in parts)).flip(-2)
        return behind + ahead - (query * key).sum(dim=-1, keepdim=True) * value

    def _divided(self, sums: Tensor) -> Tensor:
        least = 0.0 if self.feature == "favor" else SMALLEST_WEIGHT  # its features are never 0
        mixed = sums[..., :-1] / (sums[..., -1:] + least)
        return self.output(mixed.transpose(1, 2).flatten(2))

    @torch.no_grad()
    def begin_step(self) -> bool:
        """Draw new directions if it is time; see `Mixer.begin_step`."""
        if self.redraw_steps is None:
            return False
        is_time = bool(self.steps_since >= self.redraw_steps)
        if is_time:
            self.directions.copy_(orthogonal_directions(*self.directions.shape))
            self.steps_since.zero_()
        self.steps_since += 1
        return is_time

    def initial_state(self, batch: int) -> tuple[Tensor, Tensor]:
        """Return zeros: the sums, (batch, heads, features, size + 1), and the position."""
        like = self.output.weight
        empty = like.new_zeros(1, self.num_heads, 1, self.context.dim // self.num_heads)
        features = self.key_features(empty, torch.zeros(1, device=like.device)).shape[-1]
        sums = like.new_zeros(batch, self.num_heads, features, empty.shape[-1] + 1)
        return sums, torch.zeros(batch, dtype=torch.long, device=like.device)

    @torch.no_grad()
    def step(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """See `Recurrence.step`; with feature cos there are at most max_length positions."""
        (sums, position), sequence = state, x[:, None]
        query, key, value = split_parts(self.query_key_value(sequence), 3, self.num_heads)
        query = self.query_features(query, position[:1])
        sums = sums + self.key_features(key, position[:1]).mT @ _weighed(value)
        y = self._divided(query @ sums)[:, 0]
        return y, (self.log_decays(sequence).exp() * sums, position + 1)

    @torch.no_grad()
    def prefill(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        batch, length, _ = x.shape
        _, key, value = split_parts(self.query_key_value(x), 3, self.num_heads)
        key = self.key_features(key, torch.arange(length, device=x.device))
        to_end = cumulative_sum(self.log_decays(x).flip(-2), -2).flip(-2)
        sums = (to_end.exp() * key).mT @ _weighed(value)
        return self(x), (sums, torch.full((batch,), length, device=x.device))


def _weighed(value: Tensor) -> Tensor:
    """Append 1 to values, so that sums of them hold the sum of weights, too."""
    return torch.cat([value, torch.ones_like(value[..., :1])], dim=-1)


def positive_features(products: Tensor, divisor: Tensor) -> Tensor:
    """Turn products (..., features) into random features, none of which is 0.

    Args:
        divisor: (..., 1), the logarithm of what their exponentials are divided by.
    """
    scale = products.shape[-1] ** -0.5
    return (products - (divisor - math.log(scale))).exp() + SMALLEST_FEATURE * scale


def _fading(query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor) -> Tensor:
    """Attend to keys that fade by the decays from their own to the one before the query's."""
    before = functional.pad(log_decay[..., :-1, :], (0, 0, 1, 0))
    return decaying_attention(query, key, value, before[..., 0])
