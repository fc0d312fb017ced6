"""Attention: a window against a mask of all pairs, and rotary positions."""

from __future__ import annotations

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from conftest import build_mixer
from models.base import MixerContext
from models.transformer import Transformer, rotate


def test_blocks_computed_again_draw_the_same_dropout(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU, `checkpoint` keeps the random state of the devices of its tensors only."""
    calls: list[int] = []

    def watched(compute: object, *arguments: object, **options: object) -> object:
        calls.append(sum(isinstance(argument, torch.Tensor) for argument in arguments))
        return checkpoint(compute, *arguments, **options)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr("models.ops.local_attention.checkpoint", watched)
    mixer = build_mixer("transformer", window=4, attention_dropout=0.5)
    mask = torch.arange(400) < 390
    mixer(torch.randn(1, 400, 8), mask[None]).sum().backward()
    assert len(calls) > 1
    assert min(calls) == 3


def test_attention_can_be_narrower_than_the_model_and_have_no_bias() -> None:
    """`qkv_features` and `bias` of Flax's SelfAttention, on which the Long Range Arena rests."""
    context = MixerContext(dim=8, max_length=9, layer=0, depth=1)
    mixer = Transformer(context, num_heads=2, attention_dim=4, projection_bias=False).double()
    assert sum(p.numel() for p in mixer.parameters()) == 4 * 8 * 4
    x = torch.randn(3, 9, 8, dtype=torch.float64)
    query, key, value = (
        (x @ part.T).unflatten(-1, (2, 2)).transpose(1, 2)
        for part in mixer.query_key_value.weight.chunk(3)
    )
    weights = torch.softmax(query @ key.transpose(-1, -2) / 2**0.5, dim=-1)
    expected = (weights @ value).transpose(1, 2).flatten(2) @ mixer.output.weight.T
    torch.testing.assert_close(mixer(x), expected)
    with pytest.raises(ValueError, match="num_heads 3 does not divide attention_dim 4"):
        Transformer(context, num_heads=3, attention_dim=4)


def test_rotary_by_its_formula() -> None:
    x = torch.randn(7, 4, dtype=torch.float64)
    for position in range(7):
        for pair, rate in ((0, 1.0), (1, 10000**-0.5)):
            turned = torch.complex(x[position, pair], x[position, pair + 2])
            turned = turned * torch.polar(torch.ones(()), torch.tensor(position * rate))
            torch.testing.assert_close(rotate(x)[position, pair], turned.real, check_dtype=False)
            torch.testing.assert_close(
                rotate(x)[position, pair + 2], turned.imag, check_dtype=False
            )
