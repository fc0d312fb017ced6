"""Frequency-tuned S4D: poles stretched along the imaginary axis, spectra tilted."""

from __future__ import annotations

import torch

from models.base import MixerContext
from models.layers.kernel_cache import cache_kernels
from models.s4d import S4D, DiagonalConvolution
from references import close


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


def test_the_tilt_is_that_of_the_longest_length() -> None:
    mixer = tilted()
    whole = convolution_of(mixer).kernel(24)
    part = convolution_of(mixer).kernel(9)
    close(part.coefficients, whole.cut(9).coefficients)
    assert convolution_of(mixer).kernel(60).last_lag == 59


def test_frequencies_are_stretched() -> None:
    context = MixerContext.of(dim=3, length=24)
    plain, stretched = (
        convolution_of(S4D(context, initialization="lin", frequency_scale=scale))
        for scale in (1.0, 3.0)
    )
    torch.testing.assert_close(stretched.frequency, 3 * plain.frequency)
    assert stretched.log_decay.equal(plain.log_decay)


def test_beyond_the_longest_length_a_kernel_that_is_kept_is_not_cut() -> None:
    mixer = tilted().eval()
    x = torch.randn(1, 60, 3, dtype=torch.float64)
    alone = mixer(x[:, :24])
    with torch.no_grad(), cache_kernels():
        mixer(x)
        close(mixer(x[:, :24]), alone)
