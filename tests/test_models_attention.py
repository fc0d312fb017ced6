"""Attention that drops weights: equal to torch's where none are, and unbiased where some are."""

import pytest
import torch
from torch import Tensor

import lra.models.fast.attention as fast
from lra.models.ops.attention import attention
from lra.models.ops.reference import reference_forms

NONE_DROPPED = 1e-9
"""A share of weights that rounds to 0, so that the fast form runs and drops none."""
BATCH, HEADS, QUERIES, KEYS = 3, 2, 37, 45


def heads(*channels: int) -> list[Tensor]:
    """Draw queries, keys and values with these channels."""
    lengths = (QUERIES, KEYS, KEYS)
    return [
        torch.randn(BATCH, HEADS, length, size, dtype=torch.float64, requires_grad=True)
        for length, size in zip(lengths, channels, strict=True)
    ]


ALLOWED = {
    "all": None,
    "real keys": torch.arange(KEYS) < torch.tensor([45, 20, 1])[:, None, None, None],
    "pairs": torch.arange(KEYS) <= torch.arange(QUERIES)[:, None],
    "bias": torch.linspace(-3, 3, HEADS * QUERIES * KEYS).view(1, HEADS, QUERIES, KEYS).double(),
}


@pytest.mark.parametrize("pairs", [2**20, 2 * HEADS * QUERIES * KEYS, 300])
@pytest.mark.parametrize("allowed", ALLOWED)
def test_blocks_equal_the_reference(
    allowed: str, pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast, "MOST_PAIRS", pairs)
    monkeypatch.setattr(fast, "FEWEST_ROWS", 2)
    parts = heads(8, 8, 5)
    results = []
    for is_reference in (True, False):
        with reference_forms(is_reference):
            y = attention(*parts, allowed=ALLOWED[allowed], dropout=NONE_DROPPED, scale=0.4)
        results.append((y, *torch.autograd.grad(y.square().sum(), parts)))
    torch.testing.assert_close(results[1], results[0])


def test_causal_attention_equals_the_reference() -> None:
    parts = [part[:, :, :QUERIES].detach() for part in heads(8, 8, 8)]
    with reference_forms():
        expected = attention(*parts, dropout=0.0, causal=True)
    torch.testing.assert_close(attention(*parts, dropout=NONE_DROPPED, causal=True), expected)


def test_a_query_without_a_key_mixes_nothing_as_in_torch() -> None:
    allowed = torch.ones(BATCH, 1, 1, KEYS, dtype=torch.bool)
    allowed[1] = False
    assert attention(*heads(8, 8, 8), allowed=allowed, dropout=0.1)[1].count_nonzero() == 0


def test_the_share_is_dropped_and_the_mean_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast, "MOST_PAIRS", HEADS * QUERIES * KEYS)
    query, key, _ = heads(8, 8, 8)
    value = torch.eye(KEYS, dtype=torch.float64).expand(BATCH, HEADS, -1, -1)
    weights = attention(query, key, value, dropout=0.0)
    dropped = attention(query, key, value, dropout=0.25)
    kept = dropped != 0
    assert kept.double().mean().item() == pytest.approx(0.75, abs=0.02)
    assert not kept[0].equal(kept[1])  # each block draws anew
    torch.testing.assert_close(dropped[kept], (weights / 0.75)[kept])


def test_the_backward_pass_drops_the_same_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast, "MOST_PAIRS", 60)
    monkeypatch.setattr(fast, "FEWEST_ROWS", 2)
    parts = [part[:, :, :6, :3].detach().requires_grad_() for part in heads(3, 3, 3)]

    def attend(*parts: Tensor) -> Tensor:
        torch.manual_seed(0)
        return attention(*parts, dropout=0.4)

    assert torch.autograd.gradcheck(attend, parts)


def test_threads_do_not_change_what_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast, "MOST_PAIRS", 300)
    parts, results, before = heads(8, 8, 8), [], torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            torch.manual_seed(0)
            results.append(attention(*parts, dropout=0.4))
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(*results)
