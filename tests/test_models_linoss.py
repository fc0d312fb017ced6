"""LinOSS: the cascade of two recurrences against that of pairs of velocity and position."""

import pytest
import torch
from torch import Tensor

from lra.models.base import MixerContext
from lra.models.linoss import Discretization, LinOSS, OscillatorStates
from references import assert_equal_with_gradients, leaf


def by_pairs(states: OscillatorStates, x: Tensor) -> Tensor:
    """Compute Re(C y) as published, one position at a time."""
    a, step = states.stiffness.relu(), states.step.sigmoid()
    if states.discretization == "im":
        solved = 1 / (1 + step**2 * a)
        of_z, of_y = (solved, -step * a * solved), (step * solved, solved)
        force = step * solved, step**2 * solved
    else:
        of_z, of_y = (torch.ones_like(a), -step * a), (step, 1 - step**2 * a)
        force = step, step**2
    into = torch.view_as_complex(states.input)
    results = []
    for direction, readout in enumerate(torch.view_as_complex(states.readout)):
        z = y = torch.zeros(len(x), len(a), dtype=into.dtype)
        positions = []
        for u in (x.flip(1) if direction else x).unbind(dim=1):
            driven = u.to(into.dtype) @ into.T
            z, y = (
                of_z[0] * z + of_z[1] * y + force[0] * driven,
                of_y[0] * z + of_y[1] * y + force[1] * driven,
            )
            positions.append((y @ readout.T).real)
        mixed = torch.stack(positions, dim=1)
        results.append(mixed.flip(1) if direction else mixed)
    return torch.stack(results).sum(dim=0)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("discretization", ["im", "imex"])
@pytest.mark.parametrize("stiffness", ["start", "none", "small", "large"])
def test_oscillators_are_their_equations(
    discretization: Discretization, causal: bool, stiffness: str
) -> None:
    """Also where the matrix of a pair has one eigenvalue alone, or almost, or two real ones."""
    context = MixerContext.of(dim=3, length=40, causal=causal)
    states = OscillatorStates(context, state_size=5, discretization=discretization).double()
    values = {
        "none": [0.0, -1.0, 0.0, -0.5, 1.0],
        "small": [1e-4, 1e-6, 1e-8, 1e-10, 1.0],
        "large": [4.0, 20.0, 1e2, 1e3, 1.0] if discretization == "im" else [16.0, 9.0, 12, 16, 1.0],
    }
    with torch.no_grad():
        if stiffness in values:
            states.stiffness.copy_(torch.tensor(values[stiffness]))
        states.step.copy_(torch.tensor([0.0, 0.1, 0.4, -0.3, 2.0]))
    x = leaf(2, 40, 3)
    assert_equal_with_gradients(
        lambda: states.run(x), lambda: by_pairs(states, x), [x, *states.parameters()]
    )


def test_oscillators_start_as_released() -> None:
    """All evenly: A and the steps in [0, 1], B and C up to the inverse root of their inputs."""
    states = LinOSS(MixerContext.of(dim=100, length=8), state_size=400).states
    bounds = {"stiffness": (0, 1), "step": (0, 1), "input": (-0.1, 0.1), "readout": (-0.05, 0.05)}
    assert {name for name, _ in states.named_parameters()} == {*bounds}
    for name, parameter in states.named_parameters():
        low, high = bounds[name]
        assert parameter.min() >= low
        assert parameter.max() <= high
        spread = (high - low) / 12**0.5
        assert parameter.mean().item() == pytest.approx((low + high) / 2, abs=0.15 * spread)
        assert parameter.std().item() == pytest.approx(spread, rel=0.1)


@pytest.mark.parametrize("rate", [None, 0.1])
def test_oscillators_have_their_learning_rate_and_do_not_decay(rate: float | None) -> None:
    mixer = LinOSS(MixerContext.of(dim=4, length=8), state_lr=rate)
    names = {parameter: name for name, parameter in mixer.named_parameters()}
    found = {names[parameter]: own for parameter, own in mixer.learning_rates().items()}
    assert found == dict.fromkeys(["states.stiffness", "states.step", "states.input"], rate)
