"""Real numbers of a task's own inputs, which a self-pretraining predicts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from lra.goals.result import Result
from lra.goals.scorer import Add, Output, Score, Scorer

if TYPE_CHECKING:
    from torch import Tensor

    from lra.tasks.base import Batch, Split


class InputScorer(Scorer):
    """Mean absolute error of inputs."""

    result = Result
    has_accuracy = False
    needs_finite_loss = True

    def losses(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """See `Scorer.losses`: the mean absolute error over channels; nothing is right."""
        is_target = self.goal.is_target(labels)
        errors = (logits.float() - labels.masked_fill(~is_target[:, None], 0)).abs().mean(dim=1)
        return errors.masked_fill(~is_target, 0), is_target.new_zeros(len(is_target))

    def keep(self, logits: Tensor, batch: Batch) -> tuple[Tensor, ...]:
        """See `Scorer.keep`: the errors, and what is a target."""
        return self.losses(logits, batch.labels)[0], self.goal.is_target(batch.labels)

    def score(self, outputs: Sequence[Output], split: Split, add: Add) -> Score:
        """See `Scorer.score`."""
        sums = np.zeros(3)
        for output in outputs:
            loss, is_target = (tensor.numpy() for tensor in output.kept)
            sums += loss.sum(dtype=np.float64), (~np.isfinite(loss)).sum(), is_target.sum()
        error, non_finite, total = add(sums).tolist()
        loss = error / total
        return Score(
            total=round(total),
            loss=loss,
            non_finite=round(non_finite),
            merit=100.0 * math.exp(-loss),
            numbers={"val_loss": loss},
            text=f"loss {loss:.3f}",
            result={},
        )
