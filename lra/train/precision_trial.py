"""Whether bfloat16 pays on this machine: on many CPUs what it saves in products goes to casts."""

from __future__ import annotations

import statistics
import time

import torch
from torch import Tensor, nn
from torch.nn import functional

from lra.train.evaluation import autocast_of
from models.layers.linear_map import LinearMap
from models.ops.linear_pair import linear_pair

MOST_NUMBERS = 2**20
"""Numbers of the trial's input, at most: as many positions as one forward pass has, or fewer."""
ROUNDS = 5
SLOWER = 1.05
"""How much longer bfloat16 must take in a trial to be called slower: less is noise."""


class _Trial(nn.Module):
    """A gated linear unit in a residual, as a block has it.

    Args:
        dim: channels.
        hidden: channels inside.
    """

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.gate, self.value = LinearMap(dim, hidden), LinearMap(dim, hidden)
        self.output = LinearMap(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Transform x: (positions, dim) -> the same shape."""
        gate, value = linear_pair(self.norm(x), self.gate, self.value)
        return x + self.output(functional.silu(gate) * value)


def time_of_bf16(dim: int, hidden: int, positions: int) -> float:
    """Try bfloat16 on a CPU for less than a second, leaving the random numbers as they are.

    Args:
        dim: channels of the model.
        hidden: channels inside its channel mixer.
        positions: of a forward pass.
    Returns: the time of a forward and backward pass, as a multiple of that in single precision.
    """
    device = torch.device("cpu")
    with torch.random.fork_rng(devices=[]):
        trial = _Trial(dim, hidden)
        rows = max(1, min(positions, MOST_NUMBERS // max(dim, hidden)))
        x = torch.randn(rows, dim, requires_grad=True)

    def timed(precision: str) -> float:
        start = time.perf_counter()
        with autocast_of(precision, device):
            y = trial(x)
        y.sum().backward()
        return time.perf_counter() - start

    ratios = [timed("bf16") / timed("fp32") for _ in range(2 + ROUNDS)]
    return statistics.median(ratios[2:])


def told_of_bf16(dim: int, hidden: int, positions: int) -> str:
    """Try bfloat16, see `time_of_bf16`; say in a line whether it pays."""
    ratio = time_of_bf16(dim, hidden, positions)
    text = f"bf16 takes {ratio:.2f} times as long as fp32 in a trial of a gated linear unit"
    return f"{text}: --precision fp32 is faster here" if ratio > SLOWER else text
