"""Grids before a mixer: flat, along one axis at a time, native."""

from dataclasses import replace

import pytest
import torch

from lra.classifier.block import AlongAxis, build_layers
from lra.classifier.classifier import Classifier
from lra.config.schema import RunConfig
from lra.models.base import MixerContext
from lra.models.conv import Convolution
from lra.tasks.base import TaskInfo
from lra.tasks.goals import ExampleClass
from requested import resolve

GRID = (3, 5)
IMAGE = TaskInfo(name="image", goal=ExampleClass(4), max_length=15, channels=1, grid=GRID)


def config_of(mixer: str, axes: str, *settings: str) -> RunConfig:
    """Resolve a flat configuration, and give it the axes: no task has a grid yet."""
    overrides = ["model.dim=8", "model.depth=3", *settings]
    config = resolve("listops", mixer, preset="quick", overrides=overrides)
    return replace(config, model=config.model.model_copy(update={"axes": axes}))


def classify(config: RunConfig, images: torch.Tensor) -> torch.Tensor:
    torch.manual_seed(0)
    model = Classifier(config, IMAGE).double().eval()
    lengths = torch.full((len(images), 1), 15)
    return model(images.reshape(-1, 1), lengths)


def convolution(length: int) -> Convolution:
    context = MixerContext(dim=2, max_length=length, layer=0, depth=1)
    return Convolution(context, width=3).double()


@pytest.mark.parametrize("axis", ["rows", "columns"])
def test_a_mixer_sees_each_line_as_a_sequence(axis: str) -> None:
    mixer = convolution(5)
    x = torch.randn(2, 15, 2, dtype=torch.float64)
    image = x.view(2, *GRID, 2)
    expected = torch.zeros_like(image)
    for i in range(GRID[0] if axis == "rows" else GRID[1]):
        place = (slice(None), i) if axis == "rows" else (slice(None), slice(None), i)
        expected[place] = mixer(image[place])
    along = AlongAxis(mixer, GRID, axis)  # pyright: ignore[reportArgumentType]
    torch.testing.assert_close(along(x), expected.flatten(1, 2))


def test_images_are_independent() -> None:
    images = torch.randn(4, 15, dtype=torch.float64)
    for axes in ("alternate", "native"):
        config = config_of("tnn", axes)
        together = classify(config, images)
        for i in range(4):
            torch.testing.assert_close(classify(config, images[i : i + 1])[0], together[i])


def test_causal_alternation_does_not_look_ahead() -> None:
    config = config_of("tnn", "alternate", "model.causal=true", "model.norm=layer")
    layers = [layer.double().eval() for layer in build_layers(config, IMAGE, 15, 2)]
    x = torch.randn(1, 15, 8, dtype=torch.float64)
    changed = x.clone()
    changed[:, 7:] += 1
    for layer in layers * 2:
        x, changed = layer(x), layer(changed)
    torch.testing.assert_close(x[:, :7], changed[:, :7])


def test_a_grid_is_never_padded() -> None:
    along = AlongAxis(convolution(5), GRID, "rows")
    x = torch.randn(1, 15, 2, dtype=torch.float64)
    with pytest.raises(ValueError, match="a grid without padding"):
        along(x, torch.ones(1, 15, dtype=torch.bool))
    with pytest.raises(ValueError, match="got 14 positions, expected the 3 x 5 of the grid"):
        along(x[:, :14])
