"""How many examples of a batch go through the model at once."""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch

from lra.runtime.environment import (
    available_memory_mib,
    is_out_of_memory,
    memory_mib,
    peak_memory_mib,
    reset_peak_memory,
)
from lra.runtime.errors import UserError

logger = logging.getLogger(__name__)

USED_FRACTION = 0.8
"""How much of the available memory passes may take: other batches and evaluation need the rest."""


def usable_memory_mib(device: torch.device) -> float:
    """Return how much memory may be held during a pass, what is held now included."""
    return memory_mib(device) + USED_FRACTION * available_memory_mib(device)


def fitting_micro_batch(
    batch_size: int, limit: float, device: torch.device, make_pass: Callable[[int], object]
) -> int:
    """Find the most examples a pass that memory suffices for, all passes of a batch alike.

    Passes are measured with twice as many examples each time, as long as the next are expected
    to fit; from the last two follows what an example takes.

    Args:
        limit: most memory to be held, in MiB.
        make_pass: goes forward and back over so many of the longest examples at once.
    Returns: examples a pass, at most the batch size.
    Raises: UserError if not even one fits.
    """
    size, peak, each = 0, memory_mib(device), 0.0
    while size < batch_size:
        tried = min(batch_size, max(1, 2 * size))
        if size and peak + (tried - size) * each > limit:
            break
        measured = _peak(tried, device, make_pass)
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


def fits(examples: int, device: torch.device, make_pass: Callable[[int], object]) -> bool:
    """Whether memory suffices to go forward and back over so many of the longest examples."""
    return _peak(examples, device, make_pass) is not None


def _peak(examples: int, device: torch.device, make_pass: Callable[[int], object]) -> float | None:
    """Measure a pass, in MiB; None if memory does not suffice."""
    reset_peak_memory(device)
    try:
        make_pass(examples)
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return None
    return peak_memory_mib(device)
