"""The next token at each position, or a hidden one: bits, perplexity, and losses by position."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field

from lra.goals.measure import ACCURACY, Measure
from lra.goals.result import AccuracyResult
from lra.goals.scorer import Add, Output, Score, Scorer, starts_of
from lra.runtime.tables import rounded
from lra.schema import Amount, Count, PositiveCount, Record, ShortText

if TYPE_CHECKING:
    from torch import Tensor

    from lra.config.schema import RunConfig
    from lra.tasks.base import Batch, Dataset, Split

MOST_VALUES = 32
"""Most different values of a field by which losses are told apart."""
LARGEST_PERPLEXITY = 1e18
"""Perplexity that no record holds: such a model predicts nothing."""


class PositionLoss(Record):
    """The mean loss of targets at a range of positions of their windows."""

    field: ShortText = ""
    """Field of metadata whose `value` these windows have; empty: all windows."""
    value: ShortText = ""
    first: Count
    """First position of the range, 0-based."""
    last: Count
    targets: PositiveCount
    loss: Amount | None
    """Mean loss in nats; null if it is not finite."""
    ideal: Amount | None = None
    """Mean loss of the best possible predictor; null where the law of the data is not known."""


class NextTokenResult(AccuracyResult):
    """What a model needs for the next token: a loss, of which the accuracy is no good measure."""

    goal: Literal["next token"] = "next token"
    val_loss: Amount | None = None
    """Mean loss in nats on the validation set, at the best step."""
    loss: Amount | None = None
    """Mean loss in nats on the test set; null also if it is not finite, as for the next two."""
    bits_per_byte: Amount | None = None
    perplexity: Amount | None = None
    text_bytes: PositiveCount | None = None
    """Bytes of the text that the test targets stand for; null where they are no text."""
    baseline_bits: dict[ShortText, Amount] = Field(default_factory=dict)
    """What trivial baselines take, by name: bits per byte of text or, without text, per target."""
    lowest_bits: dict[ShortText, Amount] = Field(default_factory=dict)
    """What no model is below on average, by name, in the same unit, where the law is known."""
    by_position: list[PositionLoss] = Field(default_factory=list)
    """Test losses by where in their windows the targets stand."""

    prefix = "positions."
    targets = "positions"
    is_accuracy = False
    compared = ""
    of_what = "next tokens of"
    validation = Measure(
        "validation bits per token",
        lambda result: result.val_loss and result.val_loss / math.log(2), 3, lowest_is_best=True,
    )  # fmt: skip
    remark = "Accuracy is that of the next token, and minutes are those of training."

    @property
    def measures(self) -> list[Measure]:
        """See `Result.measures`."""
        bits = Measure(
            self.unit, lambda result: result.bits, 3, lowest_is_best=True, beneath=_list_beneath
        )
        return [bits, PERPLEXITY]

    @property
    def more_measures(self) -> list[Measure]:
        """See `Result.more_measures`: accuracy, validation loss, and distances to bounds."""
        return [NEXT_TOKEN, VAL_LOSS, *map(_distance_to, self.lowest_bits)]

    @property
    def bits(self) -> float | None:
        """Bits of the test set: per byte of text or, without text, per target."""
        if self.loss is None or self.text_bytes is not None:
            return self.bits_per_byte
        return self.loss / math.log(2)

    @property
    def unit(self) -> str:
        """See `Result.unit`."""
        return f"bits per {'token' if self.text_bytes is None else 'byte'}"

    @property
    def text(self) -> str:
        """See `Result.text`: bits, perplexity and accuracy."""
        if self.test_accuracy is None:
            return ""
        loss = "loss not finite" if self.bits is None else f"{self.bits:.3f} {self.unit}"
        perplexity = "" if self.perplexity is None else f", perplexity {self.perplexity:.4g}"
        return f"{loss}{perplexity} ({super().text})"

    @property
    def validation_text(self) -> str:
        """See `Result.validation_text`."""
        return f"{self.validation.text(self.validation.of(self))} bits per token"

    def describe_test(self) -> list[str]:
        """See `Result.describe_test`."""
        if self.bits is None:
            return ["the test loss is not finite"]
        return [f"{rounded(self.bits, 3)} {self.unit}", "on the test set"]

    def describe_more(self) -> list[str]:
        """See `Result.describe_more`."""
        if self.test_accuracy is None:
            return []
        right = f"{rounded(self.test_accuracy, 2)} % ({self.test_correct:,} of {self.test_total:,})"
        known = [] if self.perplexity is None else [f"perplexity {self.perplexity:.4g} per token"]
        return [*known, f"next token right: {right}"]

    @property
    def best_possible(self) -> tuple[str, float] | None:
        """See `Result.best_possible`."""
        return max(self.lowest_bits.items(), key=lambda bound: bound[1], default=None)

    @property
    def trivial_scores(self) -> Mapping[str, float]:
        """See `Result.trivial_scores`: bits."""
        return self.baseline_bits


PERPLEXITY = Measure("perplexity", lambda result: result.perplexity, lowest_is_best=True)
NEXT_TOKEN = Measure("accuracy, %", ACCURACY.of, beneath=ACCURACY.beneath)
"""Accuracy of next tokens, which is no measure of chance."""
VAL_LOSS = Measure("validation loss, nats", lambda result: result.val_loss, 3, lowest_is_best=True)


def _list_beneath(result: NextTokenResult) -> Mapping[str, float]:
    trivial = {f"trivial baseline: {name}": bits for name, bits in result.baseline_bits.items()}
    return trivial | {f"lower bound: {name}": bits for name, bits in result.lowest_bits.items()}


def _distance_to(bound: str) -> Measure:
    """Measure how far bits are above a bound."""

    def distance(result: NextTokenResult) -> float | None:
        if result.bits is None or bound not in result.lowest_bits:
            return None
        return result.bits - result.lowest_bits[bound]

    return Measure(f"above {bound}", distance, 3, lowest_is_best=True)


class TokenScorer(Scorer):
    """Cross-entropy of tokens, by which models are ranked."""

    result = NextTokenResult
    needs_finite_loss = True

    def keep(self, logits: Tensor, batch: Batch) -> tuple[Tensor, ...]:
        """See `Scorer.keep`: losses, whether predictions are right, and what is a target."""
        loss, is_right = self.losses(logits, batch.labels)
        return loss, is_right & loss.isfinite(), self.goal.is_target(batch.labels)

    def score(self, outputs: Sequence[Output], split: Split, add: Add) -> Score:
        """See `Scorer.score`: adds up losses by how far into their windows positions are."""
        ranges = (self.info.towers * self.info.max_length).bit_length() + 1  # see `bin_of`
        losses, targets, ideal = np.zeros((3, len(split), ranges))
        counts = np.zeros(2)
        for output in outputs:
            loss, is_right, is_target = (tensor.numpy() for tensor in output.kept)
            counts += is_right.sum(), (~np.isfinite(loss)).sum()
            positions = np.arange(len(loss)) - starts_of(output.lengths).repeat(output.lengths)
            cells = (np.repeat(output.indices, output.lengths), bin_of(positions))
            np.add.at(losses, cells, loss)
            np.add.at(targets, cells, is_target)
            if split.ideal_bits is not None:
                nats = math.log(2) * split.ideal_bits[output.indices].astype(np.float64)
                np.add.at(ideal, cells, nats.ravel())
        losses, targets, ideal, counts = map(add, (losses, targets, ideal, counts))
        correct, non_finite = map(round, counts.tolist())
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
            result={"test_accuracy": accuracy, "test_correct": correct, "by_position": by_position},
        )

    def _list_facts(self, score: Score | None, dataset: Dataset) -> dict[str, Any]:
        text_bytes = dataset.splits["test"].text_bytes
        finite = score if score and math.isfinite(score.loss) else None
        bits = finite and finite.loss * finite.total / math.log(2)
        return {
            **super()._list_facts(score, dataset),
            "loss": finite and finite.loss,
            "bits_per_byte": bits and text_bytes and bits / text_bytes,
            "perplexity": finite and perplexity_of(finite.loss),
            "text_bytes": text_bytes,
            "baseline_bits": dict(dataset.baseline_bits),
            "lowest_bits": dict(dataset.lowest_bits),
        }

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
        quotient = float(sums[rows, number].sum()) / count
        return quotient if math.isfinite(quotient) else None

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
