"""Linformer against its equation, written out head by head, and what may share projections."""

import math
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from conftest import build_mixer
from lra.classifier.classifier import Classifier
from lra.models.base import MixerContext
from lra.models.linformer import LengthProjection, Linformer, Sharing
from references import (
    assert_equal_with_gradients,
)
from requested import resolve

SHARINGS = get_args(Sharing)


def mixer_of(sharing: str, **options: Any) -> Linformer:
    mixer = build_mixer("linformer", max_length=40, sharing=sharing, projected_length=5, **options)
    assert isinstance(mixer, Linformer)
    return mixer.double().eval()


def by_equation(mixer: Linformer, x: Tensor) -> Tensor:
    """Compute softmax(Q (E K)^T / sqrt(d_k)) (F V) W^O for one sequence, (length, dim).

    Every head has its own E and F, and a shorter sequence is padded with zeros.
    """
    outputs = []
    parts = [mixer.query(x), *mixer.key_value(x).chunk(2, dim=1)]
    size = parts[0].shape[1] // mixer.num_heads
    weight = mixer.projection.weight
    for head in range(mixer.num_heads):
        query, key, value = (part[:, size * head : size * (head + 1)] for part in parts)
        own = head % weight.shape[1]
        e, f = weight[0, own], weight[-1, own]
        zeros = torch.zeros(mixer.max_length - len(x), size, dtype=x.dtype)
        key, value = e @ torch.cat([key, zeros]), f @ torch.cat([value, zeros])
        weights = torch.softmax(query @ key.T / math.sqrt(size), dim=1)
        outputs.append(weights @ value)
    y = torch.cat(outputs, dim=1) @ mixer.output.weight.T
    return y if mixer.output.bias is None else y + mixer.output.bias


@pytest.mark.parametrize("sharing", SHARINGS)
@pytest.mark.parametrize(
    "options",
    [{}, {"num_heads": 2, "attention_dim": 6, "projection_bias": False}],
    ids=["default", "narrow"],
)
def test_it_equals_its_equation_with_gradients(sharing: str, options: dict[str, Any]) -> None:
    mixer = mixer_of(sharing, **options)
    x = torch.randn(2, 40, 8, dtype=torch.float64, requires_grad=True)
    mask = torch.arange(40) < torch.tensor([[40], [23]])

    def written_out() -> Tensor:
        return torch.cat([by_equation(mixer, x[0]), by_equation(mixer, x[1, :23])])

    leaves = [x, *mixer.parameters()]
    assert_equal_with_gradients(lambda: mixer(x, mask)[mask], written_out, leaves, 1e-12)


def model_of(sharing: str, *changes: str) -> Classifier:
    small = ["model.dim=8", "model.depth=3", f"mixer.sharing={sharing}", *changes]
    config = resolve("listops", "linformer", preset="quick", overrides=small)
    return Classifier(config, config.build_task().info)


@pytest.mark.parametrize(
    ("sharing", "count", "heads"), [("key_value", 3, 1), ("layers", 1, 1), ("layers_by_head", 1, 4)]
)
def test_all_blocks_of_a_model_may_share_one(sharing: str, count: int, heads: int) -> None:
    model = model_of(sharing)
    found = [m for m in model.modules() if isinstance(m, LengthProjection)]
    assert len(found) == count
    shapes = [p.shape for name, p in model.named_parameters() if "projection" in name]
    assert shapes == count * [(1, heads, 64, 144)]


def test_the_shared_module_has_the_defaults_of_the_options() -> None:
    context = MixerContext.of(dim=8, length=20)
    assert Linformer.shared(context) is None
    for sharing, heads in {"layers": 1, "layers_by_head": 4}.items():
        shared = Linformer.shared(context, sharing=sharing)
        assert shared is not None
        assert shared.weight.shape == (1, heads, 64, 20)
