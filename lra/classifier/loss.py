"""What logits are worth: the losses of targets, and which of these are right."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from tasks.base import NOT_SCORED


def is_scored(labels: Tensor) -> Tensor:
    """Say which rows of labels are targets.

    Args:
        labels: (rows,) classes, NOT_SCORED at no target; or (rows, channels) real numbers, NaN at
            no target.
    Returns: (rows,) bool.
    """
    if labels.is_floating_point():
        return ~labels[:, 0].isnan()
    return labels != NOT_SCORED


def compute_losses(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Score each row: by cross-entropy in nats, or real numbers by their mean absolute error.

    Args:
        logits: (rows, classes), or (rows, channels) for real numbers.
        labels: see `is_scored`.
    Returns: losses (rows,) float32, 0 at no target; and whether the class is right, (rows,) bool.
    """
    logits = logits.float()
    if labels.is_floating_point():
        scored = is_scored(labels)
        errors = (logits - labels.masked_fill(~scored[:, None], 0)).abs().mean(dim=1)
        return errors.masked_fill(~scored, 0), torch.zeros_like(scored)
    found = functional.cross_entropy(logits, labels, reduction="none", ignore_index=NOT_SCORED)
    return found, logits.argmax(dim=-1) == labels


def sum_losses(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Add up the losses of all targets and the right answers: two numbers; see `compute_losses`."""
    found, correct = compute_losses(logits, labels)
    return found.sum(), correct.sum()
