"""The TNN mixer against its formula."""

from __future__ import annotations

import pytest
import torch

from conftest import build_mixer
from models._position_encoder import RelativePositionEncoder
from models._toeplitz import toeplitz_multiply_dense
from models.base import MixerContext
from models.tnn import TNN, EncodedToeplitzOperator


def encoder(channels: int, num_layers: int = 3) -> RelativePositionEncoder:
    return RelativePositionEncoder(
        channels, dim=8, num_layers=num_layers, activation="relu", norm="simple_rms", residual=False
    ).double()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 1, 5])
def test_operator_equals_its_dense_form(causal: bool, window: int | None) -> None:
    parts = [encoder(2), encoder(2)]
    operator = EncodedToeplitzOperator(parts, causal=causal, decay=0.9, window=window)
    x = torch.randn(2, 12, 4, dtype=torch.float64)
    expected = torch.zeros_like(x)
    for i in range(12):
        for j in range(12):
            lag = i - j
            if (causal and lag < 0) or (window is not None and abs(lag) >= window):
                continue
            at = torch.tensor([float(lag)], dtype=torch.float64)
            kernel = torch.cat([part(at) for part in parts], dim=-1)[0] * 0.9 ** abs(lag)
            expected[:, i] += kernel * x[:, j]
    torch.testing.assert_close(operator(x), expected, rtol=1e-10, atol=1e-10)
    coefficients, first = operator.coefficients(12)
    dense = toeplitz_multiply_dense(coefficients, first, x)
    torch.testing.assert_close(dense, expected, rtol=1e-10, atol=1e-10)


def test_unit_equals_its_formula() -> None:
    mixer = build_mixer("tnn").double()
    assert isinstance(mixer, TNN)
    x = torch.randn(2, 9, 8, dtype=torch.float64)
    mask = torch.ones(2, 9, dtype=torch.bool)
    mask[0, 6:] = False
    unit = mixer.unit
    value = torch.nn.functional.silu(unit.value(x)) * mask[..., None]
    gate = torch.nn.functional.silu(unit.gate(x))
    torch.testing.assert_close(mixer(x, mask), unit.output(gate * unit.operator(value)))


@pytest.mark.parametrize("num_layers", [0, 1, 6])
def test_encoder_layers_count(num_layers: int) -> None:
    linears = [m for m in encoder(4, num_layers).modules() if isinstance(m, torch.nn.Linear)]
    assert len(linears) == num_layers + 2


def test_kernel_does_not_depend_on_the_length() -> None:
    operator = EncodedToeplitzOperator([encoder(3)], causal=False, decay=None, window=None)
    short, first_short = operator.coefficients(10)
    long, first_long = operator.coefficients(25)
    offset = first_short - first_long
    torch.testing.assert_close(long[offset : offset + len(short)], short)


def test_projections_start_as_published() -> None:
    context = MixerContext(dim=256, max_length=64, layer=0, depth=1)
    unit = TNN(context, expand_ratio=3.0).unit
    for linear in (unit.gate, unit.value, unit.output):
        assert linear.weight.std().item() == pytest.approx(0.02, rel=0.05)
        assert linear.bias.std().item() == pytest.approx(0.02, rel=0.2)


def test_heads_must_divide_the_channels() -> None:
    with pytest.raises(ValueError, match="num_heads 3 does not divide the 8 inner channels"):
        build_mixer("tnn", num_heads=3, expand_ratio=1.0)


def test_bfloat16_does_not_round_lags() -> None:
    """257 is no bfloat16: neighbouring lags must not get one coefficient."""
    operator = EncodedToeplitzOperator([encoder(3).float()], causal=False, decay=None, window=None)
    exact, _ = operator.coefficients(1024)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        coefficients, _ = operator.coefficients(1024)
    assert coefficients.dtype == torch.float32
    assert torch.equal(coefficients, exact)
