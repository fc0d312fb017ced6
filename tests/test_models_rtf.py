"""RTF: kernels against the equations of their coefficients, and learning rates."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from lra.models.base import DecayingAt, MixerContext
from lra.models.rtf import RTF, RationalConvolution
from references import assert_equal_with_gradients, close


def build(length: int, state_size: int, scale: float) -> RationalConvolution:
    """Build kernels of 4 channels with 2 denominators, whose coefficients have a size."""
    context = MixerContext.of(dim=4, length=length)
    convolution = RationalConvolution(context, copies=2, state_size=state_size).double()
    with torch.no_grad():
        for parameter in convolution.parameters():
            parameter.copy_(torch.randn_like(parameter) * scale)
    return convolution


def coefficients(convolution: RationalConvolution, period: int) -> tuple[Tensor, Tensor]:
    """Return a, with its first 1, and b, of delays 0, 1, ...: (2, 4, period)."""
    a, b = convolution.denominator.repeat_interleave(2, dim=1), convolution.numerator
    missing = period - 1 - b.shape[-1]
    return functional.pad(functional.pad(a, (1, 0), value=1.0), (0, missing)), functional.pad(
        b, (1, missing)
    )


def with_ahead(convolution: RationalConvolution, kernels: Tensor) -> Tensor:
    """Add h_0 of the second direction to its first lag."""
    assert convolution.ahead is not None
    delta = functional.one_hot(torch.tensor(0), kernels.shape[-1])
    return torch.stack([kernels[0], kernels[1] + convolution.ahead[:, None] * delta])


def by_circulant_matrices(convolution: RationalConvolution, length: int) -> Tensor:
    """Solve the circular convolution a * k = b over a period, whatever the poles."""
    period = convolution.resolution(length)
    a, b = coefficients(convolution, period)
    delays = (torch.arange(period)[:, None] - torch.arange(period)) % period
    kernels = torch.linalg.solve(a[..., delays], b)
    return with_ahead(convolution, kernels[..., :length])


def by_difference_equation(convolution: RationalConvolution, length: int) -> Tensor:
    """Run h[l] = b[l] - a_1 h[l - 1] - ... - a_n h[l - n], and add what later periods hold."""
    period = convolution.resolution(length)
    total = 10 * period
    a, b = coefficients(convolution, total)
    response: list[Tensor] = []
    for lag in range(total):
        delays = range(1, min(lag, convolution.numerator.shape[-1]) + 1)
        past = [a[..., delay] * response[lag - delay] for delay in delays]
        response.append(b[..., lag] - sum(past, torch.zeros_like(b[..., 0])))
    folded = torch.stack(response, dim=-1).unflatten(-1, (-1, period)).sum(dim=-2)
    return with_ahead(convolution, folded[..., :length])


@pytest.mark.parametrize(("length", "longest", "state_size"), [
    (1, 2, 1), (9, 9, 3), (40, 40, 8), (12, 40, 8), (30, 20, 5), (7, 7, 16),
])  # fmt: skip
def test_kernels_equal_their_references(length: int, longest: int, state_size: int) -> None:
    """Kernels of shorter, equal and longer sequences than max_length, and than the state."""
    for reference, scale in (
        (by_circulant_matrices, 0.5),
        (by_difference_equation, 0.2 / state_size),
    ):
        convolution = build(longest, state_size, scale)
        assert_equal_with_gradients(
            lambda: convolution.kernels(length),  # noqa: B023
            lambda: reference(convolution, length),  # noqa: B023
            list(convolution.parameters()),
        )


def test_the_second_direction_begins_at_the_next_position() -> None:
    convolution = build(6, 2, 0.5)
    with torch.no_grad():
        convolution.numerator.zero_()
    assert convolution.ahead is not None
    close(convolution.matrix(6), convolution.ahead[:, None, None] * torch.ones(5).diag(1))


@pytest.mark.parametrize(("options", "expected"), [
    ({}, "the run's"),
    ({"kernel_lr": 0.1}, DecayingAt(0.1)),
    ({"kernel_decays": False}, None),
    ({"kernel_lr": 0.1, "kernel_decays": False}, 0.1),
])  # fmt: skip
def test_transfer_functions_have_their_learning_rate(
    options: dict[str, Any], expected: object
) -> None:
    mixer = RTF(MixerContext.of(dim=4, length=8), **options)
    rates = mixer.learning_rates()
    found = {name: rates.get(p, "the run's") for name, p in mixer.named_parameters()}
    own = {name for name in found if not name.startswith("output.")}
    assert own == {"direct", *(f"convolution.{n}" for n in ("denominator", "numerator", "ahead"))}
    assert found == {name: expected if name in own else "the run's" for name in found}
