"""Scores of a split from what a model computed for its examples."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from lra.record.scores import PositionLoss, SegmentScore, TokenScores, unit_of
from tasks.base import Dataset

MOST_VALUES = 32
"""Most different values of a field by which losses are told apart."""


LARGEST_PERPLEXITY = 1e18
"""Perplexity that no record holds: such a model predicts nothing."""

SEGMENT = "segment"
"""Field of metadata whose values divide a split into segments, which have equal weight."""


def describe_data(dataset: Dataset) -> list[str]:
    """Write a line on each note, each trivial baseline and each bound of a data set."""
    unit = f"bits per {unit_of(dataset.splits['test'].text_bytes)}"
    return [
        *(f"{note}: {count:,}" for note, count in dataset.notes.items() if count),
        *(f"trivial baseline, {name}: {accuracy:.2f} % of the test set"
          for name, accuracy in dataset.baselines.items()),
        *(f"trivial baseline, {name}: {bits:.3f} {unit}"
          for name, bits in dataset.baseline_bits.items()),
        *(f"lower bound, {name}: {bits:.3f} {unit}" for name, bits in dataset.lowest_bits.items()),
    ]  # fmt: skip


def perplexity_of(loss: float) -> float | None:
    """Return the perplexity of a mean loss in nats; None if it is not finite, or absurd."""
    return math.exp(loss) if loss < math.log(LARGEST_PERPLEXITY) else None


def bits_per_byte_of(loss: float, targets: int, text_bytes: int | None) -> float | None:
    """Return how many bits a byte of text takes.

    Args:
        loss: mean over the targets, in nats.
        targets: how many there are.
        text_bytes: bytes of the text that they stand for; None where they are no text.
    """
    if text_bytes is None or not math.isfinite(loss):
        return None
    return loss * targets / (math.log(2) * text_bytes)


def bin_of(positions: np.ndarray) -> np.ndarray:
    """Number the ranges that positions are in, which double: 0, 1, 2-3, 4-7 and so on."""
    return np.frexp(positions)[1]


def bin_range(number: int) -> tuple[int, int]:
    """Return the first and the last position of a range; see `bin_of`."""
    return (0, 0) if number == 0 else (2 ** (number - 1), 2**number - 1)


def position_losses(
    losses: np.ndarray,
    targets: np.ndarray,
    fields: dict[str, np.ndarray],
    ideal: np.ndarray | None = None,
) -> list[PositionLoss]:
    """Summarise losses by position, over all windows and by their metadata.

    Args:
        losses: (windows, ranges) sums in nats, see `bin_of`.
        targets: (windows, ranges) numbers of targets.
        fields: metadata of the windows, (windows,) each; fields of more than MOST_VALUES
            different values are left out.
        ideal: (windows, ranges) losses of the ideal predictor, as sums in nats; None where it is
            not known.
    """
    chosen: list[tuple[str, str, Any]] = [("", "", slice(None))]
    for name, column in fields.items():
        values = np.unique(column)
        if len(values) <= MOST_VALUES:
            chosen += [(name, str(value), column == value) for value in values]
    return [
        PositionLoss(
            field=field,
            value=value,
            first=bin_range(number)[0],
            last=bin_range(number)[1],
            targets=int(count),
            loss=_mean(losses[rows, number], count),
            ideal=None if ideal is None else _mean(ideal[rows, number], count),
        )
        for field, value, rows in chosen
        for number, count in enumerate(targets[rows].sum(axis=0).tolist())
        if count
    ]


def _mean(sums: np.ndarray, count: float) -> float | None:
    """Average losses over so many targets; None if that is not finite."""
    mean = float(sums.sum()) / count
    return mean if math.isfinite(mean) else None


def token_scores(outcomes: np.ndarray, metadata: Mapping[str, np.ndarray]) -> TokenScores:
    """Score the examples of a split, segment by segment.

    Args:
        outcomes: (examples, 3) labelled positions, those predicted right, and the first wrong one.
        metadata: fields of the examples, of which "segment" divides them.
    """
    names = metadata.get(SEGMENT, np.full(len(outcomes), "")).astype(str)
    found: list[SegmentScore] = []
    for name in dict.fromkeys(names.tolist()):
        targets, correct, _ = outcomes[names == name].T
        found.append(
            SegmentScore(
                name=name,
                examples=len(targets),
                correct_examples=int((targets == correct).sum()),
                targets=int(targets.sum()),
                correct=int(correct.sum()),
            )
        )
    return TokenScores(segments=found)
