"""How many examples of a batch go through the model at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from lra.environment import (
    available_memory_mib,
    is_out_of_memory,
    memory_mib,
    peak_memory_mib,
    random_state,
    reset_peak_memory,
    restore_random_state,
)
from lra.errors import UserError
from tasks.progress import say

if TYPE_CHECKING:
    from lra.trainer import Trainer

USED_SHARE = 0.8
"""Of the memory that is available: the rest is for what other batches and evaluation take."""


def fitting_micro_batch(trainer: Trainer) -> int:
    """Find the most examples a pass that memory suffices for, all passes of a batch alike.

    Forward and backward passes over the longest training examples are measured, twice as many
    each time, as long as the next are expected to fit; from the last two follows what an example
    takes. Model, random state and optimizer are left as they were.

    Returns: examples a pass, at most the batch size.
    Raises: UserError if not even one fits.
    """
    whole = trainer.train_config.batch_size
    limit = memory_mib(trainer.device) + USED_SHARE * available_memory_mib(trainer.device)
    before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    drawn = random_state(trainer.device)
    size, peak, each = 0, memory_mib(trainer.device), 0.0
    try:
        while size < whole:
            tried = min(whole, max(1, 2 * size))
            if size and peak + (tried - size) * each > limit:
                break
            measured = _peak(trainer, tried)
            if measured is None or measured > limit:
                break
            size, peak, each = tried, measured, max(0.0, (measured - peak) / (tried - size))
    finally:
        trainer.optimizer.zero_grad(set_to_none=True)
        trainer.model.load_state_dict(before)
        restore_random_state(drawn, trainer.device)
    if size == 0:
        raise UserError(
            f"train.micro_batch=auto: one example at a time does not fit into {limit:,.0f} MiB; "
            f"--set train.checkpoint_activations=true takes less"
        )
    if size < whole and each > 0:
        size = min(whole, 2 * size - 1, size + int((limit - peak) / each))
    passes = -(-whole // size)
    size = -(-whole // passes)
    say(f"micro-batch: {size} of {whole} examples a pass, for {limit:,.0f} MiB")
    return size


def _peak(trainer: Trainer, examples: int) -> float | None:
    """Measure a pass over the longest examples, in MiB; None if memory does not suffice."""
    split = trainer.dataset.splits["train"]
    longest = np.argsort(-split.lengths, kind="stable")[:examples]
    reset_peak_memory(trainer.device)
    try:
        trainer.micro_batch = examples
        trainer.backward(split.batch(longest).to(trainer.device))
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return None
    finally:
        trainer.micro_batch = None
    return peak_memory_mib(trainer.device)
