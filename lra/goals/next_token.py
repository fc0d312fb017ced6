"""The next token at each position, or a hidden one: bits, perplexity, and losses by position."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

import numpy as np

from lra.goals.scorer import Add, Output, Score, Scorer, classification_losses, starts_of
from lra.record.scores import PositionLoss, PositionScores

if TYPE_CHECKING:
    from torch import Tensor

    from lra.config.schema import RunConfig
    from tasks.base import Batch, Dataset, Split

MOST_VALUES = 32
"""Most different values of a field by which losses are told apart."""
LARGEST_PERPLEXITY = 1e18
"""Perplexity that no record holds: such a model predicts nothing."""


class TokenScorer(Scorer):
    """Cross-entropy of tokens, by which models are ranked."""

    needs_finite_loss = True

    def losses(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """See `Scorer.losses`."""
        return classification_losses(logits, labels)

    def keep(self, logits: Tensor, batch: Batch) -> tuple[Tensor, ...]:
        """See `Scorer.keep`: losses, whether predictions are right, and what is a target."""
        loss, is_right = self.losses(logits, batch.labels)
        return loss, is_right & loss.isfinite(), self.goal.is_target(batch.labels)

    def score(self, outputs: Sequence[Output], split: Split, add: Add) -> Score:
        """See `Scorer.score`: adds up losses by how far into their windows positions are."""
        info = self.info
        shape = len(split), int(bin_of(np.array(info.towers * info.max_length))) + 1
        losses, targets, ideal = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        own_correct = own_non_finite = 0
        for one in outputs:
            loss, is_right, is_target = (tensor.numpy() for tensor in one.kept)
            own_correct += int(is_right.sum())
            own_non_finite += int((~np.isfinite(loss)).sum())
            place = np.arange(len(loss)) - starts_of(one.lengths).repeat(one.lengths)
            cells = (np.repeat(one.indices, one.lengths), bin_of(place))
            np.add.at(losses, cells, loss)
            np.add.at(targets, cells, is_target)
            if split.ideal_bits is not None:
                nats = math.log(2) * split.ideal_bits[one.indices].astype(np.float64)
                np.add.at(ideal, cells, nats.ravel())
        losses, targets, ideal = map(add, (losses, targets, ideal))
        correct, non_finite = map(round, add(np.array([own_correct, own_non_finite], float)))
        total, known = int(targets.sum()), None if split.ideal_bits is None else ideal
        loss = float(losses.sum()) / total
        accuracy, bits = 100.0 * correct / total, loss / math.log(2)
        by_position = average_by_position(losses, targets, split.metadata(), known)
        return Score(
            total=total,
            loss=loss,
            non_finite=non_finite,
            merit=100.0 * math.exp(-loss),
            numbers={"val_accuracy": accuracy, "val_loss": loss, "val_bits": bits},
            text=f"accuracy {accuracy:.2f} %, loss {loss:.3f}, {bits:.3f} bits per token",
            result={"accuracy": accuracy, "correct": correct, "by_position": by_position},
        )

    def describe(
        self, score: Score | None, dataset: Dataset, best: Mapping[str, float]
    ) -> dict[str, Any]:
        """See `Scorer.describe`."""
        text_bytes = dataset.splits["test"].text_bytes
        finite = score if score and math.isfinite(score.loss) else None
        bits = finite and finite.loss * finite.total / math.log(2)
        positions = PositionScores(
            val_loss=best.get("val_loss"),
            loss=finite and finite.loss,
            bits_per_byte=bits and text_bytes and bits / text_bytes,
            perplexity=finite and perplexity_of(finite.loss),
            text_bytes=text_bytes,
            baseline_bits=dict(dataset.baseline_bits),
            lowest_bits=dict(dataset.lowest_bits),
            by_position=[] if score is None else score.result["by_position"],
        )
        return {**super().describe(score, dataset, best), "positions": positions}

    def contradictions(self, config: RunConfig, given: Set[str]) -> Iterator[str]:
        """See `Scorer.contradictions`."""
        yield from super().contradictions(config, given)
        asks = f"task {config.task_name} predicts {self.goal.what}, and"
        yield from list_views_of_the_next(config, asks, needs_flat=True)


def list_views_of_the_next(config: RunConfig, asks: str, *, needs_flat: bool) -> Iterator[str]:
    """List the settings with which positions would see the next one.

    Args:
        asks: what must not be so, for the messages.
        needs_flat: whether model.axes must be flat.
    """
    model = config.model
    against_next = {
        "model.causal is false": not model.causal,
        "model.norm is batch, which averages over positions": model.norm == "batch",
        f"model.axes is {model.axes}": needs_flat and model.axes != "flat",
    }
    for reason, is_so in against_next.items():
        if is_so:
            yield (
                f"{asks} {reason}: positions would see the next one; use --set "
                f"model.causal=true, model.norm=layer and model.axes=flat"
            )


def bin_of(positions: np.ndarray) -> np.ndarray:
    """Number the ranges that positions are in, which double: 0, 1, 2-3, 4-7 and so on."""
    return np.frexp(positions)[1]


def bin_range(number: int) -> tuple[int, int]:
    """Return the first and the last position of a range; see `bin_of`."""
    return 2**number // 2, 2**number - 1


def average_by_position(
    losses: np.ndarray,
    targets: np.ndarray,
    fields: Mapping[str, np.ndarray],
    ideal: np.ndarray | None,
) -> list[PositionLoss]:
    """Summarise losses by position, over all windows and by their metadata.

    Args:
        losses: (windows, ranges) sums in nats, see `bin_of`.
        targets: (windows, ranges) numbers of targets.
        fields: metadata of the windows, (windows,) each; fields of more than MOST_VALUES
            different values are left out.
        ideal: losses of the ideal predictor, like `losses`; None where it is not known.
    """
    chosen: list[tuple[str, str, Any]] = [("", "", slice(None))]
    for name, column in fields.items():
        values = np.unique(column)
        if len(values) <= MOST_VALUES:
            chosen += [(name, str(value), column == value) for value in values]

    def mean(sums: np.ndarray, rows: Any, number: int, count: float) -> float | None:
        found = float(sums[rows, number].sum()) / count
        return found if math.isfinite(found) else None

    return [
        PositionLoss(
            field=name,
            value=value,
            first=bin_range(number)[0],
            last=bin_range(number)[1],
            targets=int(count),
            loss=mean(losses, rows, number, count),
            ideal=None if ideal is None else mean(ideal, rows, number, count),
        )
        for name, value, rows in chosen
        for number, count in enumerate(targets[rows].sum(axis=0).tolist())
        if count
    ]


def perplexity_of(loss: float) -> float | None:
    """Return the perplexity of a mean loss in nats; None if it is not finite, or absurd."""
    return math.exp(loss) if loss < math.log(LARGEST_PERPLEXITY) else None
