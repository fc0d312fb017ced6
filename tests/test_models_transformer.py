"""Attention: a window against a mask of all pairs, and rotary positions."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from conftest import build_mixer
from models.base import MixerContext
from models.ops.local_attention import allowed_pairs, local_attention
from models.transformer import Transformer, rotate
from references import assert_equal_with_gradients


@pytest.mark.parametrize("length", [1, 2, 3, 31, 64, 100])
@pytest.mark.parametrize("window", [1, 4, 16])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_local_attention_equals_a_mask_of_all_pairs(
    length: int, window: int, causal: bool, padded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("models.ops.local_attention.BLOCK", 8)
    query, key, value = (
        torch.randn(2, 3, length, 4, dtype=torch.float64, requires_grad=True) for _ in range(3)
    )
    mask = torch.ones(2, length, dtype=torch.bool)
    mask[0, (length + 1) // 2 :] = not padded
    given = mask if padded else None

    def by_mask() -> torch.Tensor:
        allowed = allowed_pairs(length, window, given, causal=causal, device=mask.device)
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=allowed)

    def local() -> torch.Tensor:
        return local_attention(query, key, value, given, window=window, causal=causal, dropout=0.0)

    assert_equal_with_gradients(local, by_mask, [query, key, value])


@pytest.mark.parametrize("causal", [False, True])
def test_a_window_bounds_what_is_seen(causal: bool) -> None:
    for length in (5, 300):  # a mask of all pairs, and blocks
        mixer = build_mixer("transformer", causal=causal, window=3).double().eval()
        x = torch.randn(1, length, 8, dtype=torch.float64)
        changed = x.clone()
        changed[0, 2] += 1
        moved = (mixer(changed) - mixer(x))[0].abs().amax(dim=-1) > 1e-12
        assert moved.nonzero().flatten().tolist() == ([2, 3, 4] if causal else [0, 1, 2, 3, 4])


@pytest.mark.parametrize("padded", [False, True])
def test_local_attention_keeps_what_is_linear_in_the_length(padded: bool) -> None:
    """Not a table of pairs for every block, head or example."""
    kept: dict[int, int] = {}
    for length in (2048, 4096):
        sizes: dict[int, int] = {}

        def pack(tensor: torch.Tensor, sizes: dict[int, int] = sizes) -> torch.Tensor:
            sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        query = torch.randn(2, 2, length, 4, requires_grad=True)
        mask = torch.ones(2, length, dtype=torch.bool) if padded else None
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            local_attention(query, query, query, mask, window=128, causal=False, dropout=0.0)
        kept[length] = sum(sizes.values())
    assert kept[4096] - kept[2048] < 1.2 * 8 * 2048 * 2 * 2 * 4


def test_dropout_reaches_local_attention() -> None:
    x = torch.randn(1, 400, 8)
    mixer = build_mixer("transformer", window=4, attention_dropout=0.5)
    assert not torch.equal(mixer(x), mixer(x))
    mixer.eval()
    assert torch.equal(mixer(x), mixer(x))


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


def test_rotary_products_depend_on_distance_alone() -> None:
    query, key = torch.randn(8, dtype=torch.float64), torch.randn(8, dtype=torch.float64)
    queries, keys = rotate(query.expand(50, 8)), rotate(key.expand(50, 8))
    products = queries @ keys.T
    for distance in (0, 3, 20):
        along = products.diagonal(distance)
        torch.testing.assert_close(along, along[:1].expand_as(along))
    assert products.diagonal(3)[0] != products.diagonal(20)[0]
    torch.testing.assert_close(queries.norm(dim=1), query.norm().expand(50))
    torch.testing.assert_close(queries[0], query)


def test_rotary_is_not_rounded_by_bfloat16() -> None:
    x = torch.ones(1, 1000, 4, dtype=torch.bfloat16)
    close = (rotate(x).float() - rotate(x.float())).abs().max()
    assert close < 0.01


def test_rotary_tells_orders_apart() -> None:
    x = torch.randn(1, 6, 8, dtype=torch.float64)
    swapped = x[:, [0, 2, 1, 3, 4, 5]]
    for rotary in (False, True):
        mixer = build_mixer("transformer", rotary=rotary).double().eval()
        same = torch.allclose(mixer(x)[:, 5], mixer(swapped)[:, 5])
        assert same != rotary


def test_rotary_needs_pairs_of_channels() -> None:
    with pytest.raises(ValueError, match="rotary turns pairs of channels"):
        build_mixer("transformer", num_heads=8, rotary=True)
