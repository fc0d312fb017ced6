"""Linear maps by torch's faster library."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from models.layers.linear_map import LinearMap
from models.ops import linear_map as module
from models.ops.linear_map import FEWEST_PRODUCTS, linear_map, linear_map_reference
from models.ops.linear_pair import linear_pair, linear_pair_reference
from models.ops.reference import reference_forms


@pytest.fixture
def not_intel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute as on a processor that is not Intel's, whatever this one is."""
    monkeypatch.setattr(module, "_mkl_is_slow", lambda: True)
    for name in ("FEWEST_PRODUCTS", "FEWEST_ROWS", "FEWEST_CHANNELS"):
        monkeypatch.setattr(module, name, 1)


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def gradients(y: Tensor, *of: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(y.sin().sum(), of)


@pytest.mark.usefixtures("not_intel", "threads")
@pytest.mark.parametrize("shape", [(1,), (7,), (16,), (128,), (3, 43), (2, 2, 64), (0,), (4, 0)])
@pytest.mark.parametrize("has_bias", [True, False])
def test_convolutions_map_as_torch_does(shape: tuple[int, ...], has_bias: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(*shape, 24, requires_grad=True)
    weight = torch.randn(10, 24, requires_grad=True)
    bias = torch.randn(10, requires_grad=True) if has_bias else None
    given = [x, weight, *([] if bias is None else [bias])]
    ours, theirs = (f(x, weight, bias) for f in (linear_map, linear_map_reference))
    assert ours.shape == theirs.shape
    assert ours.is_contiguous()
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    pairs = zip(gradients(ours, *given), gradients(theirs, *given), strict=True)
    for a, b in pairs:
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("not_intel")
def test_a_view_whose_rows_are_apart_is_mapped() -> None:
    x = torch.randn(40, 64)[:, ::2]
    weight = torch.randn(8, 32)
    torch.testing.assert_close(linear_map(x, weight), functional.linear(x, weight))
    x = torch.randn(32, 40).T
    torch.testing.assert_close(linear_map(x, weight), functional.linear(x, weight))


@pytest.mark.usefixtures("not_intel")
def test_a_pair_of_maps_is_two_maps() -> None:
    x = torch.randn(5, 9, 24, requires_grad=True)
    first, second = LinearMap(24, 10), LinearMap(24, 12)
    given = [x, *first.parameters(), *second.parameters()]
    ours = torch.cat(linear_pair(x, first, second), dim=-1)
    theirs = torch.cat(linear_pair_reference(x, first, second), dim=-1)
    torch.testing.assert_close(ours, theirs)
    for a, b in zip(gradients(ours, *given), gradients(theirs, *given), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


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


@pytest.mark.parametrize(
    ("maker", "machine", "expected"),
    [
        ("vendor_id\t: AuthenticAMD", "x86_64", True),
        ("AMD64 Family 25 Model 33 Stepping 2, AuthenticAMD", "AMD64", True),
        ("vendor_id\t: GenuineIntel", "x86_64", False),
        ("Intel64 Family 6 Model 158 Stepping 10, GenuineIntel", "AMD64", False),
        ("", "aarch64", False),
        ("arm", "arm64", False),
    ],
)
def test_who_made_the_processor_decides(
    maker: str, machine: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_maker", lambda: maker)
    monkeypatch.setattr(module.platform, "machine", lambda: machine)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    assert module._mkl_is_slow.__wrapped__() == expected


def test_parameters_start_as_torchs_do() -> None:
    torch.manual_seed(3)
    theirs = nn.Linear(5, 4).state_dict()
    torch.manual_seed(3)
    ours = LinearMap(5, 4).state_dict()
    assert list(ours) == list(theirs)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
