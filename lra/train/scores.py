"""Scores of a split from what a model computed for its examples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lra.record.run import NO_PREDICTION
from lra.record.scores import PositionLoss, PositionScores, SegmentScore, TokenScores
from lra.runtime.distributed import ProcessGroup
from lra.train.gradient import compute_losses, is_scored
from tasks.base import Batch, Dataset, Split, TaskInfo

MOST_VALUES = 32
"""Most different values of a field by which losses are told apart."""
LARGEST_PERPLEXITY = 1e18
"""Perplexity that no record holds: such a model predicts nothing."""


@dataclass(frozen=True)
class Score:
    """Sums over a split."""

    correct: int
    total: int
    """Targets: examples, or positions."""
    loss: float
    """Mean over targets, in nats; not finite where logits are not."""
    predictions: np.ndarray | None = field(compare=False)
    """(examples,) predicted class of each example, in the order of the split; NO_PREDICTION, which
    is right nowhere, where its logits are not finite. Where some positions have labels (examples,
    3): labelled positions, those predicted right, and the first wrong one, or NO_PREDICTION. None
    where the next tokens are targets."""
    non_finite: int = 0
    """Targets whose logits are not finite, which count as wrong."""
    positions: list[PositionLoss] = field(default_factory=list, compare=False)
    """Where the next tokens are targets, their losses by where they stand."""
    tokens: TokenScores | None = None
    """Where some positions have labels, the accuracies of the split's segments."""

    @property
    def accuracy(self) -> float:
        """Percent; where some positions have labels the mean over segments."""
        return 100.0 * self.correct / self.total if self.tokens is None else self.tokens.accuracy

    @property
    def merit(self) -> float:
        """What the best model has most of: accuracy, or where positions are targets 100 over the
        perplexity; in percent.
        """
        return self.accuracy if self.predictions is not None else 100.0 * math.exp(-self.loss)


class Output(NamedTuple):
    """What is kept of a model's logits for a batch; tensors stay on the device that computes."""

    indices: np.ndarray
    """(examples,) in the split."""
    lengths: np.ndarray
    """(examples,) positions of each."""
    counts: np.ndarray
    """(examples,) labels of each."""
    loss: Tensor
    """(labels,)"""
    answer: Tensor
    """(labels,) the predicted class, or NO_PREDICTION; or of positions whether it is right."""
    where: Tensor
    """(labels,) of positions whether they are targets; of tokens their positions in the batch."""


def keep_output(info: TaskInfo, indices: np.ndarray, logits: Tensor, batch: Batch) -> Output:
    """Keep what scores need of the logits of a batch."""
    loss, is_right = compute_losses(logits, batch.labels)
    if info.targets == "example":
        answer = logits.argmax(dim=-1).where(logits.isfinite().all(dim=-1), NO_PREDICTION)
    else:
        answer = is_right & loss.isfinite()  # NaN has an argmax, too
    where = is_scored(batch.labels) if batch.scored is None else batch.scored
    lengths, counts = batch.lengths.sum(dim=1).numpy(), batch.label_counts.numpy()
    return Output(indices, lengths, counts, loss, answer, where)


def score_outputs(
    outputs: Sequence[Output], split: Split, info: TaskInfo, group: ProcessGroup
) -> Score:
    """Score the examples of a split, of which each process has some; the score is the same to all.

    Outputs are copied to the CPU here, together, because each copy waits for a GPU.
    """
    columns: list[Sequence[Tensor]] = []
    for tensors in zip(*(one[3:] for one in outputs), strict=True):
        columns.append(torch.cat(tensors).cpu().split([len(tensor) for tensor in tensors]))
    read = [Output(*one[:3], *tensors) for one, *tensors in zip(outputs, *columns, strict=True)]
    score = {"example": _score_examples, "position": _score_positions, "token": _score_tokens}
    return score[info.targets](read, split, info, group)


def _score_examples(
    outputs: Sequence[Output], split: Split, info: TaskInfo, group: ProcessGroup
) -> Score:
    own, own_loss = np.zeros(len(split), dtype=np.int64), 0.0
    for one in outputs:
        own[one.indices] = one.answer.numpy() - NO_PREDICTION
        own_loss += one.loss.sum().item()
    predictions = _add(own, group) + NO_PREDICTION
    correct = int((predictions == split.labels).sum())
    non_finite = int((predictions == NO_PREDICTION).sum())
    (loss,) = group.sums_of([own_loss])
    return Score(correct, len(split), loss / len(split), predictions, non_finite)


def _score_positions(
    outputs: Sequence[Output], split: Split, info: TaskInfo, group: ProcessGroup
) -> Score:
    """Add up losses by how far into their windows positions are."""
    shape = len(split), int(bin_of(np.array(info.towers * info.max_length))) + 1
    losses, targets, ideal = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    own_correct = own_non_finite = 0
    for one in outputs:
        loss = one.loss.numpy()
        own_correct += int(one.answer.sum())
        own_non_finite += int((~np.isfinite(loss)).sum())
        place = np.arange(len(loss)) - _starts(one.lengths).repeat(one.lengths)
        cells = (np.repeat(one.indices, one.lengths), bin_of(place))
        np.add.at(losses, cells, loss)
        np.add.at(targets, cells, one.where.numpy())
        if split.ideal_bits is not None:
            nats = math.log(2) * split.ideal_bits[one.indices].astype(np.float64)
            np.add.at(ideal, cells, nats.ravel())
    losses, targets, ideal = (_add(sums, group) for sums in (losses, targets, ideal))
    correct, non_finite = map(round, group.sums_of([own_correct, own_non_finite]))
    total, known = int(targets.sum()), None if split.ideal_bits is None else ideal
    by_position = position_losses(losses, targets, split.metadata(), known)
    return Score(correct, total, float(losses.sum()) / total, None, non_finite, by_position)


def _score_tokens(
    outputs: Sequence[Output], split: Split, info: TaskInfo, group: ProcessGroup
) -> Score:
    """Score the positions that have labels, example by example."""
    outcomes = np.zeros((len(split), 3), dtype=np.int64)
    own_loss, own_non_finite = 0.0, 0
    for one in outputs:
        loss, is_wrong = one.loss.numpy(), ~one.answer.numpy()
        example = np.repeat(one.indices, one.counts)
        place = one.where.numpy() - _starts(one.lengths).repeat(one.counts)
        own_loss += float(loss.sum(dtype=np.float64))
        own_non_finite += int((~np.isfinite(loss)).sum())
        outcomes[one.indices, 0] = one.counts
        np.add.at(outcomes[:, 1], example[~is_wrong], 1)
        # In reverse, so that the first wrong one of an example stays. From 1, so that 0 is none.
        outcomes[example[is_wrong][::-1], 2] = place[is_wrong][::-1] + 1
    outcomes = _add(outcomes, group)
    outcomes[:, 2] -= 1
    total, correct, _ = outcomes.sum(axis=0).tolist()
    loss, non_finite = group.sums_of([own_loss, own_non_finite])
    tokens = token_scores(outcomes, split.metadata())
    return Score(correct, total, loss / total, outcomes, round(non_finite), tokens=tokens)


def _starts(lengths: np.ndarray) -> np.ndarray:
    """Return where packed sequences of these lengths start."""
    return np.cumsum(lengths) - lengths


def _add(numbers: np.ndarray, group: ProcessGroup) -> np.ndarray:
    """Add the numbers of all processes: (examples, ...) -> the same shape."""
    return group.all_reduce_sum(torch.from_numpy(numbers)).numpy()


def bin_of(positions: np.ndarray) -> np.ndarray:
    """Number the ranges that positions are in, which double: 0, 1, 2-3, 4-7 and so on."""
    return np.frexp(positions)[1]


def bin_range(number: int) -> tuple[int, int]:
    """Return the first and the last position of a range; see `bin_of`."""
    return 2**number // 2, 2**number - 1


def position_losses(
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


def token_scores(outcomes: np.ndarray, metadata: Mapping[str, np.ndarray]) -> TokenScores:
    """Score the examples of a split, segment by segment.

    Args:
        outcomes: (examples, 3) labelled positions, those predicted right, and the first wrong one.
        metadata: fields of the examples, of which "segment" divides them into segments, which have
            equal weight.
    """
    names = metadata.get("segment", np.full(len(outcomes), "")).astype(str)
    segments: list[SegmentScore] = []
    for name in dict.fromkeys(names.tolist()):
        targets, correct, _ = outcomes[names == name].T
        counts = {"targets": int(targets.sum()), "correct": int(correct.sum())}
        whole = int((targets == correct).sum())
        segments.append(
            SegmentScore(name=name, examples=len(targets), correct_examples=whole, **counts)
        )
    return TokenScores(segments=segments)


def perplexity_of(loss: float) -> float | None:
    """Return the perplexity of a mean loss in nats; None if it is not finite, or absurd."""
    return math.exp(loss) if loss < math.log(LARGEST_PERPLEXITY) else None


def compute_position_scores(
    score: Score | None, dataset: Dataset, val_loss: float | None = None
) -> PositionScores:
    """Describe what is measured where positions are targets.

    Args:
        score: of the test set; None as long as it is not known.
        val_loss: of the validation set, in nats.
    """
    text_bytes = dataset.splits["test"].text_bytes
    finite = score if score and math.isfinite(score.loss) else None
    bits = finite and finite.loss * finite.total / math.log(2)
    return PositionScores(
        val_loss=val_loss,
        loss=finite and finite.loss,
        bits_per_byte=bits and text_bytes and bits / text_bytes,
        perplexity=finite and perplexity_of(finite.loss),
        text_bytes=text_bytes,
        baseline_bits=dict(dataset.baseline_bits),
        lowest_bits=dict(dataset.lowest_bits),
        by_position=[] if score is None else score.positions,
    )
