"""The gradient of a batch, computed in forward and backward passes that fit into memory."""

from __future__ import annotations

import logging
import math

import numpy as np
import torch
from torch import Tensor

from lra.classifier.classifier import Classifier
from lra.classifier.loss import is_scored, sum_losses
from lra.config.schema import RunConfig
from lra.runtime.distributed import ProcessGroup
from lra.runtime.environment import (
    is_out_of_memory,
    random_state,
    reset_peak_memory,
    restore_random_state,
)
from lra.train.evaluation import autocast_of
from tasks.base import Batch, Split, TaskInfo

logger = logging.getLogger(__name__)


class Gradient:
    """Computes the gradients of a model, in micro-batches, each process a part of every batch."""

    def __init__(
        self,
        model: Classifier,
        config: RunConfig,
        info: TaskInfo,
        split: Split,
        *,
        device: torch.device,
        group: ProcessGroup,
    ) -> None:
        self.model = model
        self.parameters = list(model.parameters())
        self.parallel = group.parallel(model, has_plug_in="mixer" in config.plug_ins)
        self.train_config = config.train
        self.targets = info.targets
        self.split = split
        self.device = device
        self.group = group
        self.micro_batch = config.train.micro_batch or config.train.batch_size
        """Examples per forward pass."""
        # A process that tries alone would wait for the gradients of the others.
        self._may_checkpoint = (
            device.type == "cuda"
            and group.world_size == 1
            and config.train.checkpoint_activations == "auto"
        )

    def compute(self, batch: Batch, examples: int, targets: int | None) -> tuple[Tensor, int]:
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
        self, batch: Batch, examples: int | None = None, targets: int | None = None
    ) -> tuple[Tensor, int]:
        """Accumulate the gradient of the mean loss over a batch's targets, in micro-batches.

        Args:
            batch: this process's examples of it.
            examples: in the whole batch; None: as many as in `batch`.
            targets: in the whole batch; None: they are counted, which waits for a GPU.
        Returns: (2,) float32 on the device, this process's part of the loss and of the number of
            right predictions; and how many targets the whole batch has. Without any the loss is 0.
        """
        examples = examples or len(batch.lengths)
        sums = torch.zeros(2, device=self.device)
        passes = list(self.group.local_passes(examples, self.micro_batch))
        if self.targets == "example":
            targets = examples
        elif targets is None:
            targets = self._count_targets(batch, passes)
        for number, (start, stop, weight) in enumerate(passes, start=1):
            part = batch.rows(start, stop)
            with self.group.gradients_synchronized(self.parallel, number == len(passes)):
                with autocast_of(self.train_config.precision, self.device):
                    logits = self.parallel(*part.model_inputs)
                total, correct = sum_losses(logits, part.labels)
                loss = total * weight / max(1, targets)
                # Gradients are averaged over processes, so their sum needs this factor.
                (loss * self.group.world_size).backward()
            sums[0] += loss.detach()
            sums[1] += weight * correct
        return sums, targets

    def _count_targets(self, batch: Batch, passes: list[tuple[int, int, float]]) -> int:
        """Count the targets of a whole batch, of which this process has a part."""
        parts = [is_scored(batch.rows(start, stop).labels).sum() for start, stop, _ in passes]
        counts = torch.stack(parts).tolist()
        own = sum(weight * count for (_, _, weight), count in zip(passes, counts, strict=True))
        return round(self.group.sums_of([own])[0])

    def fit_memory(self) -> None:
        """Find out once, by the longest examples, whether blocks must be computed again."""
        if not self._may_checkpoint:
            return
        self._may_checkpoint = False
        before = {name: value.clone() for name, value in self.model.state_dict().items()}
        drawn = random_state(self.device)
        longest = np.argsort(-self.split.lengths, kind="stable")[: self.micro_batch]
        try:
            self.backward(self.split.batch(longest).to(self.device))
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
            restore_random_state(drawn, self.device)
            reset_peak_memory(self.device)  # the peak of a trial is not the run's
