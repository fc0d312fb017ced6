"""Mixing a grid along both axes."""

from typing import Any

import pytest
import torch

from lra.config.registry import MIXERS
from lra.models.base import GridModule, Mixer, MixerContext, RecurrentMixer
from lra.models.layers.long_convolution import LongConvolution
from lra.models.layers.toeplitz_unit import RowsThenColumns
from references import assert_equal_with_gradients, close, randomize
from requested import NOT_CAUSAL

GRIDS = [(3, 5), (5, 3), (4, 4), (1, 7), (7, 1)]
OPTIONS: dict[str, dict[str, Any]] = {"ski-tnn": {"num_inducing_points": 2}}
NATIVE = ["fd-tnn", "ski-tnn", "tnn"]
"""Mixers whose operators act on one axis alone. Toroidal attention is on both at once."""

EVERY_NATIVE = sorted(name for name, cls in MIXERS.classes.items() if cls.has_native_grid)


def native(name: str, grid: tuple[int, int], *, causal: bool = False):
    height, width = grid
    context = MixerContext(
        dim=4, max_length=height * width, layer=0, depth=1, grid=grid, causal=causal
    )
    mixer = MIXERS.classes[name](context, **OPTIONS.get(name, {})).double().eval()
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.normal_()
    (operator,) = (m for m in mixer.modules() if isinstance(m, RowsThenColumns))
    return mixer, operator


@pytest.mark.parametrize("grid", GRIDS, ids=str)
@pytest.mark.parametrize("name", NATIVE)
def test_one_order_doubled_equals_the_published_sum(name: str, grid: tuple[int, int]) -> None:
    if name == "ski-tnn" and 1 in grid:
        pytest.skip("two inducing points need two positions")
    _, operator = native(name, grid)
    x = torch.randn(2, grid[0] * grid[1], 12, dtype=torch.float64, requires_grad=True)
    assert_equal_with_gradients(
        lambda: operator(x), lambda: operator.forward_reference(x), [x, *operator.parameters()]
    )


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_the_map_is_the_kronecker_product_of_the_axes(grid: tuple[int, int]) -> None:
    height, width = grid
    _, operator = native("tnn", grid)
    matrices = []
    for along, length in ((operator.columns, height), (operator.rows, width)):
        assert isinstance(along, LongConvolution)
        matrices.append(along.matrix(length))
    x = torch.randn(2, height * width, 12, dtype=torch.float64)
    for channel in range(12):
        whole = 2 * torch.kron(matrices[0][channel], matrices[1][channel])
        torch.testing.assert_close(operator(x)[..., channel], x[..., channel] @ whole.T)


@pytest.mark.parametrize("name", ["tnn", "fd-tnn"])
def test_causal_grids_do_not_look_ahead_in_raster_order(name: str) -> None:
    mixer, _ = native(name, (3, 5), causal=True)
    x = torch.randn(1, 15, 4, dtype=torch.float64)
    for cut in (1, 7, 12):
        future = x.clone()
        future[:, cut:] = torch.randn_like(future[:, cut:])
        torch.testing.assert_close(mixer(future)[:, :cut], mixer(x)[:, :cut])


def build_native(name: str, grid: tuple[int, int], *, causal: bool = False) -> Mixer:
    context = MixerContext(dim=16, max_length=64, layer=1, depth=3, grid=grid, causal=causal)
    return randomize(MIXERS.classes[name](context, **OPTIONS.get(name, {})).double().eval())


@pytest.mark.parametrize("name", EVERY_NATIVE)
def test_a_grid_of_another_size_reaches_the_mixer(name: str) -> None:
    mixer, larger = build_native(name, (3, 5)), build_native(name, (4, 6))
    larger.load_state_dict(mixer.state_dict())
    for module in mixer.modules():
        if isinstance(module, GridModule):
            module.take_grid((4, 6))
    x = torch.randn(2, 24, 16, dtype=torch.float64)
    if name == "ski-tnn":  # its points stay where they were in the smaller grid
        assert mixer(x).shape == x.shape
    else:
        close(mixer(x), larger(x))
    with pytest.raises(ValueError, match="got 15 positions, expected the 4 x 6 of the grid"):
        mixer(x[:, :15])


@pytest.mark.parametrize("name", sorted({*EVERY_NATIVE} - NOT_CAUSAL))
def test_both_axes_have_no_recurrence(name: str) -> None:
    mixer = build_native(name, (3, 5), causal=True)
    assert isinstance(mixer, RecurrentMixer)
    with pytest.raises(ValueError, match=r"both axes of an image has no recurrence \(model.axes"):
        mixer.recurrence(15)
