"""Attention: a window against a mask of all pairs, and rotary positions."""

from __future__ import annotations

import pytest
import torch

from models.base import MixerContext
from models.transformer import Transformer, rotate


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
