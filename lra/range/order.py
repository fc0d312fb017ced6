"""How much a trained model uses the order of its inputs: its score on shuffled ones."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from lra.goals.scorer import Scorer, starts_of
from lra.tasks.base import Split
from lra.tasks.batch import Batch
from lra.train.evaluation import Evaluator

BLOCKS = (1, 4, 16, 64, 256)
"""Positions of the blocks that are shuffled."""
EXAMPLES = 500
"""Test examples whose inputs are shuffled."""


class Shuffled(Split):
    """Examples whose inputs are shuffled in blocks; labels of positions move with them."""

    def __init__(self, split: Split, block: int, *, of_positions: bool) -> None:
        self.split, self.block, self.of_positions = split, block, of_positions
        self.lengths = split.lengths

    def assemble(self, indices: np.ndarray) -> Batch:
        """See `Split.assemble`."""
        batch, lengths = self.split.batch(indices), self.lengths[indices]
        orders = map(self._draw_order, indices, lengths)
        order = torch.from_numpy(np.concatenate([*map(np.add, starts_of(lengths), orders)]))
        scored = None
        if self.of_positions:
            moved = torch.argsort(order)  # the new position of each old one
            scored = moved if batch.scored is None else moved[batch.scored]
        return replace(batch, inputs=batch.inputs[order], scored=scored)

    def _draw_order(self, index: int, length: int) -> np.ndarray:
        """Draw the old position of each new one: (length,), the same in every call."""
        blocks = np.arange(length) // self.block
        places = np.random.default_rng([self.block, index]).permutation(blocks[-1] + 1)
        return np.argsort(places[blocks], kind="stable")


def measure_order(evaluator: Evaluator, scorer: Scorer, split: Split) -> dict[int, float]:
    """Return the accuracy in percent, or else the mean loss, by the positions of shuffled blocks.

    The last block is as long as the longest example, so nothing is shuffled.
    """
    chosen = np.random.default_rng(0).permutation(len(split))[:EXAMPLES]
    longest = int(split.lengths[chosen].max())
    scores: dict[int, float] = {}
    for block in (*(block for block in BLOCKS if block < longest), longest):
        parts: list[Tensor] = []

        def keep(_: np.ndarray, logits: Tensor, batch: Batch, parts: list[Tensor] = parts) -> None:
            losses, is_right = scorer.losses(logits, batch.labels)
            counted = 100.0 * is_right if scorer.has_accuracy else losses
            parts.append(counted[scorer.goal.is_target(batch.labels)])

        shuffled = Shuffled(split, block, of_positions=scorer.goal.of_positions)
        evaluator.compute_logits(shuffled, keep, chosen)
        scores[block] = float(torch.cat(parts).mean())
    return scores
