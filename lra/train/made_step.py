"""The numbers of a training step, which a GPU may still be computing."""

from __future__ import annotations

import functools
import math

import numpy as np
import torch
from torch import Tensor


class MadeStep:
    """A training step and its numbers, which are on their way from the device.

    To read them right away would wait for a GPU, and the next step would begin late.

    Args:
        number: how many steps there are with this one.
        rate: its learning rate.
        targets: how many there are in its batch.
        numbers: (3,) on the device: this process's part of the loss, its part of the right
            predictions, and the norm of the whole gradient.
        flops: this process's part of the arithmetic; None where it is not counted.
    """

    def __init__(
        self, number: int, rate: float, targets: int, numbers: Tensor, flops: float | None
    ) -> None:
        self.number = number
        self.rate = rate
        self.targets = targets
        self.flops = flops
        self.seconds = 0.0
        self.is_whole = False
        """Whether `take_sums` was called."""
        self._numbers = numbers.to("cpu", non_blocking=True)
        self._arrival = None
        if numbers.device.type == "cuda":
            self._arrival = torch.cuda.Event()
            self._arrival.record()

    @functools.cached_property
    def numbers(self) -> list[float]:
        """Loss, right predictions, and norm of the gradient; the first reading waits for them."""
        if self._arrival is not None:
            self._arrival.synchronize()
        return self._numbers.tolist()

    def take_sums(self, loss: float, correct: float) -> None:
        """Take the sums over all processes in place of this one's parts."""
        self.numbers[:2] = np.array([loss, correct], dtype=np.float32).tolist()
        self.is_whole = True

    @property
    def not_finite(self) -> str | None:
        """What is not finite: the loss, or else the gradient; None if both are."""
        loss, _, norm = self.numbers
        if not math.isfinite(loss):
            return "loss"
        return None if math.isfinite(norm) else "gradient"
