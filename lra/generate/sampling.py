"""Drawing tokens one after the other, each by the logits that follow those before."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from lra.classifier.classifier import Classifier
from lra.classifier.decoders import Decoder
from lra.runtime.errors import UserError
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

    def draw(self, logits: Tensor) -> tuple[int, float]:
        """Draw a token by logits (tokens,); return it and its probability.

        Raises: UserError for logits that are not finite.
        """
        values = logits.double().cpu().numpy()
        if not np.isfinite(values).all():
            raise UserError("the model's logits are not finite, so that nothing can be drawn")
        with np.errstate(over="ignore"):  # minus infinity is right for a temperature next to 0
            weights = np.exp((values - values.max()) / (self.temperature or 1.0))
        cumulative = np.cumsum(weights)
        high, low = (int(word) for word in self.words.draw(2))
        number = (high << 32 | low) >> (64 - BITS)
        token = int(np.searchsorted(cumulative, cumulative[-1] * (number / 2**BITS), "right"))
        if self.temperature == 0:
            token = int(values.argmax())
        return token, float(weights[token] / cumulative[-1])


@dataclass
class Generation:
    """Tokens that a model gave, with their probabilities, and the time that it took."""

    tokens: list[int] = field(default_factory=list)
    probabilities: list[float] = field(default_factory=list)
    first_seconds: float = 0.0
    """Seconds until the first token."""
    further_seconds: float = 0.0


@torch.inference_mode()
def generate(
    way: type[Decoder],
    model: Classifier,
    prompt: Sequence[int],
    *,
    count: int,
    temperature: float,
    seed: int,
    emit: Callable[[int], bool] = lambda token: True,
    begin: Callable[[], object] = lambda: None,
) -> Generation:
    """Continue a prompt.

    Args:
        way: how the model computes.
        model: a causal classifier of positions, in evaluation mode.
        prompt: tokens, at least one.
        count: most tokens to draw, at least one.
        temperature: what logits are divided by; 0 for the likeliest tokens.
        seed: of the random numbers.
        emit: is given each token; returns whether to go on.
        begin: is called when the model has read the prompt.
    """
    found, sampler = Generation(), TokenSampler(temperature, seed)
    device = next(model.parameters()).device
    start = first = time.perf_counter()
    with cache_kernels():
        decoder = way(model, len(prompt) + count - 1)  # nothing follows the last token
        logits = decoder.take(torch.tensor(prompt, device=device))
        begin()
        while True:
            token, probability = sampler.draw(logits)
            found.tokens.append(token)
            found.probabilities.append(probability)
            if len(found.tokens) == 1:
                first = time.perf_counter()
            if not emit(token) or len(found.tokens) == count:
                break
            logits = decoder.take(torch.tensor([token], device=device))
    found.first_seconds = first - start
    found.further_seconds = time.perf_counter() - first
    return found
