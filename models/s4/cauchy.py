"""Sums of fractions on the unit circle: the Cauchy kernel of S4's Algorithm 1."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from lra.models.ops.reference import fast_form_of

CHUNK_NUMBERS = 2**20
"""Largest number of elements in a (channels, states, frequencies) array on a CPU, for its cache."""

GPU_CHUNK_NUMBERS = 2**28
"""The same on a GPU, where launches cost more than memory."""


def in_chunks(compute: Callable[[Tensor], Tensor], angles: Tensor, numbers_each: int) -> Tensor:
    """Compute a function of angles, (count,) -> (..., count), in chunks, to save memory.

    Only results are kept; the backward pass computes each chunk again. `numbers_each` is how many
    numbers the largest array has that the function makes for one angle.
    """
    limit = CHUNK_NUMBERS if angles.device.type == "cpu" else GPU_CHUNK_NUMBERS
    chunk = max(1, limit // numbers_each)
    if len(angles) <= chunk:
        return compute(angles)
    results = []
    for part in angles.split(chunk):
        # No random numbers are drawn inside, so there is no state to put back.
        result = checkpoint(compute, part, use_reentrant=False, preserve_rng_state=False)
        assert isinstance(result, Tensor)
        results.append(result)
    return torch.cat(results, dim=-1)


def resolvent_sums_reference(numerators: Tensor, poles: Tensor, angles: Tensor) -> Tensor:
    """Compute `resolvent_sums` by its formula, fraction by fraction."""
    w = torch.polar(torch.ones_like(angles), -angles)
    total = 0
    for numerator, pole in ((numerators, poles), (numerators.conj(), poles.conj())):
        fractions = 1 / ((1 - w) - pole[..., None] * (1 + w) / 2)
        total = total + (numerator[..., None] * fractions).sum(dim=-2)
    assert isinstance(total, Tensor)
    return total


@fast_form_of(resolvent_sums_reference)
def resolvent_sums(numerators: Tensor, poles: Tensor, angles: Tensor) -> Tensor:
    """Sum numerator / ((1 - w) - pole (1 + w) / 2) over states, at w = exp(-i angle).

    The fraction is what the bilinear transform makes of 1 / (s - pole) (S4, Lemma C.4). Unlike
    the form with 2 (1 - w) / (1 + w), it is finite at w = -1. With the phase exp(-i angle / 2)
    taken out it is 1 / (a c + i (2 s - b c)), where pole = -a + i b, and s and c are the sine and
    cosine of angle / 2. A conjugate pair has one denominator, so that the sums for all numerators
    take two real matrix products with one (channels, states, frequencies) array.

    Args:
        numerators: (sums, channels, states) complex, one of each conjugate pair; the conjugates
            are summed too.
        poles: (channels, states) complex with negative real parts, one of each conjugate pair,
            times the time step.
        angles: (frequencies,) in [0, pi].
    Returns: (sums, channels, frequencies) complex.
    """
    sine, cosine = torch.sin(angles / 2), torch.cos(angles / 2)
    x, y = numerators.real, numerators.imag
    with_cosine = 2 * (x * -poles.real - y * poles.imag)
    rows = torch.cat([with_cosine, 2 * x]).transpose(0, 1)
    both: Any = _Reciprocals.apply(rows, -poles.real, poles.imag, sine, cosine)
    of_cosine, of_sine = torch.complex(*both.transpose(1, 2)).chunk(2)
    phase = torch.complex(cosine, sine)
    return phase * (cosine * of_cosine + torch.complex(torch.zeros_like(sine), 2 * sine) * of_sine)


class _Reciprocals(Function):
    """Sum rows / d over states, where d = (a c)^2 + (b c)^2 - (2 s)^2 + 4 i a c s.

    With v = 1 / d, the gradient in v is a product with the rows, that in d the same times -v^2,
    and those in a and b are sums of the latter over frequencies, weighted by 2 c^2 a, 2 c^2 b
    and 4 c s.
    """

    @staticmethod
    def forward(  # noqa: PLR0917 (an autograd function takes positional arguments alone)
        ctx: Any, rows: Tensor, a: Tensor, b: Tensor, sine: Tensor, cosine: Tensor
    ) -> Tensor:
        """Sum rows, (channels, sums, states), with a and b, (channels, states).

        Returns: (2, channels, sums, frequencies), real and imaginary parts.
        """
        bc = b[..., None] * cosine
        # Factored, because b c and 2 s are close at a resonance.
        real = (bc - 2 * sine).mul_(bc.add_(2 * sine)).add_((a[..., None] * cosine).square_())
        imaginary = 4 * a[..., None] * (cosine * sine)
        # Divided twice by the absolute value, whose square would overflow sooner.
        size = torch.hypot(real, imaginary).reciprocal_()
        real = real.mul_(size).mul_(size)
        imaginary = imaginary.mul_(size).mul_(size).neg_()
        ctx.save_for_backward(rows, a, b, sine, cosine, real, imaginary)
        return torch.stack([torch.bmm(rows, real), torch.bmm(rows, imaginary)])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        rows, a, b, sine, cosine, real, imaginary = ctx.saved_tensors
        of_real, of_imaginary = gradients[0]
        of_rows = torch.bmm(of_real, real.transpose(1, 2))
        of_rows.baddbmm_(of_imaginary, imaginary.transpose(1, 2))
        h_real = torch.bmm(rows.transpose(1, 2), of_real)
        h_imaginary = torch.bmm(rows.transpose(1, 2), of_imaginary)
        # Times v once, as a complex product, and again.
        for _ in range(2):
            turned = h_real * imaginary
            h_real.mul_(real).addcmul_(h_imaginary, imaginary)
            h_imaginary.mul_(real).sub_(turned)
        both = torch.matmul(h_real, -2 * cosine.square())
        of_a = both * a - torch.matmul(h_imaginary, 4 * cosine * sine)
        return of_rows, of_a, both * b, None, None
