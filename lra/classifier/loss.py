"""Losses of targets, and which predictions are right."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from tasks.base import NOT_SCORED


def is_scored(labels: Tensor) -> Tensor:
    """Return which rows of labels are targets.

    Args:
        labels: (rows,) classes, NOT_SCORED where there is no target; or (rows, channels) real
            numbers, NaN where there is no target.
    Returns: (rows,) bool.
    """
    if labels.is_floating_point():
        return ~labels[:, 0].isnan()
    return labels != NOT_SCORED


def compute_losses(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the loss of each row: cross-entropy in nats, or mean absolute error of real numbers.

    Args:
        logits: (rows, classes), or (rows, channels) for real numbers.
        labels: see `is_scored`.
    Returns: losses (rows,) float32, 0 where there is no target; and whether the predicted class is
        right, (rows,) bool.
    """
    logits = logits.float()
    if labels.is_floating_point():
        scored = is_scored(labels)
        errors = (logits - labels.masked_fill(~scored[:, None], 0)).abs().mean(dim=1)
        return errors.masked_fill(~scored, 0), torch.zeros_like(scored)
    found = functional.cross_entropy(logits, labels, reduction="none", ignore_index=NOT_SCORED)
    return found, logits.argmax(dim=-1) == labels


def sum_losses(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sum of all losses and the number of right predictions; see `compute_losses`."""
    found, correct = compute_losses(logits, labels)
    return found.sum(), correct.sum()
