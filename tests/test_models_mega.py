"""Mega: its equations one by one, chunks, blocks of queries, and its gate against the residual."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from lra.classifier.block import Block
from lra.classifier.packing import Packing
from lra.config.schema import ModelConfig
from lra.models.base import MixerContext
from lra.models.mega.mixer import DampedAverage, Mega
from references import (
    close,
    randomize,
)


def build(length: int = 24, *, causal: bool = False, **options: Any) -> Mega:
    torch.manual_seed(0)
    mixer = Mega(
        MixerContext.of(dim=6, length=length, causal=causal), attention_dim=5, value_dim=7,
        average_size=4, **options,
    ).double().eval()  # fmt: skip
    return randomize(mixer)


def averaged(average: DampedAverage, x: Tensor) -> Tensor:
    """Run the averages of both directions one position at a time: (length, dim)."""
    result = torch.zeros_like(x)
    length = len(x)
    orders = [range(length), range(length - 1, -1, -1)]
    for n, order in enumerate(orders[: len(average.delta)]):
        p = torch.sigmoid(average.delta[n])
        q = 1 - p * torch.sigmoid(average.alpha[n])
        state = torch.zeros_like(p)
        for k in order:
            state = q * state + p * average.beta[n] * x[k, :, None]
            result[k] += (state * average.gamma[n]).sum(dim=-1) / math.sqrt(p.shape[-1])
    return result


def by_definition(mixer: Mega, x: Tensor) -> tuple[Tensor, Tensor]:
    """Compute value and gate of one sequence from the equations, pair by pair."""
    silu = torch.nn.functional.silu
    length, dim = x.shape
    smoothed = silu(averaged(mixer.average, x) + mixer.direct * x)
    gate, shared, value_gate, direct = mixer.parts(smoothed).split(
        [dim, mixer.attention_dim, mixer.value_dim, dim], dim=-1
    )
    query, key = (
        silu(shared) * mixer.query_key_scale[n] + mixer.query_key_shift[n] for n in (0, 1)
    )
    value = silu(mixer.value(x))
    mixed = torch.zeros_like(value)
    size = mixer.chunk or length
    for i in range(length):
        first = i // size * size
        keys = range(first, i + 1 if mixer.context.causal else min(first + size, length))
        middle = len(mixer.by_lag) // 2
        bias = torch.stack([mixer.by_lag[middle + j - i] for j in keys])
        product = torch.stack([query[i] @ key[j] for j in keys])
        if mixer.weighting == "softmax":
            weights = (product / math.sqrt(mixer.attention_dim) + bias).softmax(dim=0)
        else:
            score = product / len(keys) + bias
            weights = 0.5 * (1 + torch.erf((score - 0.707107) / (0.282095 * math.sqrt(2))))
        mixed[i] = sum((w * value[j] for w, j in zip(weights, keys, strict=True)), mixed[i])
    result = silu(direct + mixer.output(mixed * silu(value_gate)))
    return result, torch.sigmoid(gate)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("chunk", [None, 1, 5, 24])
@pytest.mark.parametrize("weighting", ["softmax", "laplace"])
def test_a_mixer_is_its_equations(weighting: str, chunk: int | None, causal: bool) -> None:
    mixer = build(causal=causal, chunk=chunk, weighting=weighting)
    x = torch.randn(2, 19, 6, dtype=torch.float64)
    found = mixer.value_and_gate(x)
    for row in range(2):
        value, gate = by_definition(mixer, x[row])
        close(found[row], torch.cat([value, gate], dim=-1))
    close(mixer(x), found[..., 6:] * (found[..., :6] - x))


def test_a_block_moves_from_its_input_to_the_value_by_the_gate() -> None:
    torch.manual_seed(0)
    mixer = Mega(MixerContext.of(dim=6, length=9)).double()
    x = torch.randn(9, 6, dtype=torch.float64)
    for prenorm in (True, False):
        config = ModelConfig(dim=6, channel_mixer="none", prenorm=prenorm)
        block = Block(config, mixer).double()
        norm = block.mixer_residual.norm
        taken = norm(x) if prenorm else x
        value, gate = mixer.value_and_gate(taken[None])[0].chunk(2, dim=-1)
        joined = (1 - gate) * x + gate * value
        packing = Packing(torch.tensor([9]), torch.device("cpu"))
        close(block(x, packing), joined if prenorm else norm(joined))
