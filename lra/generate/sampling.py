"""Drawing tokens one after the other, each by the logits that follow those before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from common.errors import UserError
from lra.classifier.classifier import Classifier
from lra.classifier.decoders import Decoder
from models.layers.long_convolution import cache_kernels
from tasks.random_words import RandomWords

BITS = 52
"""Bits of a random number below 1: so many that its product with a sum stays below the sum."""


class TokenSampler:
    """Draws tokens by their logits, with one random number each: equal seeds draw alike.

    The number goes through the inverse of the cumulative distribution in double precision, so
    logits that differ by rounding hardly ever give another token.

    Args:
        temperature: what logits are divided by; 0 for the likeliest token.
        seed: of the random numbers.
    """

    def __init__(self, temperature: float, seed: int) -> None:
        self.temperature = temperature
        self.words = RandomWords(seed, stream=0)

    def draw(self, logits: Tensor) -> int:
        """Draw a token by logits (tokens,).

        Raises: UserError for logits that are not finite.
        """
        values = logits.double().cpu().numpy()
        if not np.isfinite(values).all():
            raise UserError("the model's logits are not finite, so that nothing can be drawn")
        if self.temperature == 0:
            return int(values.argmax())
        with np.errstate(over="ignore"):  # minus infinity is right for a temperature next to 0
            weights = np.exp((values - values.max()) / self.temperature)
        cumulative = np.cumsum(weights)
        high, low = (int(word) for word in self.words.draw(2))
        number = (high << 32 | low) >> (64 - BITS)
        return int(np.searchsorted(cumulative, cumulative[-1] * (number / 2**BITS), "right"))


@torch.inference_mode()
def generate(
    way: type[Decoder],
    model: Classifier,
    prompt: Sequence[int],
    *,
    count: int,
    temperature: float,
    seed: int,
) -> Iterator[int]:
    """Continue a prompt: yield one token after another, each when it is drawn.

    Args:
        way: how the model computes.
        model: a causal classifier of positions, in evaluation mode.
        prompt: tokens, at least one.
        count: number of tokens to draw, at least one.
        temperature: what logits are divided by; 0 for the likeliest tokens.
        seed: of the random numbers.
    """
    sampler = TokenSampler(temperature, seed)
    device = next(model.parameters()).device
    with cache_kernels():
        decoder = way(model, len(prompt) + count - 1)  # nothing follows the last token
        tokens = list(prompt)
        for _ in range(count):
            tokens = [sampler.draw(decoder.take(torch.tensor(tokens, device=device)))]
            yield tokens[0]
