"""The trial of bfloat16."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from lra.train import precision_trial
from lra.train.precision_trial import MOST_CHANNELS, ROUNDS, ROWS, time_of_bf16, told_of_bf16


def counted(made: list[Any]) -> type:
    """Make a trial that notes its sizes in place of computing."""

    class Counted:
        def __init__(self, dim: int, hidden: int) -> None:
            self.dim, self.hidden = dim, hidden
            self.rows: list[int] = []
            made.append(self)

        def __call__(self, x: Tensor) -> Tensor:
            self.rows.append(len(x))
            return x[:1, :1]

    return Counted


def test_a_trial_leaves_random_numbers_as_they_are() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    assert time_of_bf16(8, 16, 1000) > 0
    assert torch.equal(torch.rand(3), expected)


def test_a_trial_ends_soon_where_bfloat16_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock of seconds that each round takes a quarter of."""
    clock = itertools.count(0.0, 0.25)
    monkeypatch.setattr(precision_trial.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(precision_trial, "_Trial", counted(trials := []))
    time_of_bf16(4096, 16384, 10**6)
    (trial,) = trials
    assert (trial.dim, trial.hidden) == (MOST_CHANNELS, MOST_CHANNELS)
    assert trial.rows == [ROWS] * 2 * 3  # one to warm up and, within half a second, two


@pytest.mark.parametrize(("bf16", "told"), [(3.0, True), (1.04, False), (0.5, False)])
def test_bfloat16_that_does_not_pay_is_told_of(
    bf16: float, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock by which a pass in bfloat16 takes so long, and one in single precision 1."""
    ticks = itertools.chain.from_iterable(itertools.repeat([0.0, bf16, 10.0, 11.0], ROUNDS + 2))
    monkeypatch.setattr(precision_trial.time, "perf_counter", lambda: next(ticks))
    text = told_of_bf16(8, 8, 16)
    assert text.startswith(f"bf16 takes {bf16:.2f} times as long as fp32")
    assert ("--precision fp32 is faster here" in text) == told
