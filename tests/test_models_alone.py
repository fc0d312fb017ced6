"""Mixers as plain modules of Python code."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import pytest
import torch

from models.base import Mixer, MixerContext
from models.tnn import TNN


@pytest.mark.parametrize("given", [(64,), (64, 1024), ({"dim": 64},), (None,)])
def test_a_mixer_says_what_it_is_made_of(given: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError, match=r"TNN: got .* as context, expected a MixerContext"):
        TNN(*given)
    with pytest.raises(TypeError, match="expected a MixerContext"):
        TNN(context=given[0])


def test_a_mixer_is_a_plain_module() -> None:
    mixer = TNN(MixerContext.of(dim=64, length=1024), rpe_dim=16)
    x = torch.randn(2, 100, 64)
    assert mixer(x).shape == x.shape
    assert torch.equal(copy.deepcopy(mixer)(x), mixer(x))
    assert next(iter(inspect.signature(TNN).parameters)) == "context"
    causal = TNN(MixerContext.of(dim=64, length=1024, causal=True))
    assert torch.allclose(causal(x)[:, :50], causal(x[:, :50]), atol=1e-5)


def test_a_mixer_of_another_base_is_told_too() -> None:
    class Own(Mixer):
        name = "own"

        def __init__(self, context: MixerContext) -> None:
            super().__init__()
            self.dim = context.dim

        def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
            return x

    with pytest.raises(TypeError, match="Own: got 64 as context"):
        Own(64)  # pyright: ignore[reportArgumentType]
    assert Own(MixerContext.of(dim=3, length=4)).dim == 3
