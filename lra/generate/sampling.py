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
from tasks.random_words import RandomWords

BITS = 52
"""Bits of a random number below 1: so many that its product with a sum stays below the sum."""


class TokenSampler:
    """Draws tokens by their logits, with one random number each: equal seeds draw alike.

    The number goes through the inverse of the cumulative distribution, in double precision, so
    that logits which differ by rounding hardly ever give another token.

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
    """Seconds until the first token: for the prompt."""
    further_seconds: float = 0.0
    """Seconds for all further tokens."""

    @property
    def tokens_per_second(self) -> float | None:
        """Speed after the first token; None if there is no further one."""
        further = len(self.tokens) - 1
        return further / self.further_seconds if further > 0 and self.further_seconds else None

    def first_difference(self, other: Generation) -> int | None:
        """Return the first place where the tokens of another differ; None if there is none."""
        pairs = zip(self.tokens, other.tokens, strict=False)
        return next((place for place, (a, b) in enumerate(pairs) if a != b), None)


@dataclass(frozen=True)
class PromptState:
    """A model that has read a prompt."""

    decoder: Decoder
    logits: Tensor
    """Logits of what comes after the prompt: (tokens,)."""
    seconds: float
    """Time that the reading took."""


@torch.inference_mode()
def read_prompt(
    way: type[Decoder], model: Classifier, prompt: Sequence[int], *, count: int
) -> PromptState:
    """Read a prompt, within the same `cache_kernels` in which `generate` then goes on from it.

    Args:
        way: by which the model computes.
        model: a causal classifier of positions, in evaluation mode.
        prompt: tokens, at least one.
        count: most tokens that will be drawn, at least one.
    """
    start = time.perf_counter()
    decoder = way(model, count_positions(len(prompt), count))
    logits = decoder.take(torch.tensor(prompt, device=next(model.parameters()).device))
    return PromptState(decoder, logits, time.perf_counter() - start)


@torch.inference_mode()
def generate(
    read: PromptState, *, count: int, sampler: TokenSampler, emit: Callable[[int], bool]
) -> Generation:
    """Go on from a prompt.

    Args:
        read: the prompt.
        count: most tokens to draw, at least one.
        sampler: draws them.
        emit: is given each token; returns whether to go on.
    """
    found = Generation()
    logits = read.logits
    start = first = time.perf_counter()
    while len(found.tokens) < count:
        if found.tokens:
            logits = read.decoder.take(torch.tensor(found.tokens[-1:], device=logits.device))
        token, probability = sampler.draw(logits)
        found.tokens.append(token)
        found.probabilities.append(probability)
        if len(found.tokens) == 1:
            first = time.perf_counter()
        if not emit(token):
            break
    found.first_seconds = read.seconds + first - start
    found.further_seconds = time.perf_counter() - first
    return found


def count_positions(prompt: int, count: int) -> int:
    """Return the positions that so many tokens after a prompt need: nothing follows the last."""
    return prompt + count - 1
