"""The gradient of a batch, computed in passes that fit into memory."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from lra.classifier.classifier import Classifier
from lra.classifier.loss import is_scored, sum_losses
from lra.config.schema import RunConfig
from lra.runtime.distributed import ProcessGroup
from lra.runtime.environment import random_state, reset_peak_memory, restore_random_state
from lra.runtime.errors import UserError
from lra.train.evaluation import autocast_of
from lra.train.micro_batch import fits, fitting_micro_batch, usable_memory_mib
from tasks.base import Batch, Split, TaskInfo

logger = logging.getLogger(__name__)


class Gradient:
    """Computes the gradients of a model, in passes that fit into memory.

    Args:
        split: the training examples, the longest of which must fit.
        group: the processes that each have a part of every batch.
    Raises: UserError if several processes are to find their micro-batch.
    """

    def __init__(  # noqa: PLR0917 (what a trainer is made of)
        self,
        model: Classifier,
        config: RunConfig,
        info: TaskInfo,
        optimizer: torch.optim.Optimizer,
        split: Split,
        device: torch.device,
        group: ProcessGroup,
    ) -> None:
        self.model = model
        self.parallel = group.parallel(model, has_plug_in="mixer" in config.plug_ins)
        self.train_config = config.train
        self.targets = info.targets
        self.optimizer = optimizer
        self.split = split
        self.device = device
        self.group = group
        chosen = config.train.micro_batch
        if chosen == "auto" and group.world_size > 1:
            raise UserError(
                "train.micro_batch=auto measures one process; with torchrun, set a number (of all "
                "processes together), train.micro_batch=32 say"
            )
        self.micro_batch = None if chosen == "auto" else chosen or config.train.batch_size
        """Examples per forward pass; None until the first step finds out how many fit."""
        self._fits_memory = not self._may_checkpoint

    def compute(self, batch: Batch, examples: int, targets: int | None) -> tuple[Tensor, int]:
        """Compute the clipped gradient of a batch; see `backward`.

        Returns: (3,) this process's part of the loss and of the right predictions, and the norm;
            and how many targets the whole batch has.
        """
        self.optimizer.zero_grad(set_to_none=True)
        sums, targets = self.backward(batch, examples, targets)
        norm = torch.nn.utils.clip_grad_norm_(
            self.model.parameters(), self.train_config.clip_norm or math.inf
        )
        return torch.stack([*sums, norm]), targets

    def backward(
        self, batch: Batch, examples: int | None = None, targets: int | None = None
    ) -> tuple[Tensor, int]:
        """Accumulate the gradient of the mean loss over a batch's targets, in micro-batches.

        Args:
            batch: this process's examples of it.
            examples: in the whole batch; None: as many as in `batch`.
            targets: in the whole batch; None: they are counted, and a GPU is waited for.
        Returns: (2,) float32 on the device, this process's part of that loss, and of how many
            were right; and how many targets the whole batch has. Without any the loss is 0.
        """
        examples = examples or len(batch.lengths)
        sums = torch.zeros(2, device=self.device)
        passes = list(self.group.local_passes(examples, self.micro_batch or examples))
        if self.targets == "example":
            targets = examples
        elif targets is None:
            targets = self._count_targets(batch, passes)
        for number, (start, stop, weight) in enumerate(passes, start=1):
            part = batch.rows(start, stop)
            is_last, is_divided = number == len(passes), weight == 1
            with self.group.gradients_synchronized(self.parallel, is_last, is_divided=is_divided):
                with autocast_of(self.train_config.precision, self.device):
                    logits = self.parallel(*part.model_inputs)
                total, correct = sum_losses(logits, part.labels)
                loss = total * weight / max(1, targets)
                # Of all processes' gradients the mean is taken.
                (loss * self.group.world_size).backward()
            sums[0] += loss.detach()
            sums[1] += weight * correct
        return sums, targets

    def _count_targets(self, batch: Batch, passes: Sequence[tuple[int, int, float]]) -> int:
        """Count the targets of a whole batch, of which this process has a part."""
        parts = [is_scored(batch.rows(start, stop).labels).sum() for start, stop, _ in passes]
        counts = torch.stack(parts).tolist()
        own = sum(weight * count for (_, _, weight), count in zip(passes, counts, strict=True))
        return round(self.group.sums_of([own])[0])

    @property
    def _may_checkpoint(self) -> bool:
        """Whether blocks are computed again if memory does not suffice otherwise."""
        # A process that tries alone would wait for the gradients of the others.
        is_alone = self.device.type == "cuda" and self.group.world_size == 1
        return is_alone and self.train_config.checkpoint_activations == "auto"

    def fit_memory(self) -> int:
        """Choose the micro-batch, and whether blocks are computed again, once.

        Nothing else changes.

        Returns: examples per forward pass.
        """
        if self.micro_batch is None or not self._fits_memory:
            self._try_passes()
        assert self.micro_batch is not None
        return self.micro_batch

    def _try_passes(self) -> None:
        before = {name: value.clone() for name, value in self.model.state_dict().items()}
        drawn = random_state(self.device)
        passes = (self.device, self._pass_over_longest)
        try:
            if self._may_checkpoint and not fits(self.micro_batch or 1, *passes):
                self.model.checkpoint_activations = True
                logger.info(
                    "memory does not suffice for the activations of all blocks: blocks are "
                    "computed again in the backward pass, with the same results"
                )
            if self.micro_batch is None:
                limit = usable_memory_mib(self.device)
                size = self.train_config.batch_size
                self.micro_batch = fitting_micro_batch(size, limit, *passes)
            self._fits_memory = True
        finally:
            self.optimizer.zero_grad(set_to_none=True)
            self.model.load_state_dict(before)
            restore_random_state(drawn, self.device)
            reset_peak_memory(self.device)  # the run's own peak is not that of what was tried

    def _pass_over_longest(self, examples: int) -> None:
        """Go forward and back over the longest training examples at once."""
        split = self.split
        longest = np.argsort(-split.lengths, kind="stable")[:examples]
        self.backward(split.batch(longest).to(self.device))
