"""The gradient of a batch, computed in forward and backward passes that fit into memory."""

from __future__ import annotations

import logging
import math

import torch
from torch import Tensor
from torch.nn import functional

from lra.classifier.classifier import Classifier
from lra.config.schema import RunConfig
from lra.runtime.distributed import ProcessGroup
from lra.runtime.environment import (
    is_out_of_memory,
    random_state,
    reset_peak_memory,
    restore_random_state,
)
from lra.train.fixed_batch import FixedBatch, FixedPart
from tasks.base import NOT_SCORED, Batch, TaskInfo

logger = logging.getLogger(__name__)


def autocast_of(precision: str, device: torch.device) -> torch.autocast:
    """Return the context that forward passes of a precision run in: fp32 or bf16."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")


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
    losses = functional.cross_entropy(logits, labels, reduction="none", ignore_index=NOT_SCORED)
    return losses, logits.argmax(dim=-1) == labels


class Gradient:
    """Computes the gradients of a model, in micro-batches, each process a part of every batch."""

    def __init__(
        self, model: Classifier, config: RunConfig, info: TaskInfo, group: ProcessGroup
    ) -> None:
        self.model = model
        self.parameters = list(model.parameters())
        self.parallel = group.parallel(model, has_plug_in="mixer" in config.plug_ins)
        self.train_config = config.train
        self.targets = info.targets
        self.group = group
        self.micro_batch = config.train.micro_batch or config.train.batch_size
        """Examples per forward pass."""

    def compute(
        self, batch: Batch | FixedBatch, examples: int | None, targets: int | None
    ) -> tuple[Tensor, int]:
        """Compute the clipped gradient of a batch; see `backward`.

        Returns: (3,) this process's part of the loss and of the right predictions, and the norm;
            and how many targets the whole batch has.
        """
        for parameter in self.parameters:
            parameter.grad = None
        sums, targets = self.backward(batch, examples, targets)
        norm = torch.nn.utils.clip_grad_norm_(
            self.parameters, self.train_config.clip_norm or math.inf
        )
        return torch.stack([*sums, norm]), targets

    def backward(
        self,
        batch: Batch | FixedBatch,
        examples: int | None = None,
        targets: int | None = None,
    ) -> tuple[Tensor, int]:
        """Accumulate the gradient of the mean loss over a batch's targets, in micro-batches.

        Args:
            batch: this process's examples of it.
            examples: in the whole batch; None: as many as in `batch`.
            targets: in the whole batch; None: they are counted, which waits for a GPU, unless the
                batch has their number on it.
        Returns: (2,) float32 on the device, this process's part of the loss and of the number of
            right predictions; and how many targets the whole batch has, 0 if only the device knows.
            Without any the loss is 0.
        """
        examples, device = examples or len(batch), self.parameters[0].device
        sums = torch.zeros(2, device=device)
        passes = list(self.group.local_passes(examples, self.micro_batch))
        parts = [batch.rows(start, stop) for start, stop, _ in passes]
        weights = [weight for *_, weight in passes]
        if self.targets == "example":
            targets = examples
        elif isinstance(batch, FixedBatch):
            targets = 0
        elif targets is None:
            counts = [int(is_scored(part.labels).sum()) for part in parts]
            own = sum(weight * count for weight, count in zip(weights, counts, strict=True))
            targets = round(self.group.sums_of([own])[0])
        divisor = batch.targets if isinstance(batch, FixedBatch) else max(1, targets)
        for part, weight in zip(parts, weights, strict=True):
            with self.group.gradients_synchronized(self.parallel, part is parts[-1]):
                with autocast_of(self.train_config.precision, device):
                    logits = self._compute_logits(part)
                losses, is_right = compute_losses(logits, part.labels)
                loss = losses.sum() * weight / divisor
                # Gradients are averaged over processes, so their sum needs this factor.
                (loss * self.group.world_size).backward()
            sums[0] += loss.detach()
            sums[1] += weight * is_right.sum()
        return sums, targets

    def _compute_logits(self, part: Batch | FixedPart) -> Tensor:
        if isinstance(part, FixedPart):
            return self.model.compute_packed(part.inputs, part.packing, part.scored)
        return self.parallel(*part.model_inputs)

    def fit_memory(self, batch: Batch) -> None:
        """Let blocks be computed again in the backward pass if a batch does not fit otherwise."""
        device = batch.labels.device
        before = {name: value.clone() for name, value in self.model.state_dict().items()}
        drawn = random_state(device)
        try:
            self.backward(batch)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            self.model.checkpoint_activations = True
            logger.info(
                "memory does not suffice for the activations of all blocks: blocks are computed "
                "again in the backward pass, with the same results"
            )
        finally:
            self.model.zero_grad()
            self.model.load_state_dict(before)
            restore_random_state(drawn, device)
            reset_peak_memory(device)  # the peak of a trial is not the run's
