"""The TNN mixer against its formula."""

from typing import Any, Literal

import pytest
import torch

from lra.models.base import MixerContext
from lra.models.layers.basic import SimpleRMSNorm
from lra.models.layers.toeplitz_unit import RelativePositionEncoder
from lra.models.tnn import TNN, EncodedToeplitzOperator
from references import multiply_by_matrix


def encoder(channels: int, num_layers: int = 3) -> RelativePositionEncoder:
    return RelativePositionEncoder(
        channels, dim=8, num_layers=num_layers, activation="relu", norm="simple_rms", residual=False
    ).double()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 1, 5])
def test_operator_equals_its_matrix(causal: bool, window: int | None) -> None:
    parts = [encoder(2), encoder(2)]
    operator = EncodedToeplitzOperator(parts, 4, causal=causal, decay=0.9, window=window)
    x = torch.randn(2, 12, 4, dtype=torch.float64)
    expected = torch.zeros_like(x)
    for i in range(12):
        for j in range(12):
            lag = i - j
            if (causal and lag < 0) or (window is not None and abs(lag) >= window):
                continue
            at = torch.tensor([float(lag)], dtype=torch.float64)
            kernel = torch.cat([part(at) for part in parts])[:, 0] * 0.9 ** abs(lag)
            expected[:, i] += kernel * x[:, j]
    torch.testing.assert_close(operator(x), expected, rtol=1e-10, atol=1e-10)
    by_matrix = multiply_by_matrix(operator.kernel(12), x)
    torch.testing.assert_close(by_matrix, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("per", "count"), [("head", 2), ("channel", 8)])
def test_learned_decays_stay_above_a_floor(per: Literal["head", "channel"], count: int) -> None:
    """As `use_multi_decay` of OpenNLPLab/lra: floor + (1 - floor) sigmoid, here at every lag."""
    context = MixerContext(dim=8, max_length=20, layer=0, depth=1)
    options: dict[str, Any] = {"expand_ratio": 1.0, "num_heads": 2, "decay_learned": True}
    mixer = TNN(context, **options, decay=None, decay_per=per, decay_floor=0.9).double()
    operator = mixer.unit.operator
    assert isinstance(operator, EncodedToeplitzOperator)
    logits = operator.decay_logit
    assert logits is not None
    assert logits.shape == (count,)
    assert logits.std() > 0.1  # drawn
    decays = 0.9 + 0.1 * torch.sigmoid(logits.detach()).repeat_interleave(8 // count)
    plain = EncodedToeplitzOperator(list(operator.encoders), 8, causal=False)  # pyright: ignore[reportArgumentType]
    lags = torch.arange(-19, 20).abs()
    torch.testing.assert_close(
        operator.kernel(20).coefficients,
        plain.kernel(20).coefficients * decays[:, None] ** lags,
    )
    started = TNN(context, **options, decay=0.95, decay_per=per, decay_floor=0.9).unit.operator
    assert isinstance(started, EncodedToeplitzOperator)
    torch.testing.assert_close(started.log_decays().exp(), torch.full((8,), 0.95))


def test_the_simple_norm_adds_its_epsilon_outside_of_the_root() -> None:
    """As released: x / (norm d ** -1/2 + 1e-8)."""
    x = torch.randn(5, 16, dtype=torch.float64) * 1e-8
    rms = x.norm(dim=-1, keepdim=True) * 16**-0.5
    assert rms.max() < 2e-8  # where it matters
    torch.testing.assert_close(SimpleRMSNorm()(x), x / (rms + 1e-8), rtol=1e-12, atol=0)
    zero = torch.zeros(1, 4, requires_grad=True)
    SimpleRMSNorm()(zero).sum().backward()
    assert zero.grad is not None
    assert zero.grad.isfinite().all()


@pytest.mark.parametrize("norm", ["simple_rms", "layer", "none"])
@pytest.mark.parametrize("activation", ["relu", "silu", "gelu"])
@pytest.mark.parametrize("residual", [False, True])
def test_encoders_equal_their_formula(norm: Any, activation: Any, residual: bool) -> None:
    part = RelativePositionEncoder(
        5, dim=8, num_layers=2, activation=activation, norm=norm, residual=residual
    ).double()
    lags = torch.arange(-4, 5, dtype=torch.float64)
    act = getattr(torch.nn.functional, activation)

    def normed(h: torch.Tensor) -> torch.Tensor:
        if norm == "layer":
            return torch.nn.functional.layer_norm(h, (8,))
        return h / (h.square().mean(-1, keepdim=True) + 1e-8).sqrt() if norm != "none" else h

    hidden = lags[:, None] * part.first.weight[:, 0] + part.first.bias
    for linear in part.linears[:-1]:
        step = linear(act(normed(hidden)))
        hidden = hidden + step if residual else step
    torch.testing.assert_close(part(lags).T, part.linears[-1](act(normed(hidden))))


def test_bfloat16_does_not_round_lags() -> None:
    """257 is no bfloat16: neighbouring lags must not get one coefficient."""
    operator = EncodedToeplitzOperator(
        [encoder(3).float()], 3, causal=False, decay=None, window=None
    )
    exact = operator.kernel(1024).coefficients
    with torch.autocast("cpu", dtype=torch.bfloat16):
        coefficients = operator.kernel(1024).coefficients
    assert coefficients.dtype == torch.float32
    assert torch.equal(coefficients, exact)
