"""Classes of some positions of each example, scored by segments of the split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lra.goals.scorer import Add, Output, Score, Scorer, classification_losses, starts_of
from lra.record.scores import SegmentScore, TokenScores
from tasks.base import OUTCOMES

if TYPE_CHECKING:
    from torch import Tensor

    from tasks.base import Batch, Dataset, Split


class LabelScorer(Scorer):
    """Cross-entropy of labels of positions, and their accuracy in the mean over segments."""

    def losses(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """See `Scorer.losses`."""
        return classification_losses(logits, labels)

    def keep(self, logits: Tensor, batch: Batch) -> tuple[Tensor, ...]:
        """See `Scorer.keep`: losses, whether predictions are right, and positions in the batch."""
        loss, is_right = self.losses(logits, batch.labels)
        assert batch.scored is not None
        return loss, is_right & loss.isfinite(), batch.scored  # NaN has an argmax, too

    def score(self, outputs: Sequence[Output], split: Split, add: Add) -> Score:
        """See `Scorer.score`; predictions are counts of each example and its first wrong one."""
        outcomes = np.zeros((len(split), 3), dtype=np.int64)
        own_loss, own_non_finite = 0.0, 0
        for one in outputs:
            loss, is_right, where = (tensor.numpy() for tensor in one.kept)
            is_wrong, example = ~is_right, np.repeat(one.indices, one.counts)
            place = where - starts_of(one.lengths).repeat(one.counts)
            own_loss += float(loss.sum(dtype=np.float64))
            own_non_finite += int((~np.isfinite(loss)).sum())
            outcomes[one.indices, 0] = one.counts
            np.add.at(outcomes[:, 1], example[is_right], 1)
            # The first wrong one of an example is written last, so it stays. From 1: 0 is none.
            outcomes[example[is_wrong][::-1], 2] = place[is_wrong][::-1] + 1
        outcomes = add(outcomes)
        outcomes[:, 2] -= 1
        total, correct, _ = outcomes.sum(axis=0).tolist()
        loss, non_finite = add(np.array([own_loss, own_non_finite])).tolist()
        tokens = score_segments(outcomes, split.metadata())
        return Score(
            total=total,
            loss=loss / total,
            non_finite=round(non_finite),
            merit=tokens.accuracy,
            numbers={"val_accuracy": tokens.accuracy, "val_loss": loss / total},
            text=f"accuracy {tokens.accuracy:.2f} %, loss {loss / total:.3f}",
            result={"accuracy": tokens.accuracy, "correct": correct, "tokens": tokens},
            predictions=dict(zip(OUTCOMES, outcomes.T, strict=True)),
        )

    def describe(
        self, score: Score | None, dataset: Dataset, best: Mapping[str, float]
    ) -> dict[str, Any]:
        """See `Scorer.describe`."""
        tokens = None if score is None else score.result["tokens"]
        return {**super().describe(score, dataset, best), "tokens": tokens}


def score_segments(outcomes: np.ndarray, metadata: Mapping[str, np.ndarray]) -> TokenScores:
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
