"""Losses of targets that are positions: their units, and by where in its window a target stands."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from pydantic import Field

from lra.record.schema import Amount, Count, PositiveCount, Record, ShortText
from tasks.base import Dataset

MOST_VALUES = 32
"""Most different values of a field by which losses are told apart."""


LARGEST_PERPLEXITY = 1e18
"""Perplexity that no record holds: such a model predicts nothing."""


class PositionLoss(Record):
    """The mean loss of targets at a range of positions of their windows."""

    field: ShortText = ""
    """A field of metadata by which the windows are told apart; empty: all windows."""
    value: ShortText = ""
    """What the field is in these windows."""
    first: Count
    """First position of the range, 0-based."""
    last: Count
    """Last position of the range."""
    targets: PositiveCount
    loss: Amount | None
    """Mean loss in nats; null if it is not finite."""
    ideal: Amount | None = None
    """Mean loss of the best possible predictor; null where the law of the data is not known."""


class PositionScores(Record):
    """What a record holds, beside accuracies, where targets are positions; null is not measured."""

    val_loss: Amount | None = None
    """Mean loss in nats on the validation set, at the best step."""
    loss: Amount | None = None
    """Mean loss in nats on the test set; null also if it is not finite, as for the next two."""
    bits_per_byte: Amount | None = None
    """Bits that the test targets take, over the bytes of text that they stand for."""
    perplexity: Amount | None = None
    """Exponential of the mean test loss."""
    text_bytes: PositiveCount | None = None
    """Bytes of the text that the test targets stand for; null where they are no text."""
    baseline_bits: dict[ShortText, Amount] = Field(default_factory=dict)
    """What trivial baselines take, by name: bits per byte of text or, without text, per target."""
    lowest_bits: dict[ShortText, Amount] = Field(default_factory=dict)
    """What no model is below on average, by name, in the same unit, where the law is known."""
    by_position: list[PositionLoss] = Field(default_factory=list)
    """Test losses by where in their windows the targets stand."""

    @property
    def bits(self) -> float | None:
        """Bits of the test set: per byte of text or, without text, per target."""
        if self.loss is None or self.text_bytes is not None:
            return self.bits_per_byte
        return self.loss / math.log(2)

    @property
    def text(self) -> str:
        """Bits and perplexity of the test set, as commands print them."""
        if self.bits is None:
            return "loss not finite"
        text = f"{self.bits:.3f} bits per {unit_of(self.text_bytes)}"
        return text if self.perplexity is None else f"{text}, perplexity {self.perplexity:.4g}"


def unit_of(text_bytes: int | None) -> str:
    """Name what bits are counted for: a byte, or a token of what is no text."""
    return "token" if text_bytes is None else "byte"


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
