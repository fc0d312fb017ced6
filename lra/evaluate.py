"""Evaluation: every example once, in batches of like length."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from tqdm import tqdm

from lra.world import ALONE, World
from models._shared_kernels import shared_kernels
from tasks.base import Split
from tasks.batching import evaluation_batches
from tasks.progress import is_live

NO_GUESS = -1


@dataclass(frozen=True)
class Score:
    """Sums over a split."""

    correct: int
    total: int
    loss: float
    """Mean cross-entropy, in nats; not finite where logits are not."""
    guesses: np.ndarray = field(compare=False)
    """(examples,) class that the model gives each example, in the order of the split; NO_GUESS,
    which is right nowhere, where its logits are not finite."""

    @property
    def accuracy(self) -> float:
        """Percent."""
        return 100.0 * self.correct / self.total


def evaluate(
    model: nn.Module,
    split: Split,
    *,
    batch_size: int,
    device: torch.device,
    autocast: torch.autocast,
    check: Callable[[], None],
    title: str,
    world: World = ALONE,
) -> Score:
    """Score a model on a split, in evaluation mode, leaving its mode as it was.

    Args:
        check: called before every batch; what it raises ends the evaluation.
        world: the processes that share the batches out; each gets the whole score.
        title: of the progress bar, which shows on a terminal only.
    """
    was_training = model.training
    model.eval()
    guesses = np.full(len(split), NO_GUESS, dtype=np.int64)
    loss = 0.0
    try:
        with torch.inference_mode(), shared_kernels():
            # The longest first: kernels made for them serve all, and what does not fit fails.
            batches = evaluation_batches(split.lengths, batch_size)[::-1][world.rank :: world.size]
            for indices in tqdm(batches, desc=title, leave=False, disable=not is_live()):
                check()
                batch = split.batch(indices).to(device)
                with autocast:
                    logits = model(batch.values, batch.lengths)
                logits = logits.float()
                loss += float(functional.cross_entropy(logits, batch.labels, reduction="sum"))
                is_sound = logits.isfinite().all(dim=-1)
                found = torch.where(is_sound, logits.argmax(dim=-1), NO_GUESS)
                guesses[indices] = found.cpu().numpy()
    finally:
        model.train(was_training)
    loss, guesses = world.total(loss), _merged(guesses, world)
    correct = int((guesses == split.labels).sum())
    return Score(correct, len(split), loss / len(split), guesses)


def _merged(guesses: np.ndarray, world: World) -> np.ndarray:
    """Put together what processes guessed: (examples,), NO_GUESS where another did."""
    if world.size == 1:
        return guesses
    return world.sum(torch.from_numpy(guesses - NO_GUESS).to(world.device)).cpu().numpy() + NO_GUESS


if __name__ == "__main__":
    from lra.transfer_command import main

    sys.exit(main())
