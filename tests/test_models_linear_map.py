"""Linear maps by torch's faster library."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from models.layers.linear_map import LinearMap
from models.ops import linear_map as module
from models.ops.linear_map import FEWEST_PRODUCTS, linear_map
from models.ops.reference import reference_forms


@pytest.fixture
def not_intel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute as on a processor that is not Intel's, whatever this one is."""
    monkeypatch.setattr(module, "_mkl_is_slow", lambda: True)
    for name in ("FEWEST_PRODUCTS", "FEWEST_ROWS", "FEWEST_CHANNELS"):
        monkeypatch.setattr(module, name, 1)


@pytest.mark.usefixtures("not_intel")
def test_a_view_whose_rows_are_apart_is_mapped() -> None:
    x = torch.randn(40, 64)[:, ::2]
    weight = torch.randn(8, 32)
    torch.testing.assert_close(linear_map(x, weight), functional.linear(x, weight))
    x = torch.randn(32, 40).T
    torch.testing.assert_close(linear_map(x, weight), functional.linear(x, weight))


def by_convolution(x: Tensor, weight: Tensor) -> bool:
    """Say whether a map is a convolution, from what torch runs."""
    with torch.autograd.profiler.profile(use_kineto=False) as profile:
        linear_map(x, weight)
    assert profile is not None
    return any("convolution" in event.name for event in profile.function_events or [])


def test_only_large_maps_of_single_precision_are_convolutions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_mkl_is_slow", lambda: True)
    rows = FEWEST_PRODUCTS // 64**2
    x, weight = torch.randn(rows, 64), torch.randn(64, 64)
    assert by_convolution(x, weight)
    assert not by_convolution(x[1:], weight)
    assert not by_convolution(x.double(), weight.double())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert linear_map(x, weight).dtype == torch.bfloat16
        assert not by_convolution(x, weight)
    with reference_forms():
        assert not by_convolution(x, weight)
    monkeypatch.setattr(module, "_mkl_is_slow", lambda: False)
    assert not by_convolution(x, weight)


def test_parameters_start_as_torchs_do() -> None:
    torch.manual_seed(3)
    theirs = nn.Linear(5, 4).state_dict()
    torch.manual_seed(3)
    ours = LinearMap(5, 4).state_dict()
    assert list(ours) == list(theirs)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
