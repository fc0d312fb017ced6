"""The TNN mixer against its formula."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import torch

from conftest import build_mixer
from models.base import MixerContext
from models.layers.norms import SimpleRMSNorm
from models.layers.relative_position_encoder import RelativePositionEncoder
from models.tnn import TNN, EncodedToeplitzOperator
from references import LENGTHS, assert_equal_with_gradients, multiply_by_matrix


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


KINDS: dict[str, dict[str, Any]] = {
    "published": {},
    "causal, scaled lags": {"causal": True, "lag_scale": 0.01},
    "fixed decay": {"decay": 0.9},
    "learned decay": {"decay": 0.9, "learned_decays": 4},
    "window": {"window": 5},
}


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_equal_those_of_its_matrix(kind: str, length: int) -> None:
    options = {"causal": False, **KINDS[kind]}
    operator = EncodedToeplitzOperator([encoder(2), encoder(2)], 4, **options).double()
    x = torch.randn(2, length, 4, dtype=torch.float64, requires_grad=True)
    assert_equal_with_gradients(
        lambda: operator(x),
        lambda: multiply_by_matrix(operator.kernel(length), x),
        [x, *operator.parameters()],
    )


def test_learned_decays_start_from_the_fixed_one() -> None:
    part = encoder(3)
    fixed = EncodedToeplitzOperator([part], 3, causal=False, decay=0.9)
    learned = EncodedToeplitzOperator([part], 3, causal=False, decay=0.9, learned_decays=3).double()
    expected = fixed.kernel(20).coefficients
    torch.testing.assert_close(learned.kernel(20).coefficients, expected)
    assert learned.decay_logit is not None
    with torch.no_grad():
        learned.decay_logit[1] = 5.0
    moved = learned.kernel(20).coefficients / expected
    torch.testing.assert_close(moved[[0, 2]], torch.ones(2, 39, dtype=torch.float64))
    assert moved[1, -1] > 2


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


def test_the_released_encoder_has_one_norm_and_two_hidden_layers() -> None:
    """OpenNLPLab/lra, dpb_v4.py, written out."""
    part = RelativePositionEncoder(
        3, dim=5, num_layers=2, activation="relu", norm="last_layer", residual=False
    ).double()
    first, (one, two, last) = part.first, part.linears
    lags = torch.arange(-4.0, 5, dtype=torch.float64)
    hidden = two(torch.relu(one(torch.relu(first(lags[:, None])))))
    norm = part.norms[-1]
    assert isinstance(norm, torch.nn.LayerNorm)
    with torch.no_grad():
        norm.weight.copy_(torch.randn(5))
        norm.bias.copy_(torch.randn(5))
    torch.testing.assert_close(part(lags), last(torch.relu(norm(hidden))).T)
    assert sum(p.numel() for p in part.parameters()) == 2 * 5 + 2 * (25 + 5) + 2 * 5 + 5 * 3 + 3


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


def test_lags_can_be_scaled_by_the_tasks_length() -> None:
    """Not by a sequence's own, which would let padding change the kernel."""
    part = encoder(3)
    scaled = EncodedToeplitzOperator([part], 3, causal=True, lag_scale=1 / 50)
    expected = part(torch.arange(10, dtype=torch.float64) / 50)
    torch.testing.assert_close(scaled.kernel(10).coefficients, expected)
    for max_length in (50, 200):
        context = MixerContext(dim=8, max_length=max_length, layer=0, depth=1)
        operator = TNN(context, rpe_input="scaled").unit.operator
        assert isinstance(operator, EncodedToeplitzOperator)
        assert operator.lag_scale == 1 / max_length


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


def test_inner_norm_is_of_the_gated_product() -> None:
    mixer = build_mixer("tnn", inner_norm="layer").double()
    assert isinstance(mixer, TNN)
    x = torch.randn(2, 9, 8, dtype=torch.float64)
    seen = []
    mixer.unit.output.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    mixer(x)
    unit = mixer.unit
    gated = torch.nn.functional.silu(unit.gate(x)) * unit.operator(
        torch.nn.functional.silu(unit.value(x))
    )
    torch.testing.assert_close(seen[0], unit.norm(gated))


def test_options_that_need_another_are_refused() -> None:
    with pytest.raises(ValueError, match="decay_learned needs a decay"):
        build_mixer("tnn", decay=None, decay_learned=True)
    with pytest.raises(ValueError, match="rpe_residual concerns hidden layers"):
        build_mixer("tnn", rpe_layers=0, rpe_residual=True)


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
