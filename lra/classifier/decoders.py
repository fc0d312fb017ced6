"""Decoding with a trained language model: position by position, or by full passes."""

import functools
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from lra.classifier.classifier import Classifier
from lra.classifier.packing import Packing
from lra.models.base import GatedRecurrence, Recurrence, RecurrentMixer


def has_recurrence(model: Classifier) -> bool:
    """Whether all mixers of a causal classifier can process one position at a time."""
    return all(isinstance(block.mixer, RecurrentMixer) for block in model.blocks)


class RecurrentDecoder:
    """Decoding by the recurrences of the mixers: each position has the same cost.

    The first positions go through each block together.

    Args:
        model: a causal classifier of positions, in evaluation mode.
        length: total number of positions that it will read.
    Raises: ValueError for a mixer that has no recurrence with its options.
    """

    def __init__(self, model: Classifier, length: int) -> None:
        self.model = model
        self.recurrences: list[Recurrence] = []
        for block in model.blocks:
            assert isinstance(block.mixer, RecurrentMixer)
            self.recurrences.append(block.mixer.recurrence(length))
        self.states = [recurrence.initial_state(1) for recurrence in self.recurrences]
        self.num_positions = 0

    def take(self, tokens: Tensor) -> Tensor:
        """Read the next positions, and return the logits of the token after them.

        Args:
            tokens: (positions,) int64, at least one.
        Returns: (classes,).
        """
        is_together = self.num_positions == 0 and len(tokens) > 1
        x = tokens
        for part in [tokens] if is_together else tokens.split(1):
            x = self._read(part, self._prefill if is_together else self._step)
        if self.model.norm is not None:
            x = self.model.norm(x)
        return self.model.output(x)[0]

    def _read(self, tokens: Tensor, mix: Callable[[int, Tensor], Tensor]) -> Tensor:
        """Read positions together; return the last block's output at the last one, (1, dim)."""
        packing = Packing(torch.tensor([len(tokens)]), tokens.device)
        embedding = self.model.embedding
        position = torch.arange(len(tokens), device=tokens.device) + self.num_positions
        x = embedding.locate(embedding.encode(tokens), position)
        for layer, block in enumerate(self.model.blocks):
            x = block.around(functools.partial(mix, layer), x, packing)
        self.num_positions += len(tokens)
        return x[-1:]

    def _prefill(self, layer: int, x: Tensor) -> Tensor:
        mixed, self.states[layer] = self.recurrences[layer].prefill(x[None])
        return mixed[0]

    def _step(self, layer: int, x: Tensor) -> Tensor:
        recurrence = self.recurrences[layer]
        is_gated = isinstance(recurrence, GatedRecurrence)
        step = recurrence.value_and_gate if is_gated else recurrence.step
        mixed, self.states[layer] = step(x, self.states[layer])
        return mixed


class FullPassDecoder:
    """Decoding by full passes: each new token computes all positions so far again.

    The first pass has the total number of positions, so that `cache_kernels` computes kernels over
    lags once. Beyond the training length kernels may depend on the length of the sequence, so all
    passes have the total number there.
    """

    def __init__(self, model: Classifier, length: int) -> None:
        self.model = model
        self.length = length
        self.tokens: Tensor | None = None

    def take(self, tokens: Tensor) -> Tensor:
        """See `RecurrentDecoder.take`."""
        is_whole = self.tokens is None or self.length > self.model.trained_length
        self.tokens = tokens if self.tokens is None else torch.cat([self.tokens, tokens])
        count = len(self.tokens)
        positions = self.length if is_whole else count
        inputs = functional.pad(self.tokens, (0, positions - count))
        return self.model(inputs, torch.tensor([[positions]]))[count - 1]
