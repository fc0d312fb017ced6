"""Evaluation: every example once, in batches of like length."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from tqdm import tqdm

from lra.record.run import NO_PREDICTION
from lra.runtime.distributed import SINGLE_PROCESS, ProcessGroup
from models.layers.kernel_cache import kernels_cached
from tasks.base import Split
from tasks.order import evaluation_batches
from tasks.progress import is_live


@dataclass(frozen=True)
class Score:
    """Sums over a split."""

    correct: int
    total: int
    loss: float
    """Mean cross-entropy, in nats; not finite where logits are not."""
    predictions: np.ndarray = field(compare=False)
    """(examples,) predicted class of each example, in the order of the split; NO_PREDICTION, which
    is right nowhere, where its logits are not finite."""

    @property
    def accuracy(self) -> float:
        """Percent."""
        return 100.0 * self.correct / self.total


def autocast_of(precision: str, device: torch.device) -> torch.autocast:
    """Return the context that forward passes of a precision run in: fp32 or bf16."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")


def evaluate(
    model: nn.Module,
    split: Split,
    *,
    batch_size: int,
    device: torch.device,
    autocast: torch.autocast,
    check: Callable[[], None],
    title: str,
    group: ProcessGroup = SINGLE_PROCESS,
) -> Score:
    """Score a model on a split, in evaluation mode, leaving its mode as it was.

    Args:
        check: called before every batch; what it raises ends the evaluation.
        group: the processes that divide the batches; each gets the whole score.
        title: text of the progress bar, which shows on a terminal only.
    """
    was_training = model.training
    model.eval()
    predictions = np.full(len(split), NO_PREDICTION, dtype=np.int64)
    loss = 0.0
    try:
        with torch.inference_mode(), kernels_cached():
            # The longest first: kernels made for them serve all, and what does not fit fails.
            batches = evaluation_batches(split.lengths, batch_size)[::-1]
            batches = batches[group.rank :: group.world_size]
            for indices in tqdm(batches, desc=title, leave=False, disable=not is_live()):
                check()
                batch = split.batch(indices).to(device)
                with autocast:
                    logits = model(batch.inputs, batch.lengths)
                logits = logits.float()
                loss += float(functional.cross_entropy(logits, batch.labels, reduction="sum"))
                is_sound = logits.isfinite().all(dim=-1)
                found = torch.where(is_sound, logits.argmax(dim=-1), NO_PREDICTION)
                predictions[indices] = found.cpu().numpy()
    finally:
        model.train(was_training)
    loss, predictions = group.sum_of(loss), _merged(predictions, group)
    correct = int((predictions == split.labels).sum())
    return Score(correct, len(split), loss / len(split), predictions)


def _merged(predictions: np.ndarray, group: ProcessGroup) -> np.ndarray:
    """Join the predictions of all processes: (examples,), NO_PREDICTION where another made it."""
    if group.world_size == 1:
        return predictions
    held = torch.from_numpy(predictions - NO_PREDICTION).to(group.device)
    return group.all_reduce_sum(held).cpu().numpy() + NO_PREDICTION
