"""Convolutions over lags: products, cuts, state spaces of kernels, and mixers of one kernel."""

from typing import Any

import pytest
import torch
from torch.nn import functional

from conftest import build_mixer
from lra.models.base import MixerContext
from lra.models.fnet import transform_each
from lra.models.long_conv import FreeConvolution, LongConv, MultiscaleConvolution
from lra.models.ops.toeplitz import (
    LagKernel,
    circulant_multiply,
    depthwise_convolution,
    fast_fft_length,
)
from lra.models.s4d import S4D, DiagonalConvolution
from references import (
    LENGTHS,
    assert_equal_with_gradients,
    close,
    leaf,
    multiply_by_matrix,
)


@pytest.mark.parametrize("length", LENGTHS)
def test_products_equal_toeplitz_matrices(length: int) -> None:
    """Of long kernels by transforms, and of short ones tap by tap."""
    x = leaf(2, length, 3)
    for low, high in ((-length, length), (0, length), (-2, 2), (0, 0), (-2, 20)):
        first, last = max(low, 1 - length), min(high, length - 1)
        coefficients = leaf(3, last - first + 1)
        kernel = LagKernel(coefficients, first)
        for compute in (kernel.multiply, lambda x: depthwise_convolution(x, coefficients, first)):  # noqa: B023
            assert_equal_with_gradients(
                lambda: compute(x),  # noqa: B023
                lambda: multiply_by_matrix(kernel, x),  # noqa: B023
                [x, coefficients],
            )
    # Taps beyond the sequence change nothing.
    taps = torch.randn(3, 2 * length + 9, dtype=torch.float64)
    cut = LagKernel(taps[:, 5 : 2 * length + 4], 1 - length)
    close(depthwise_convolution(x, taps, -length - 4), multiply_by_matrix(cut, x))


def test_the_fft_length_changes_nothing_and_has_small_factors() -> None:
    kernel, x = LagKernel(leaf(3, 61), -30), leaf(2, 31, 3)
    for size in (62, 64, 98, 128):
        close(circulant_multiply(kernel.response(size, x.dtype), size, x), kernel.multiply(x))
    for minimum in (1, 2, 3, 63, 127, 4095, 8193):
        size = fast_fft_length(minimum)
        assert minimum <= size <= 1.25 * minimum + 2
        for factor in (2, 3, 5):
            while size % factor == 0:
                size //= factor
        assert size == 1


WIDE: list[tuple[str, dict[str, Any]]] = [
    ("conv", {"width": 2**16 - 1}),
    ("nystrom", {"convolution_size": 2**16 - 1}),
    ("ski-tnn", {"num_taps": 2**16 - 1}),
    ("reformer", {"chunk_length": 2**16 - 1}),
    ("sinkhorn", {"block_size": 2**16 - 1}),
    ("sparse", {"window_size": 2**16 - 1}),
    *(("sparse", {"block_size": 2**16 - 1, "pattern": p}) for p in ("strided", "bigbird")),
]


@pytest.mark.parametrize(("name", "options"), WIDE)
def test_widths_beyond_the_sequence_cost_nothing(name: str, options: dict[str, Any]) -> None:
    """Their square would be 16 GiB for each channel, in single precision."""
    x = torch.randn(1, 40, 8, requires_grad=True)
    build_mixer(name, **options)(x).square().sum().backward()
    assert x.grad is not None and x.grad.isfinite().all()


def test_fnet_is_the_real_part_of_a_transform_over_each_length() -> None:
    x = torch.randn(2, 9, 8, dtype=torch.float64)
    mixer = build_mixer("fnet")
    torch.testing.assert_close(mixer(x), torch.fft.fft2(x).real)
    x = torch.randn(1, 16384, 1, dtype=torch.complex64)
    expected = torch.fft.fft(x.to(torch.complex128), dim=1)
    error = (transform_each(x, torch.tensor([16384])) - expected).norm()
    assert error < 1e-5 * expected.norm()


def build_long(length: int = 40, *, causal: bool = False, **options: Any) -> LongConv:
    torch.manual_seed(0)
    return LongConv(MixerContext.of(dim=3, length=length, causal=causal), **options).double()


def test_free_kernels_are_smoothed_then_squashed() -> None:
    mixer = build_long(causal=True, smoothing=5, threshold=0.3)
    convolution = mixer.convolution
    assert isinstance(convolution, FreeConvolution)
    convolution.kernels.data.normal_()
    kernels = functional.pad(convolution.kernels.detach()[0], (2, 2))
    mean = torch.stack([kernels[:, n : n + 5].mean(dim=1) for n in range(40)], dim=1)
    expected = mean.sign() * (mean.abs() - 0.3).clamp(min=0)
    close(convolution.kernel(40).coefficients, expected)
    for length in (1, 7, 39):
        close(convolution.kernel(length).coefficients, expected[:, :length])


def test_each_scale_is_stretched_and_half_as_strong() -> None:
    convolution = build_long(256, kernel="multiscale", causal=True).convolution
    assert isinstance(convolution, MultiscaleConvolution)
    kernel = convolution.kernel(256).coefficients * convolution.norm[0]
    close(kernel[:, :64], 4 * convolution.scales[0, 0])
    close(kernel[:, 64:128], 2 * convolution.scales[1, 0])
    # the third is interpolated to 128 lags: a quarter of the way between neighbours
    third = convolution.scales[2, 0]
    close(kernel[:, 129:254:2], 0.75 * third[:, :-1] + 0.25 * third[:, 1:])
    close(kernel[:, 130:255:2], 0.25 * third[:, :-1] + 0.75 * third[:, 1:])


def test_copies_are_joined_by_the_projection() -> None:
    mixer = build_long(copies=2, output="linear")
    x = torch.randn(2, 40, 3, dtype=torch.float64)
    twice = x.repeat(1, 1, 2)
    y = torch.einsum("cij,bjc->bic", mixer.convolution.matrix(40), twice) + mixer.direct * twice
    close(mixer(x), mixer.output(functional.gelu(y)))
    assert mixer.output.in_features == 6


def convolution_of(mixer: S4D) -> DiagonalConvolution:
    assert isinstance(mixer.convolution, DiagonalConvolution)
    return mixer.convolution


def tilted(length: int = 24) -> S4D:
    torch.manual_seed(0)
    mixer = S4D(MixerContext.of(dim=3, length=length), state_size=8, spectral_exponent=True)
    exponent = convolution_of(mixer).exponent
    assert exponent is not None
    exponent.data.copy_(torch.tensor([-1.5, 0.0, 2.0]))
    return mixer.double()


def test_the_output_has_its_spectrum_multiplied() -> None:
    """As AnnanYu/FreqBiasSSM does it: of twice the length, before what is beyond is cut off."""
    mixer = tilted()
    convolution = convolution_of(mixer)
    x = torch.randn(2, 24, 3, dtype=torch.float64)
    behind, ahead = convolution.kernels(24)
    circle = torch.nn.functional.pad(behind, (0, 24)) + torch.nn.functional.pad(
        ahead.flip(-1), (24, 0)
    )
    spectrum = torch.fft.rfft(x.mT, n=48) * torch.fft.rfft(circle, n=48)
    assert convolution.exponent is not None
    spectrum = spectrum * (1 + torch.arange(25).double() / 48) ** convolution.exponent[:, None]
    close(convolution(x), torch.fft.irfft(spectrum, n=48)[..., :24].mT)
