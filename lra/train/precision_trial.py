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

MOST_CHANNELS = 512
"""Channels of the trial, at most, in the unit and inside it."""
ROWS, MOST_PRODUCTS = 512, 2**27
"""Positions of the trial: as many as make so many multiplications in a linear map, but not so few
that another way to multiply would be chosen, and not more than a forward pass of the run has."""
ROUNDS = 5
SECONDS = 0.5
"""Time after which no further round begins: without hardware for it bfloat16 takes 20 times as long
as single precision."""
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
    """Try bfloat16 on a CPU for about a second at most, leaving the random numbers as they are.

    Args:
        dim: channels of the model.
        hidden: channels inside its channel mixer.
        positions: of a forward pass.
    Returns: the time of a forward and backward pass, as a multiple of that in single precision.
    """
    device = torch.device("cpu")
    dim, hidden = min(dim, MOST_CHANNELS), min(hidden, MOST_CHANNELS)
    rows = min(positions, max(ROWS, MOST_PRODUCTS // (dim * hidden)))
    with torch.random.fork_rng(devices=[]):
        trial = _Trial(dim, hidden)
        x = torch.randn(rows, dim, requires_grad=True)

    def timed(precision: str) -> float:
        start = time.perf_counter()
        with autocast_of(precision, device):
            y = trial(x)
        y.sum().backward()
        return time.perf_counter() - start

    start = time.monotonic()
    for precision in ("bf16", "fp32"):
        timed(precision)  # warms up
    ratios: list[float] = []
    while not ratios or (len(ratios) < ROUNDS and time.monotonic() - start < SECONDS):
        ratios.append(timed("bf16") / timed("fp32"))
    return statistics.median(ratios)


def told_of_bf16(dim: int, hidden: int, positions: int) -> str:
    """Try bfloat16, see `time_of_bf16`; say in a line whether it pays."""
    ratio = time_of_bf16(dim, hidden, positions)
    text = f"bf16 takes {ratio:.2f} times as long as fp32 in a trial of a gated linear unit"
    return f"{text}: --precision fp32 is faster here" if ratio > SLOWER else text
