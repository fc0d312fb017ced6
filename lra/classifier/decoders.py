"""Decoding with a trained language model: position by position, or by full passes."""

from __future__ import annotations

import abc
import contextlib
import functools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional

from common.progress import progress
from lra.classifier.block import Block
from lra.classifier.classifier import Classifier
from lra.classifier.packing import Packing
from models.base import GatedRecurrence, Recurrence, RecurrentMixer

LONG_PROMPT = 1000
"""Least length of a prompt whose progress is shown."""


def has_recurrence(model: Classifier) -> bool:
    """Whether all mixers of a causal classifier can process one position at a time."""
    return all(isinstance(block.mixer, RecurrentMixer) for block in _blocks(model))


def count_state(model: Classifier, length: int) -> int | None:
    """Count the real numbers that a sequence carries from one position to the next, in all layers.

    Args:
        model: a classifier.
        length: positions of the sequence.
    Returns: the number; None for a model that is not causal, or without a recurrence.
    """
    mixers = [block.mixer for block in _blocks(model)]
    recurrent = [m for m in mixers if isinstance(m, RecurrentMixer) and m.context.causal]
    return sum(m.state_size(length) for m in recurrent) if recurrent == mixers else None


def _blocks(model: Classifier) -> list[Block]:
    return [block for block in model.blocks if isinstance(block, Block)]


@contextlib.contextmanager
def _show_prompt_progress(
    positions: int, *, total: int, unit: str
) -> Iterator[Callable[..., None]]:
    """Show the progress of reading a long prompt.

    Yields: a function that counts one more unit, whatever its arguments.
    """
    if positions < LONG_PROMPT:
        yield lambda *_: None
        return
    with progress(f"reading the prompt, {positions:,} positions", total=total, unit=unit) as bar:

        def advance(*_: object) -> None:  # a hook of a module: it must return None
            bar.update()

        yield advance


class Decoder(abc.ABC):
    """A classifier and the positions that it has read so far.

    Args:
        model: a causal classifier of positions, in evaluation mode.
        length: total number of positions that it will read.
    """

    def __init__(self, model: Classifier, length: int) -> None:
        self.model = model
        self.length = length

    @abc.abstractmethod
    def take(self, tokens: Tensor) -> Tensor:
        """Read the next positions.

        Args:
            tokens: (positions,) int64, at least one.
        Returns: logits of the token after the last one, (classes,).
        """


class RecurrentDecoder(Decoder):
    """Decoding by the recurrences of the mixers: each position has the same cost.

    The first positions go through each block together.

    Raises: ValueError for a mixer that has no recurrence with its options.
    """

    def __init__(self, model: Classifier, length: int) -> None:
        super().__init__(model, length)
        self.recurrences: list[Recurrence] = []
        for block in _blocks(model):
            assert isinstance(block.mixer, RecurrentMixer)
            self.recurrences.append(block.mixer.recurrence(length))
        self.states = [recurrence.initial_state(1) for recurrence in self.recurrences]
        self.num_positions = 0

    def take(self, tokens: Tensor) -> Tensor:
        """See `Decoder.take`."""
        is_prompt = self.num_positions == 0 and len(tokens) > 1
        x = self._prefill(tokens) if is_prompt else self._walk(tokens)
        if self.model.norm is not None:
            x = self.model.norm(x)
        return self.model.output(x)[0]

    def _prefill(self, tokens: Tensor) -> Tensor:
        """Read the first positions together; `_walk` reads them one by one."""
        blocks = _blocks(self.model)
        count = len(tokens)
        packing = Packing(torch.tensor([count]), tokens.device)
        embedding = self.model.embedding
        positions = torch.arange(count, device=tokens.device)
        x = embedding.locate(embedding.encode(tokens), positions)
        with _show_prompt_progress(count, total=len(blocks), unit="blocks") as advance:
            for layer, block in enumerate(blocks):
                x = block.around(functools.partial(self._mix_prefix, layer), x, packing)
                advance()
        self.num_positions = count
        return x[-1:]

    def _mix_prefix(self, layer: int, x: Tensor) -> Tensor:
        mixed, self.states[layer] = self.recurrences[layer].prefill(x[None])
        return mixed[0]

    def _walk(self, tokens: Tensor) -> Tensor:
        """Read positions one by one; return the last block's output at the last one, (1, dim)."""
        single = Packing(torch.ones(1, dtype=torch.int64), tokens.device)
        x = tokens
        with _show_prompt_progress(len(tokens), total=len(tokens), unit="positions") as advance:
            for token in tokens.split(1):
                x = self._step(token, single)
                advance()
        return x

    def _step(self, token: Tensor, single: Packing) -> Tensor:
        """Read a position: token (1,) -> output of the last block, (1, dim)."""
        embedding = self.model.embedding
        x = embedding.locate(embedding.encode(token), torch.full_like(token, self.num_positions))
        for layer, block in enumerate(_blocks(self.model)):
            x = block.around(functools.partial(self._mix, layer), x, single)
        self.num_positions += 1
        return x

    def _mix(self, layer: int, x: Tensor) -> Tensor:
        recurrence = self.recurrences[layer]
        is_gated = isinstance(recurrence, GatedRecurrence)
        step = recurrence.value_and_gate if is_gated else recurrence.step
        mixed, self.states[layer] = step(x, self.states[layer])
        return mixed


class FullPassDecoder(Decoder):
    """Decoding by full passes: each new token computes all positions so far again.

    The first pass has the total number of positions, so that `cache_kernels` computes kernels over
    lags once. Beyond the training length kernels may depend on the length of the sequence, so all
    passes have the total number there.
    """

    def __init__(self, model: Classifier, length: int) -> None:
        super().__init__(model, length)
        self.tokens: Tensor | None = None

    def take(self, tokens: Tensor) -> Tensor:
        """See `Decoder.take`."""
        is_first = self.tokens is None
        self.tokens = tokens if self.tokens is None else torch.cat([self.tokens, tokens])
        count = len(self.tokens)
        is_whole = is_first or self.length > self.model.trained_length
        positions = self.length if is_whole else count
        inputs = functional.pad(self.tokens, (0, positions - count))
        # For single tokens the growing text is progress enough.
        blocks = _blocks(self.model) if len(tokens) > 1 else []
        with _show_prompt_progress(len(tokens), total=len(blocks), unit="blocks") as advance:
            hooks = [block.register_forward_hook(advance) for block in blocks]
            try:
                logits = self.model(inputs, torch.tensor([[positions]]))
            finally:
                for hook in hooks:
                    hook.remove()
        return logits[count - 1]
