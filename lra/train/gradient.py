"""The gradient of a batch, computed in forward and backward passes that fit into memory."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from lra.classifier.classifier import Classifier
from lra.classifier.loss import is_scored, sum_losses
from lra.config.schema import RunConfig
from lra.runtime.distributed import ProcessGroup
from lra.runtime.environment import (
    available_memory_mib,
    is_out_of_memory,
    memory_mib,
    peak_memory_mib,
    random_state,
    reset_peak_memory,
    restore_random_state,
)
from lra.runtime.errors import UserError
from lra.train.evaluation import autocast_of
from tasks.base import Batch, Split, TaskInfo

logger = logging.getLogger(__name__)

USED_FRACTION = 0.8
"""Share of the available memory that passes may take; other batches and evaluation need the
rest."""


class Gradient:
    """Computes the gradients of a model, in micro-batches.

    Args:
        split: the training examples.
        group: the processes that each have a part of every batch.
    Raises: UserError if several processes are to find their micro-batch.
    """

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
        chosen = config.train.micro_batch
        if chosen == "auto" and group.world_size > 1:
            raise UserError(
                "train.micro_batch=auto measures one process; with torchrun, set a number (of all "
                "processes together), train.micro_batch=32 say"
            )
        self.micro_batch = None if chosen == "auto" else chosen or config.train.batch_size
        """Examples per forward pass; None until the first step finds out how many fit."""
        # A process that tries alone would wait for the gradients of the others.
        self._may_checkpoint = (
            device.type == "cuda"
            and group.world_size == 1
            and config.train.checkpoint_activations == "auto"
        )
        self._fits_memory = not self._may_checkpoint

    def compute(self, batch: Batch, examples: int, targets: int | None) -> tuple[Tensor, int]:
        """Compute the clipped gradient of a batch; see `backward`.

        Returns: (3,) this process's part of the loss and of the right predictions, and the norm;
            and how many targets the whole batch has.
        """
        self._drop_gradients()
        sums, targets = self.backward(batch, examples, targets)
        norm = torch.nn.utils.clip_grad_norm_(
            self.parameters, self.train_config.clip_norm or math.inf
        )
        return torch.stack([*sums, norm]), targets

    def _drop_gradients(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

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

    def fit_memory(self) -> int:
        """Choose once the micro-batch and whether blocks are computed again; change nothing else.

        Returns: examples per forward pass.
        """
        if self.micro_batch is None or not self._fits_memory:
            before = {name: value.clone() for name, value in self.model.state_dict().items()}
            drawn = random_state(self.device)
            try:
                self._try_passes()
            finally:
                self._drop_gradients()
                self.model.load_state_dict(before)
                restore_random_state(drawn, self.device)
                reset_peak_memory(self.device)  # the peak of a trial is not the run's
        assert self.micro_batch is not None
        return self.micro_batch

    def _try_passes(self) -> None:
        passes = (self.device, self._pass_over_longest)
        if self._may_checkpoint and measure_peak(self.micro_batch or 1, *passes) is None:
            self.model.checkpoint_activations = True
            logger.info(
                "memory does not suffice for the activations of all blocks: blocks are computed "
                "again in the backward pass, with the same results"
            )
        if self.micro_batch is None:
            limit = usable_memory_mib(self.device)
            self.micro_batch = fitting_micro_batch(self.train_config.batch_size, limit, *passes)
        self._fits_memory = True

    def _pass_over_longest(self, examples: int) -> None:
        """Compute a forward and backward pass of the longest training examples."""
        longest = np.argsort(-self.split.lengths, kind="stable")[:examples]
        self.backward(self.split.batch(longest).to(self.device))


def usable_memory_mib(device: torch.device) -> float:
    """Return how much memory may be held during a pass, including what is held now."""
    return memory_mib(device) + USED_FRACTION * available_memory_mib(device)


def fitting_micro_batch(
    batch_size: int, limit: float, device: torch.device, make_pass: Callable[[int], object]
) -> int:
    """Find the most examples per pass that fit into memory, with passes of like size.

    The number of examples is doubled as long as the next pass is expected to fit. The last two
    measurements tell how much memory an example takes.

    Args:
        limit: most memory to be held, in MiB.
        make_pass: computes a pass of this many of the longest examples.
    Returns: examples per pass, at most the batch size.
    Raises: UserError if not even one fits.
    """
    size, peak, each = 0, memory_mib(device), 0.0
    while size < batch_size:
        tried = min(batch_size, max(1, 2 * size))
        if size and peak + (tried - size) * each > limit:
            break
        measured = measure_peak(tried, device, make_pass)
        if measured is None or measured > limit:
            break
        size, peak, each = tried, measured, max(0.0, (measured - peak) / (tried - size))
    if size == 0:
        raise UserError(
            f"train.micro_batch=auto: one example at a time does not fit into {limit:,.0f} MiB; "
            f"--set train.checkpoint_activations=true takes less"
        )
    if size < batch_size and each > 0:
        size = min(batch_size, 2 * size - 1, size + int((limit - peak) / each))
    passes = -(-batch_size // size)
    size = -(-batch_size // passes)
    logger.info(
        f"train.micro_batch=auto: {size} of {batch_size} examples per forward pass fit into "
        f"{limit:,.0f} MiB"
    )
    return size


def measure_peak(
    examples: int, device: torch.device, make_pass: Callable[[int], object]
) -> float | None:
    """Measure the memory that a pass takes, in MiB; None if it does not fit."""
    reset_peak_memory(device)
    try:
        make_pass(examples)
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return None
    return peak_memory_mib(device)
