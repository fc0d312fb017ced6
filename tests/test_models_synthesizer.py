"""The Synthesizer against its equations, written out score by score, for all kinds of scores."""

import math
from collections.abc import Iterator
from itertools import product
from typing import Any, get_args

import pytest
import torch
from torch import Tensor, nn

from conftest import build_mixer
from lra.models.synthesizer import (
    FactorizedRandomScores,
    RandomScores,
    ScoreKind,
    Synthesizer,
)
from references import (
    assert_equal_with_gradients,
)

KINDS = get_args(ScoreKind)
CASES = list(product(KINDS, (False, True), (False, True)))
LONGEST = 37


def mixer_of(scores: str, *, causal: bool = False, **options: Any) -> Synthesizer:
    mixer = build_mixer("synthesizer", causal=causal, max_length=LONGEST, scores=scores, **options)
    assert isinstance(mixer, Synthesizer)
    return mixer.double().eval()


def linear(module: nn.Linear, x: Tensor) -> Tensor:
    y = module.weight @ x
    return y if module.bias is None else y + module.bias


def synthetic_scores(mixer: Synthesizer, x: Tensor, head: int, i: int) -> Iterator[Tensor]:
    """Compute the scores of all positions for position i of one sequence, (length, dim)."""
    scores, heads = mixer.scores, mixer.num_heads
    for j in range(len(x)):
        if isinstance(scores, RandomScores):
            yield scores.table[head, i, j]
        elif isinstance(scores, FactorizedRandomScores):
            yield scores.query[head, i] @ scores.key[head, j]
        else:
            hidden = linear(scores.hidden, x[i]).clamp(min=0).chunk(heads)[head]
            bias = 0 if scores.bias is None else scores.bias[head, j, 0]
            yield scores.key[head, j] @ hidden + bias


def by_equation(mixer: Synthesizer, x: Tensor, *, causal: bool) -> Tensor:
    """Compute softmax(B) G(X) and the output map, for one sequence (length, dim)."""
    rows = []
    for i in range(len(x)):
        heads = []
        seen = range(i + 1 if causal else len(x))
        for head in range(mixer.num_heads):
            scores = torch.stack(list(synthetic_scores(mixer, x, head, i)))
            if mixer.query_key is not None:
                part = head, mixer.num_heads + head
                chunks = [linear(mixer.query_key, x[j]).chunk(2 * mixer.num_heads) for j in seen]
                query = linear(mixer.query_key, x[i]).chunk(2 * mixer.num_heads)[part[0]]
                dots = torch.stack([query @ chunk[part[1]] for chunk in chunks])
                scores = scores[: len(seen)] + dots / math.sqrt(len(query))
            weights = torch.softmax(scores[: len(seen)], dim=0)
            values = [linear(mixer.value, x[j]).chunk(mixer.num_heads)[head] for j in seen]
            heads.append(sum(weight * value for weight, value in zip(weights, values, strict=True)))
        rows.append(linear(mixer.output, torch.cat(heads)))
    return torch.stack(rows)


@pytest.mark.parametrize(("scores", "dot_product", "causal"), CASES)
def test_it_equals_its_equations_with_gradients(
    scores: str, dot_product: bool, causal: bool
) -> None:
    for options in ({"num_heads": 2}, {"attention_dim": 6, "projection_bias": False}):
        given = {"num_heads": 3, "dot_product": dot_product, **options}
        mixer = mixer_of(scores, causal=causal, **given)
        x = torch.randn(2, 12, 8, dtype=torch.float64, requires_grad=True)
        mask = torch.arange(12) < torch.tensor([[12], [5]])

        def written_out(mixer: Synthesizer = mixer, x: Tensor = x) -> Tensor:
            rows = [by_equation(mixer, part, causal=causal) for part in (x[0], x[1, :5])]
            return torch.cat(rows)

        def computed(mixer: Synthesizer = mixer, x: Tensor = x, mask: Tensor = mask) -> Tensor:
            return mixer(x, mask)[mask]

        assert_equal_with_gradients(computed, written_out, [x, *mixer.parameters()], 1e-12)
