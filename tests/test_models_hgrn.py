"""HGRN and HGRN2: their equations, their axes, and the gates that they share."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from lra.classifier.classifier import Classifier
from lra.models.base import MixerContext
from lra.models.hgrn import HGRN
from lra.models.hgrn2 import HGRN2
from lra.models.layers.lower_bounds import LowerBounds
from references import close, randomize
from requested import resolve


def states_along(mixer: HGRN, x: Tensor, direction: int) -> Tensor:
    """Run one direction of HGRN over a sequence: (length, 8) complex."""
    bounds = mixer.lower_bounds.logits.softmax(dim=0)
    bound = bounds[1 : mixer.context.layer + 1].sum(dim=0)
    turn = torch.polar(torch.ones_like(bound), mixer.phase[direction])
    states = torch.zeros(len(x), 8, dtype=torch.complex128)
    state = torch.zeros(8, dtype=torch.complex128)
    for i in range(len(x))[:: -1 if direction else 1]:
        kept = bound + (1 - bound) * torch.sigmoid(mixer.forget(x[i]))
        pair = functional.silu(mixer.candidate(x[i]))
        entering = torch.complex(pair[0::2], pair[1::2])
        state = kept * turn * state + (1 - kept) * entering
        states[i] = state
    return states


def lines_of(grid: tuple[int, int] | None) -> list[Tensor]:
    """List the 12 positions of each line along which a mixer runs."""
    places = torch.arange(12)
    return [places] if grid is None else [*places.view(grid), *places.view(grid).T]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("grid", [None, (3, 4)])
def test_hgrn_is_its_equations(grid: tuple[int, int] | None, causal: bool) -> None:
    context = MixerContext(dim=8, max_length=12, layer=1, depth=3, causal=causal, grid=grid)
    mixer = randomize(HGRN(context).double())
    x = torch.randn(12, 8, dtype=torch.float64)
    states = torch.zeros(12, 8, dtype=torch.complex128)
    for line in lines_of(grid):
        for direction in range(1 if causal else 2):
            states[line] += states_along(mixer, x[line], direction)
    feature = mixer.norm(torch.cat([states.real, states.imag], dim=-1))
    close(mixer(x[None])[0], mixer.output(feature * functional.silu(mixer.gate(x))))


def results_along(mixer: HGRN2, x: Tensor) -> Tensor:
    """Run HGRN2 over a sequence, up to the norm: (length, 8)."""
    share = mixer.lower_bounds.logits.softmax(dim=0)
    bound = share[1 : mixer.context.layer + 1].sum(dim=0)
    value, query, forget = mixer.value_query_forget(x).split(8, dim=-1)
    value, query = functional.silu(value), torch.sigmoid(query)
    kept = bound + (1 - bound) * torch.sigmoid(forget)
    results = torch.zeros_like(x)
    for head in range(0, 8, 4):
        part = slice(head, head + 4)
        for order in [range(len(x)), range(len(x))[::-1]][: mixer.context.num_directions]:
            state = torch.zeros(4, 4, dtype=torch.float64)
            for i in order:
                entering = torch.outer(1 - kept[i, part], value[i, part])
                state = torch.diag(kept[i, part]) @ state + entering
                results[i, part] += query[i, part] @ state
    return results


def project(mixer: HGRN2, results: Tensor) -> Tensor:
    return mixer.output(functional.layer_norm(results, (8,), mixer.norm.weight, mixer.norm.bias))


def build_hgrn2(grid: tuple[int, int] | None, *, causal: bool, **options: Any) -> HGRN2:
    context = MixerContext(dim=8, max_length=12, layer=1, depth=3, causal=causal, grid=grid)
    return randomize(HGRN2(context, **options).double())


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("grid", [None, (3, 4)])
def test_hgrn2_is_its_equations(grid: tuple[int, int] | None, causal: bool) -> None:
    mixer = build_hgrn2(grid, causal=causal)
    x = torch.randn(12, 8, dtype=torch.float64)
    results = torch.zeros_like(x)
    for line in lines_of(grid):
        results[line] += results_along(mixer, x[line])
    close(mixer(x[None])[0], project(mixer, results))


def test_hgrn2_in_series_mixes_columns_and_then_rows() -> None:
    mixer = build_hgrn2((3, 4), causal=False, grid_axes="series")
    x = expected = torch.randn(12, 8, dtype=torch.float64)
    rows, columns = lines_of((3, 4))[:3], lines_of((3, 4))[3:]
    for lines in (columns, rows):
        before, expected = expected, torch.zeros_like(x)
        for line in lines:
            expected[line] = project(mixer, results_along(mixer, before[line]))
    close(mixer(x[None])[0], expected)


def test_options_of_hgrn2_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"state_size 3 does not divide model\.dim 8"):
        build_hgrn2(None, causal=False, state_size=3)
    with pytest.raises(ValueError, match="series concerns the grid of an image"):
        build_hgrn2(None, causal=False, grid_axes="series")


@pytest.mark.parametrize("bias", [-14.0, 0.0, 14.0])
@pytest.mark.parametrize("layer", [1, 2])
def test_gates_are_exact_near_their_ends(layer: int, bias: float) -> None:
    """In single precision, values and gradients, also where a lower bound is close to 1."""
    bounds, forget = LowerBounds(3, 50), bias + torch.randn(9, 50)
    torch.nn.init.normal_(bounds.logits, std=8)
    found = []
    for dtype in (torch.float32, torch.float64):
        bounds.to(dtype).zero_grad()
        kept, entering = bounds.gates(layer, forget.to(dtype))
        (entering.log() + kept).sum().backward()
        assert bounds.logits.grad is not None
        found.append((kept.double(), entering.double(), bounds.logits.grad.double()))
    for single, double in zip(found[0][:2], found[1][:2], strict=True):
        torch.testing.assert_close(single, double, rtol=5e-6, atol=0)
    assert (found[0][2] - found[1][2]).norm() < 1e-5 * found[1][2].norm()


@pytest.mark.parametrize("name", ["hgrn", "hgrn2"])
def test_forget_gates_near_one_keep_single_precision(name: str) -> None:
    context = MixerContext(dim=8, max_length=64, layer=1, depth=3)
    mixer = randomize(HGRN(context) if name == "hgrn" else HGRN2(context))
    with torch.no_grad():
        forget = mixer.forget if isinstance(mixer, HGRN) else mixer.value_query_forget
        forget.bias[-8:] = 14
    x, results = torch.randn(2, 64, 8), []
    for dtype in (torch.float32, torch.float64):
        mixer.to(dtype).zero_grad()
        y = mixer(x.to(dtype))
        y.square().sum().backward()
        gradient = mixer.lower_bounds.logits.grad
        assert gradient is not None
        results.append((y.detach().double(), gradient.double()))
    for single, double in zip(*results, strict=True):
        assert (single - double).norm() < 2e-5 * double.norm()


def hgrn_config(**settings: Any) -> Any:
    changes = {"model.dim": 8, "model.depth": 3, **settings}
    overrides = [f"{key}={value}" for key, value in changes.items()]
    return resolve("image", "hgrn", preset="quick", overrides=overrides)


@pytest.mark.parametrize("axes", ["flat", "alternate", "native"])
def test_all_blocks_share_their_lower_bounds(axes: str) -> None:
    config = hgrn_config(**{"model.axes": axes})
    model = Classifier(config, config.build_task().info)
    (found,) = (module for module in model.modules() if isinstance(module, LowerBounds))
    assert found.logits.shape == (3, 8)
    mixers = [module for module in model.modules() if isinstance(module, HGRN)]
    assert [mixer.context.layer for mixer in mixers] == [0, 1, 2]
    assert all(mixer.lower_bounds is found for mixer in mixers)
    assert sum("logits" in name for name, _ in model.named_parameters()) == 1
