"""States that all channels share (S5, LRU): the recurrence, other forms, laws at the start."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from lra.models.base import DecayingAt, MixerContext
from lra.models.layers.shared_states import SharedStateMixer
from lra.models.lru import LRU
from lra.models.s5 import S5
from references import close

MIXERS: list[tuple[type[S5 | LRU], dict[str, Any]]] = [
    (S5, {"state_size": 8, "num_blocks": 2}),
    (S5, {"state_size": 8, "discretization": "bilinear", "gate": "half_glu2"}),
    (LRU, {"state_size": 6, "radius_min": 0.3}),
    (LRU, {"state_size": 6, "gate": "half_glu1"}),
]


def unrolled(mixer: SharedStateMixer[Any], x: Tensor) -> Tensor:
    """Compute a mixer from its equations, one position and one sum at a time, in NumPy's manner."""
    poles, into = (part.detach() for part in mixer.states.discretize())
    readouts = mixer.states.readouts().detach()
    length = x.shape[0]
    mixed = torch.zeros_like(x)
    for readout, order in zip(readouts, [range(length), range(length - 1, -1, -1)], strict=False):
        state = torch.zeros(len(poles), dtype=poles.dtype)
        for k in order:
            state = poles * state + into @ x[k].to(poles.dtype)
            mixed[k] += (readout @ state).real
    y = mixed + mixer.direct * x
    active = 0.5 * y * (1 + torch.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y**3)))
    gate = active @ mixer.output.weight.T + mixer.output.bias
    if mixer.gate == "glu":
        first, second = gate.chunk(2, dim=-1)
        return first * torch.sigmoid(second)
    return (active if mixer.gate == "half_glu1" else y) * torch.sigmoid(gate)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("cls", "options"), MIXERS)
def test_a_mixer_is_its_equations(
    cls: type[S5 | LRU], options: dict[str, Any], causal: bool
) -> None:
    torch.manual_seed(0)
    mixer = cls(MixerContext.of(dim=5, length=40, causal=causal), **options).double()
    x = torch.randn(2, 40, 5, dtype=torch.float64)
    found = mixer(x)
    for row in range(2):
        close(found[row], unrolled(mixer, x[row]))


@pytest.mark.parametrize(("options", "expected"), [
    ({}, {"real_part": 1e-3, "frequency": 1e-3, "log_step": 1e-3, "input": 1e-3}),
    (
        {"step_has_run_lr": True, "rate_groups": "input_and_readout_decay"},
        {"real_part": 1e-3, "frequency": 1e-3, "input": DecayingAt(1e-3)},
    ),
    ({"rate_groups": "input_fast"}, {"real_part": 1e-3, "frequency": 1e-3, "log_step": 1e-3}),
    (
        {"rate_groups": "no_decay"},
        dict.fromkeys(
            ["real_part", "frequency", "log_step", "input", "readout", "direct"], 1e-3
        ),
    ),
])  # fmt: skip
def test_rates_are_grouped_as_in_the_published_code(
    options: dict[str, Any], expected: dict[str, Any]
) -> None:
    mixer = S5(MixerContext.of(dim=4, length=8), **options)
    names = {parameter: name.split(".")[-1] for name, parameter in mixer.named_parameters()}
    assert {names[p]: rate for p, rate in mixer.learning_rates().items()} == expected


def test_clipped_poles_decay_whatever_is_learned() -> None:
    for clips in (False, True):
        mixer = S5(MixerContext.of(dim=3, length=9), state_size=4, clip_poles=clips)
        with torch.no_grad():
            mixer.states.real_part.fill_(0.5)
        sizes = mixer.states.discretize()[0].abs()
        assert bool((sizes < 1).all()) == clips
        assert bool((sizes > 1).all()) != clips
