"""S4, S4D and DSS against their recurrences and reference sums, and against HiPPO."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lra.models.base import Mixer, MixerContext
from lra.models.dss import DSS, NormalizedConvolution
from lra.models.layers.state_space import StateSpaceConvolution, StateSpaceMixer
from lra.models.ops.hippo import diagonalize_legs, legs
from lra.models.ops.vandermonde import vandermonde_product_reference
from lra.models.s4.mixer import S4, NormalPlusLowRankConvolution
from lra.models.s4d import S4D, DiagonalConvolution, initial_poles
from references import assert_equal_with_gradients, close, run

STEPS: dict[str, Any] = {"step_min": 0.01}
MIXERS: dict[str, tuple[Callable[..., Mixer], dict[str, Any]]] = {
    "s4": (S4, {"state_size": 8}),
    "s4, a copy per channel": (S4, {"state_size": 8, "num_copies": None}),
    "s4d legs zoh": (S4D, {"state_size": 8}),
    "s4d lin bilinear": (
        S4D, {"state_size": 8, "initialization": "lin", "discretization": "bilinear"}
    ),
    "s4d inv": (S4D, {"state_size": 8, "initialization": "inv", "num_copies": None}),
    "dss softmax": (DSS, {"num_states": 4}),
    "dss exp": (DSS, {"num_states": 4, "normalization": "exp"}),
    "dss, two steps": (DSS, {"num_states": 4, "separate_steps": True}),
}  # fmt: skip


def mixer_of(kind: str, length: int, *, causal: bool) -> StateSpaceMixer:
    cls, options = MIXERS[kind]
    context = MixerContext(dim=4, max_length=length, layer=0, depth=1, causal=causal)
    mixer = cls(context, **options, **STEPS).double().eval()
    assert isinstance(mixer, StateSpaceMixer)
    return mixer


def unrolled(a: Tensor, b: Tensor, c: Tensor, length: int) -> Tensor:
    """Unroll C A^l B: a (channels, n, n), b (channels, n, 1), c (directions, channels, 1, n)."""
    state, kernel = b, []
    for _ in range(length):
        kernel.append((c @ state)[..., 0, 0].real)
        state = a @ state
    return torch.stack(kernel, dim=-1)


def reference_kernel(convolution: StateSpaceConvolution, length: int) -> Tensor:
    """Compute a kernel as it is written."""
    if isinstance(convolution, NormalPlusLowRankConvolution):
        return unrolled(*convolution.transition(), convolution.effective_readout(), length)
    if isinstance(convolution, DiagonalConvolution):
        return vandermonde_product_reference(*convolution.discretize(), length)
    assert isinstance(convolution, NormalizedConvolution)
    return dss_by_proposition_1(convolution, length)


def dss_by_proposition_1(convolution: NormalizedConvolution, length: int) -> Tensor:
    """Write out Re(w diag(1 / poles) s), s the row softmax, or (exp(d) - 1) times the powers."""
    is_softmax = convolution.normalization == "softmax"
    real = convolution.decay if is_softmax else -convolution.decay.exp()
    poles = torch.complex(real, convolution.frequency)
    step = convolution.log_step.exp()
    of_real, of_imaginary = step.T if step.dim() > 1 else (step, step)
    powers = torch.complex(of_real[:, None] * real, of_imaginary[:, None] * convolution.frequency)
    powers = powers[..., None] * torch.arange(
        max(length, convolution.max_length), dtype=torch.float64
    )
    if is_softmax:
        shifted = powers - powers.real.amax(dim=-1, keepdim=True)
        rows = shifted.exp() / shifted.exp().sum(dim=-1, keepdim=True)
    else:
        rows = powers.exp() * torch.expm1(powers[..., 1:2])
    weights = torch.view_as_complex(convolution.readout) / poles
    return torch.einsum("dcn,cnl->dcl", weights, rows[..., :length]).real


@pytest.mark.parametrize("kind", MIXERS)
def test_kernels_equal_their_references(kind: str) -> None:
    """Longer sequences than a mixer was made for go on with the kernel."""
    for length, longest in ((1, 2), (3, 3), (100, 100), (127, 127), (333, 50)):
        convolution = mixer_of(kind, longest, causal=False).convolution
        assert_equal_with_gradients(
            lambda: convolution.kernels(length),  # noqa: B023
            lambda: reference_kernel(convolution, length),  # noqa: B023
            list(convolution.parameters()),
            tolerance=1e-8,
        )


@pytest.mark.parametrize("kind", MIXERS)
@pytest.mark.parametrize("causal", [False, True])
def test_layers_are_sums_over_positions(kind: str, causal: bool) -> None:
    """A kernel forwards, and another backwards over the positions ahead."""
    for length in (1, 2, 31):
        mixer = mixer_of(kind, max(length, 2), causal=causal)
        x = torch.randn(2, length, 4, dtype=torch.float64)
        kernels = mixer.convolution.kernels(length)
        mixed = mixer.direct * x
        for i, j in itertools.product(range(length), repeat=2):
            if i >= j:
                mixed[:, i] += kernels[0, :, i - j] * x[:, j]
            elif not causal:
                mixed[:, i] += kernels[1, :, j - i - 1] * x[:, j]
        hidden = mixer.output(torch.nn.functional.gelu(mixed))
        close(mixer(x), hidden[..., :4] * hidden[..., 4:].sigmoid())


@pytest.mark.parametrize("state_size", [2, 4, 16, 64])
def test_normal_plus_low_rank_is_hippo(state_size: int) -> None:
    """The eigenvalues of HiPPO-LegS are -1, -2, ...; its B enters by the products that count."""
    poles, p, b = (torch.cat([v, v.conj()]) for v in diagonalize_legs(state_size)[:3])
    matrix = torch.diag(poles) - p[:, None] * p[None].conj()
    a, into = legs(state_size)
    if state_size <= 16:
        eigenvalues = np.sort(torch.linalg.eigvals(matrix).real.numpy())
        np.testing.assert_allclose(eigenvalues, -np.arange(state_size, 0, -1), rtol=1e-5)
    rows, expected = p.conj()[None] @ b[:, None], into @ np.sqrt(np.arange(state_size) + 0.5)
    assert rows.item() == pytest.approx(expected)
    rank = (p.conj()[None] @ matrix @ b[:, None]).item()
    assert rank == pytest.approx(np.sqrt(np.arange(state_size) + 0.5) @ a @ into)


def test_legs_by_its_formula() -> None:
    a, b = legs(3)
    np.testing.assert_allclose(a, [[-1, 0, 0], [-(3**0.5), -2, 0], [-(5**0.5), -(15**0.5), -3]])
    np.testing.assert_allclose(b, [1, 3**0.5, 5**0.5])


def test_initial_poles_by_their_formulas() -> None:
    lin, inv, start = (initial_poles(kind, 8) for kind in ("lin", "inv", "legs"))
    torch.testing.assert_close(lin.imag, torch.pi * torch.arange(4, dtype=torch.float64))
    assert inv.imag[0].item() == pytest.approx(8 / torch.pi * 7)
    assert inv.imag[3].item() == pytest.approx(8 / torch.pi * (8 / 7 - 1))
    assert {p.real.item() for p in (*lin, *inv, *start)} == {-0.5}
    # S4D-LegS has the poles of the normal part (S4D, section 4.1).
    a, _ = legs(8)
    root = np.sqrt(np.arange(8) + 0.5)
    eigenvalues = np.linalg.eigvals(a + root[:, None] * root)
    np.testing.assert_allclose(start.imag, np.sort(eigenvalues.imag)[4:], rtol=1e-9)


@pytest.mark.parametrize("discretization", ["zoh", "bilinear"])
def test_discretizations_solve_the_differential_equation(discretization: str) -> None:
    """Kernels tend to Delta C exp(A t) B as the step falls; zero-order hold sums to it exactly."""
    context = MixerContext(dim=1, max_length=8, layer=0, depth=1, causal=True)
    options: dict[str, Any] = {"discretization": discretization, "state_size": 4}
    convolution = S4D(context, step_min=1e-4, step_max=1e-4, **options).double().convolution
    assert isinstance(convolution, DiagonalConvolution)
    a = torch.complex(-convolution.log_decay.exp(), convolution.frequency)[0]
    into_states = torch.view_as_complex(convolution.input)[0]
    c = torch.view_as_complex(convolution.readout)[0, 0] * into_states
    times = 1e-4 * (torch.arange(2000, dtype=torch.float64) + 0.5)
    continuous = 1e-4 * 2 * (c[:, None] * torch.exp(a[:, None] * times)).sum(0).real
    difference = (convolution.kernels(2000)[0, 0] - continuous).abs().max()
    assert difference <= 2e-3 * continuous.abs().max()


@pytest.mark.parametrize("rate", [-0.5, 1.0])
def test_growing_poles_step_as_they_convolve(rate: float) -> None:
    context = MixerContext(dim=2, max_length=2048, layer=0, depth=1, causal=True)
    mixer = DSS(context, num_states=4, step_min=0.1, step_max=0.1).eval()
    with torch.no_grad():
        mixer.convolution.get_parameter("decay").fill_(rate)
    x = torch.randn(1, 2048, 2)
    stepped = run(mixer.recurrence(2048), x)
    torch.testing.assert_close(stepped, mixer(x), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("log_step", [-20.0, -14.5, 3.0])
@pytest.mark.parametrize("kind", ["s4", "s4d legs zoh", "s4d lin bilinear", "dss exp"])
def test_steps_that_run_away_leave_finite_gradients(kind: str, log_step: float) -> None:
    convolution = mixer_of(kind, 100, causal=True).float().convolution
    with torch.no_grad():
        convolution.log_step.fill_(log_step)
    values = convolution.kernels(100)
    gradients = torch.autograd.grad(values.square().sum(), list(convolution.parameters()))
    assert all(part.isfinite().all() for part in (values, *gradients))
