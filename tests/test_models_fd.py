"""FD-TNN against the Toeplitz matrix of its response, and the theory of decay."""

from __future__ import annotations

import pytest
import torch

from models.fd_tnn import FrequencyInput, FrequencyOperator
from models.layers.relative_position_encoder import RelativePositionEncoder
from models.ops.activations import Activation


def encoder_of(
    outputs: int, activation: Activation = "relu", dim: int = 8, seed: int = 0
) -> RelativePositionEncoder:
    torch.manual_seed(seed)
    return RelativePositionEncoder(
        outputs, dim=dim, num_layers=2, activation=activation, norm="simple_rms", residual=False
    ).double()


def operator_of(
    channels: int,
    max_length: int,
    *,
    causal: bool,
    activation: Activation = "relu",
    frequency_input: FrequencyInput = "angle",
) -> FrequencyOperator:
    encoder = encoder_of(channels if causal else 2 * channels, activation)
    return FrequencyOperator(
        encoder, channels, max_length=max_length, causal=causal, frequency_input=frequency_input
    )


def hilbert_transform_by_definition(real: torch.Tensor) -> torch.Tensor:
    """Compute the discrete Hilbert transform of a real, even response by its sum.

    (H k)[m] = sum over l of h[m - l] k[l], where h[l] is 0 for even l, and
    2 / size * cot(pi l / size) for odd l, which is 2 / (pi l), as in Definition 1, for a size
    that grows without bound.

    Args:
        real: (channels, size / 2 + 1), the response from 0 to pi.
    Returns: (channels, size / 2 + 1); the causal kernel's response is real - i * (H real).
    """
    size = 2 * (real.shape[1] - 1)
    circle = torch.cat([real, real[:, 1:-1].flip(1)], dim=1)
    places = torch.arange(size, dtype=real.dtype, device=real.device)
    odd = torch.where(places % 2 == 1, 2 / size / torch.tan(torch.pi * places / size), 0)
    index = (torch.arange(real.shape[1])[:, None] - torch.arange(size)[None]) % size
    return circle @ odd[index].T


def kernel_by_definition(operator: FrequencyOperator, size: int) -> torch.Tensor:
    """Invert the response over the whole circle, term by term: (channels, size) complex."""
    half = operator.response(size)
    circle = torch.cat([half, half[:, 1:-1].flip(1).conj()], dim=1)
    place = torch.arange(size, dtype=torch.float64)
    turns = 2 * torch.pi * (place[:, None] * place % size) / size
    return circle @ torch.polar(torch.ones_like(turns), turns) / size


@pytest.mark.parametrize("frequency_input", ["angle", "cosine"])
def test_causal_kernels_have_no_past(frequency_input: FrequencyInput) -> None:
    operator = operator_of(4, 64, causal=True, frequency_input=frequency_input)
    kernel = kernel_by_definition(operator, 128)
    energy = kernel.abs().square()
    assert energy[:, 65:].sum() < 1e-20 * energy.sum()
    assert energy[:, 1:64].sum() > 1e-3 * energy.sum()


@pytest.mark.parametrize("size", [2, 4, 64, 250])
def test_causal_response_is_a_hilbert_pair(size: int) -> None:
    operator = operator_of(3, max(1, size // 2), causal=True)
    real = operator.encode(size)
    expected = torch.complex(real, -hilbert_transform_by_definition(real))
    torch.testing.assert_close(operator.response(size), expected, rtol=1e-9, atol=1e-12)


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
