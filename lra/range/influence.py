"""How far the inputs are that a trained model uses: what changes if they are replaced.

Where positions are scored, one input is replaced, and a change is the total variation of the class
probabilities at a later position. An example with a single output may depend on all inputs without
relating any. So two inputs are replaced, each alone and both together, and a change is their
interaction, f(x) - f(x_i) - f(x_j) + f(x_ij), which is zero for a sum over positions.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from lra.common.errors import UserError
from lra.goals.scorer import starts_of
from lra.statistics import Interval, bootstrap_interval
from lra.tasks.base import Split
from lra.tasks.batch import Batch
from lra.tasks.goals import ExampleClass, Goal
from lra.train.evaluation import Evaluator

EXAMPLES = 32
"""Test examples whose inputs are replaced."""
PAIRS = 128
"""Pairs of inputs in each octave of distances."""
MOST_POSITIONS = 2**20
"""About how many positions all copies with one replaced input have."""
ROUNDING = 1e-5
"""Changes below it count as zero. Other sequences in a batch and other inputs of an FFT round sums
in another way, so that even outputs that do not depend on an input change in single precision."""


@dataclass(frozen=True)
class Influence:
    """The changes of a model's outputs, for pairs of positions: (pairs,) each."""

    examples: np.ndarray
    distances: np.ndarray
    """In positions, from 1."""
    changes: np.ndarray
    """Total variation, from 0 to 1; or the interaction of the logits, as its root mean square over
    outputs, divided by that of the logits."""
    weights: np.ndarray
    """How many pairs each one stands for."""

    @property
    def mean_distance(self) -> float | None:
        """Mean distance, weighted by changes; None if nothing changes."""
        weights = self.weights * self.changes
        return float(np.average(self.distances, weights=weights)) if weights.any() else None

    @property
    def even_distance(self) -> float:
        """Mean distance if all changes were equal."""
        return float(np.average(self.distances, weights=self.weights))

    @property
    def interval(self) -> Interval:
        """The 95 % interval of the mean distance for other test examples, by bootstrap."""
        weights = self.weights * self.changes
        totals, sums = (np.bincount(self.examples, weights * x) for x in (1, self.distances))
        return bootstrap_interval(
            lambda drawn: sums[drawn].sum() / (totals[drawn].sum() or 1), len(totals), 1000
        )

    def by_octave(self) -> list[tuple[int, float, float]]:
        """List the shortest distance of each octave, its mean change and its share of changes."""
        octaves = np.log2(self.distances).astype(int)
        counts = np.bincount(octaves, self.weights)
        sums = np.bincount(octaves, self.weights * self.changes)
        every = np.flatnonzero(counts)
        counts, sums, total = counts[every], sums[every], sums.sum() or 1
        columns = 2**every, sums / counts, sums / total
        return [*zip(*(column.tolist() for column in columns), strict=True)]


class Replaced(Split):
    """Copies of examples, with some inputs of the next one of the examples at the same positions.

    Args:
        chosen: (examples,) indices in the split, the shortest first; the last one takes inputs of
            the one before.
        examples: (copies,) number in `chosen` of what each is a copy of.
        positions: (copies, replaced) of the inputs.
    """

    def __init__(
        self, split: Split, chosen: np.ndarray, examples: np.ndarray, positions: np.ndarray
    ) -> None:
        self.split, self.indices, self.positions = split, chosen[examples], positions
        self.lengths = split.lengths[self.indices]
        donors, _ = split.batch(np.append(chosen[1:], chosen[-2])).padded()
        self.inputs = donors[examples[:, None], positions]

    def assemble(self, indices: np.ndarray) -> Batch:
        """See `Split.assemble`."""
        batch = self.split.batch(self.indices[indices])
        inputs, starts = batch.inputs.clone(), starts_of(self.lengths[indices])
        inputs[starts[:, None] + self.positions[indices]] = self.inputs[indices]
        return replace(batch, inputs=inputs)


def measure_influence(evaluator: Evaluator, goal: Goal, split: Split) -> Influence:
    """Replace inputs of test examples, and measure what changes.

    Raises: UserError if the split has no pair of positions to measure, and for logits that are not
        finite.
    """
    chosen = np.random.default_rng(0).permutation(len(split))[:EXAMPLES]
    chosen = chosen[np.argsort(split.lengths[chosen], kind="stable")]
    if len(chosen) == 1 or split.lengths[chosen[-2]] == 1:
        raise UserError("expected a test set with two examples or more of two positions or more")
    # The last one takes inputs from the one before, which may be shorter.
    lengths = np.minimum(split.lengths[chosen], split.lengths[chosen[-2]])
    measure = _replace_one if goal.of_positions else _replace_two
    influence = measure(evaluator, goal, split, chosen, lengths)
    if not len(changes := influence.changes):
        raise UserError("expected a test set with positions that are scored after others")
    if not np.isfinite(changes).all():
        raise UserError("some logits are not finite, so that no change can be measured")
    return replace(influence, changes=np.where(changes < ROUNDING, 0.0, changes))


def _replace_one(
    evaluator: Evaluator, goal: Goal, split: Split, chosen: np.ndarray, lengths: np.ndarray
) -> Influence:
    """Replace single inputs, and compare the probabilities at all later scored positions."""
    every = np.repeat(np.arange(len(chosen)), lengths)
    copies = -(-MOST_POSITIONS // lengths[-1])
    drawn = np.random.default_rng(0).permutation(len(every))[:copies]
    examples, positions = every[drawn], drawn - starts_of(lengths)[every[drawn]]
    originals: dict[int, Tensor] = {}
    columns: list[np.ndarray] = []

    def keep(numbers: np.ndarray, logits: Tensor, batch: Batch) -> None:
        rows = logits.float().softmax(dim=-1).split(batch.label_counts.tolist())
        originals.update(zip(numbers.tolist(), rows, strict=True))

    def compare(numbers: np.ndarray, logits: Tensor, batch: Batch) -> None:
        counts = batch.label_counts.numpy()
        before = torch.cat([originals[example] for example in examples[numbers].tolist()])
        changes = (logits.float().softmax(dim=-1) - before).abs().sum(dim=-1) / 2
        scored = torch.arange(len(batch.inputs)) if batch.scored is None else batch.scored
        replaced = starts_of(batch.lengths[:, 0].numpy()) + positions[numbers]
        distances = scored.cpu().numpy() - replaced.repeat(counts)
        rows = np.stack([examples[numbers].repeat(counts), distances, changes.cpu().numpy()])
        columns.append(rows[:, (distances > 0) & goal.is_target(batch.labels).cpu().numpy()])

    evaluator.compute_logits(split, keep, chosen)
    evaluator.compute_logits(Replaced(split, chosen, examples, positions[:, None]), compare)
    of_example, distances, changes = np.concatenate(columns, axis=1)
    return Influence(of_example.astype(int), distances, changes, np.ones(len(changes)))


def _replace_two(
    evaluator: Evaluator, goal: Goal, split: Split, chosen: np.ndarray, lengths: np.ndarray
) -> Influence:
    """Replace pairs of inputs, each alone and both together, and compute the interactions."""
    examples, first, distances, weights = _draw_pairs(lengths)
    second = first + distances

    def compute(some: Split, indices: np.ndarray) -> np.ndarray:
        outputs = np.zeros((len(indices), goal.outputs))

        def keep(numbers: np.ndarray, logits: Tensor, _: Batch) -> None:
            outputs[numbers] = logits.float().cpu().numpy()

        evaluator.compute_logits(some, keep, indices)
        # What is added to the logits of all classes changes no probability.
        return outputs - outputs.mean(axis=1, keepdims=True) * isinstance(goal, ExampleClass)

    whole = compute(split, chosen)[examples]
    one, other, both = (
        compute(Replaced(split, chosen, examples, np.stack(pair, axis=1)), np.arange(len(examples)))
        for pair in ((first, first), (second, second), (first, second))
    )
    interactions = np.sqrt(np.square(whole - one - other + both).mean(axis=1))
    scale = np.sqrt(np.square(whole).mean()) or 1
    return Influence(examples, distances, interactions / scale, weights)


def _draw_pairs(lengths: np.ndarray) -> tuple[np.ndarray, ...]:
    """Draw examples, first positions, distances and weights of pairs evenly from each octave."""
    draw = np.random.default_rng(0)
    octaves: list[tuple[np.ndarray, ...]] = []
    for octave in range(int(lengths[-1] - 1).bit_length()):
        distances = np.arange(2**octave, min(2 ** (octave + 1), lengths[-1]))
        counts = np.maximum(lengths[:, None] - distances, 0).ravel()
        ends = np.cumsum(counts)
        drawn = np.searchsorted(ends, (np.arange(PAIRS) + 0.5) / PAIRS * ends[-1], side="right")
        examples, columns = np.divmod(drawn, len(distances))
        first, weights = draw.integers(counts[drawn]), np.full(PAIRS, ends[-1] / PAIRS)
        octaves.append((examples, first, distances[columns], weights))
    return tuple(map(np.concatenate, zip(*octaves, strict=True)))
