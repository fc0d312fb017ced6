"""FD-TNN: causality, and the theory of decay; docs/mixers.md has its equation."""

from __future__ import annotations

import pytest
import torch

from models.fd_tnn import FrequencyInput, FrequencyOperator
from models.layers.basic import Activation
from models.layers.toeplitz_unit import RelativePositionEncoder


@pytest.mark.parametrize("frequency_input", ["angle", "cosine"])
def test_causal_kernels_have_no_past(frequency_input: FrequencyInput) -> None:
    encoder = RelativePositionEncoder(
        4, dim=8, num_layers=2, activation="relu", norm="simple_rms", residual=False
    ).double()
    operator = FrequencyOperator(
        encoder, 4, max_length=64, causal=True, frequency_input=frequency_input
    )
    energy = torch.fft.irfft(operator.response(128), n=128).square()
    assert energy[:, 65:].sum() < 1e-20 * energy.sum()
    assert energy[:, 1:64].sum() > 1e-3 * energy.sum()


def tails(activation: Activation, frequency_input: FrequencyInput) -> list[float]:
    """Measure log10 of the energy beyond lags 30, 40, 60 and 70, a mean over twenty encoders.

    One activation, without a norm: a norm divides by a root, which is smooth on the real line
    but not entire, and hides what sets GELU apart. Its input's slopes are ten times those of
    a linear layer at the start, so that the classes part before rounding hides the tails.
    """
    levels = []
    for seed in range(20):
        torch.manual_seed(seed)
        encoder = RelativePositionEncoder(
            4, dim=16, num_layers=0, activation=activation, norm="none", residual=False
        ).double()
        with torch.no_grad():
            encoder.first.weight *= 10
        operator = FrequencyOperator(
            encoder, 4, max_length=1024, causal=True, frequency_input=frequency_input
        )
        energy = operator.generate(1024).coefficients.detach().square()
        whole = energy[:, 1:].sum(1)
        beyond = [energy[:, lag:].sum(1) / whole for lag in (30, 40, 60, 70)]
        levels.append(torch.stack(beyond).log10().mean(dim=1))
    return torch.stack(levels).mean(dim=0).tolist()


def test_smoother_activations_have_shorter_tails() -> None:
    """Theorems 2 to 4, where the response is as smooth as they assume."""
    gelu, silu, relu = (tails(name, "cosine") for name in ("gelu", "silu", "relu"))
    assert gelu[-1] < silu[-1] - 2 < relu[-1] - 10
    # GELU falls faster than any exponential, SiLU like one, ReLU like a power of the lag.
    assert gelu[3] - gelu[2] < 1.3 * (gelu[1] - gelu[0])
    assert silu[3] - silu[2] == pytest.approx(silu[1] - silu[0], rel=0.15)
    assert relu[3] - relu[2] > 0.6 * (relu[1] - relu[0])


def test_of_the_angle_itself_every_response_has_kinks() -> None:
    """Its even continuation bends at 0 and pi, so that all activations have a power's tail."""
    for activation in ("gelu", "silu", "relu"):
        level = tails(activation, "angle")
        assert level[-1] > -8
        assert level[3] - level[2] > -0.5
