"""The gradient of a batch, computed in forward and backward passes that fit into memory."""

import logging
import math

import numpy as np
import torch
from torch import Tensor

from lra.classifier.classifier import Classifier
from lra.config.schema import RunConfig
from lra.goals.scorer import Scorer
from lra.runtime.distributed import ProcessGroup
from lra.runtime.environment import (
    is_out_of_memory,
    random_state,
    reset_peak_memory,
    restore_random_state,
)
from lra.tasks.base import Split
from lra.tasks.batch import Batch

logger = logging.getLogger(__name__)


def autocast_of(precision: str, device: torch.device) -> torch.autocast:
    """Return the context that forward passes of a precision run in: fp32 or bf16."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")


class Gradient:
    """Computes the gradients of a model, in micro-batches, each process a part of every batch."""

    def __init__(
        self, model: Classifier, config: RunConfig, scorer: Scorer, group: ProcessGroup
    ) -> None:
        self.model = model
        self.scorer = scorer
        self.parameters = list(model.parameters())
        self.device = self.parameters[0].device
        self.parallel = group.parallel(model, has_plug_in="mixer" in config.plug_ins)
        self.train_config = config.train
        self.group = group
        self.micro_batch = config.train.micro_batch or config.train.batch_size
        """Examples per forward pass."""

    def count_targets(self, batch: Batch, examples: int) -> int:
        """Count the targets of a whole batch.

        Args:
            batch: this process's examples of it.
            examples: in the whole batch.
        """
        if not self.scorer.goal.of_positions:
            return examples
        parts = self.group.local_passes(examples, self.micro_batch)
        counts = [weight * batch.target_counts[a:b].sum().item() for a, b, weight in parts]
        return round(self.group.sums_of([sum(counts)])[0])

    def compute(self, batch: Batch, examples: int, targets: int) -> Tensor:
        """Compute the clipped gradient of a batch; see `backward`.

        Returns: (3,) this process's part of the loss and of the right predictions, and the norm.
        """
        for parameter in self.parameters:
            parameter.grad = None
        sums = self.backward(batch, examples, targets)
        norm = torch.nn.utils.clip_grad_norm_(
            self.parameters, self.train_config.clip_norm or math.inf
        )
        return torch.stack([*sums, norm])

    def backward(self, batch: Batch, examples: int, targets: int) -> Tensor:
        """Accumulate the gradient of the mean loss over a batch's targets, in micro-batches.

        Args:
            batch: this process's examples of it.
            examples: in the whole batch.
            targets: in the whole batch, at least 1.
        Returns: (2,) float32 on the device, this process's part of the loss and of the number of
            right predictions. Without any target the loss is 0.
        """
        sums = torch.zeros(2, device=self.device)
        passes = list(self.group.local_passes(examples, self.micro_batch))
        for number, (start, stop, weight) in enumerate(passes, start=1):
            part = batch.rows(start, stop)
            is_last = number == len(passes)
            with self.group.gradients_synchronized(self.parallel, is_last):
                with autocast_of(self.train_config.precision, self.device):
                    logits = self.parallel(*part.model_inputs)
                losses, is_right = self.scorer.losses(logits, part.labels)
                loss = losses.sum() * weight / targets
                # Gradients are averaged over processes, so their sum needs this factor.
                (loss * self.group.world_size).backward()
            sums[0] += loss.detach()
            sums[1] += weight * is_right.sum()
        return sums

    def fit_memory(self, split: Split) -> None:
        """Let blocks be computed again in the backward pass if the longest examples do not fit.

        It is tried if checkpoint_activations is auto.
        """
        # With several processes, one that tries alone would wait for the gradients of the others.
        if self.train_config.checkpoint_activations != "auto" or self.group.world_size > 1:
            return
        device = self.device
        longest = np.argsort(-split.lengths, kind="stable")[: self.micro_batch]
        batch = split.batch(longest).to(device)
        before = {name: value.clone() for name, value in self.model.state_dict().items()}
        drawn = random_state(device)
        try:
            self.backward(batch, len(batch), max(1, self.count_targets(batch, len(batch))))
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
