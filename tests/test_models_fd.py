"""FD-TNN: causality; docs/mixers.md has its equation."""

from __future__ import annotations

import pytest
import torch

from models.fd_tnn import FrequencyInput, FrequencyOperator
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
