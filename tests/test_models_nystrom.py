"""Nyström attention against plain computations, one sequence at a time."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from conftest import build_mixer
from lra.models.nystrom import Nystrom
from lra.resolve import count_parameters
from references import assert_equal_with_gradients, close, padded_rows
from requested import resolve

LENGTHS = [5, 6, 7, 12, 31, 32]


def build(**options: Any) -> Nystrom:
    mixer = build_mixer("nystrom", **{"num_heads": 2, "num_landmarks": 5, **options})
    assert isinstance(mixer, Nystrom)
    return mixer.double().eval()


def cut(length: int, count: int) -> list[range]:
    """Cut positions into segments: the first ones are the shorter ones."""
    size, longer = divmod(length, count)
    ends = list(itertools.accumulate([size] * (count - longer) + [size + 1] * longer))
    return [range(start, end) for start, end in zip([0, *ends], ends, strict=False)]


def plain_attention(query: Tensor, key: Tensor, value: Tensor, landmarks: int) -> Tensor:
    """Attend in one head of one sequence without padding: (length, channels)."""
    length, channels = query.shape
    if length <= landmarks:
        return (query @ key.T / channels**0.5).softmax(dim=1) @ value
    segments = cut(length, landmarks)
    few_queries, few_keys = (
        torch.stack([part[segment].mean(dim=0) for segment in segments]) for part in (query, key)
    )
    first, middle, last = (
        (left @ right.T / channels**0.5).softmax(dim=1)
        for left, right in ((query, few_keys), (few_queries, few_keys), (few_queries, key))
    )
    inverse = middle.T / max(column.sum() for column in middle.T)
    for _ in range(6):
        product = middle @ inverse
        powers = [torch.linalg.matrix_power(product, power) for power in range(4)]
        inverse = inverse @ (13 * powers[0] - 15 * powers[1] + 7 * powers[2] - powers[3]) / 4
    return first @ inverse @ last @ value


def plain_result(mixer: Nystrom, x: Tensor) -> Tensor:
    """Compute the mixer for one sequence without padding: (length, 8)."""
    parts = mixer.query_key_value(x).chunk(3, dim=1)
    heads = []
    for head in range(mixer.num_heads):
        columns = torch.arange(8).chunk(mixer.num_heads)[head]
        query, key, value = (part[:, columns] for part in parts)
        y = plain_attention(query, key, value, mixer.num_landmarks)
        if mixer.taps is not None:
            half = mixer.taps.shape[1] // 2
            y = y + sum(
                tap * shifted(value, lag - half) for lag, tap in enumerate(mixer.taps[head])
            )
        heads.append(y)
    return mixer.output(torch.cat(heads, dim=1))


def shifted(x: Tensor, lag: int) -> Tensor:
    """Return x[i - lag] at position i, 0 beyond the ends."""
    zeros = x.new_zeros(len(x), x.shape[1])
    return torch.cat([zeros, x, zeros])[len(x) - lag : 2 * len(x) - lag]


@pytest.mark.parametrize("convolution_size", [None, 1, 5])
def test_the_mixer_equals_a_plain_computation_of_each_sequence(
    convolution_size: int | None,
) -> None:
    mixer = build(convolution_size=convolution_size)
    x, mask = padded_rows(LENGTHS, padding=3)
    assert_equal_with_gradients(
        lambda: mixer(x, mask)[mask],
        lambda: torch.cat([plain_result(mixer, row[real]) for row, real in zip(x, mask)]),  # noqa: B905
        [x, *mixer.parameters()],
    )
    for row in x.detach():
        close(mixer(row[None])[0], plain_result(mixer, row))


# By building ModelForSC and ModelForSCDual of mlpen/Nystromformer (LRA/code/model_wrapper.py) with
# the vocabularies and the lengths of protocol lra.
RELEASED_SIZES = {
    "listops": 205_910, "text": 348_238, "retrieval": 372_814, "image": 158_742,
    "pathfinder": 157_710,
}  # fmt: skip


@pytest.mark.parametrize("task", RELEASED_SIZES)
def test_the_nystromformer_is_as_large_as_released(task: str) -> None:
    assert count_parameters(resolve(task, "nystrom", protocol="lra")) == RELEASED_SIZES[task]


@pytest.mark.parametrize("size", [1e-3, 1e-2, 1, 10])
def test_the_result_is_finite_up_to_the_most_iterations(size: float) -> None:
    mixer = build_mixer("nystrom", num_landmarks=16, iterations=20)
    x = (size * torch.randn(4, 100, 8)).requires_grad_()
    y = mixer(x)
    y.square().sum().backward()
    assert x.grad is not None and x.grad.isfinite().all()
    exact = mixer.double()(x.double())
    assert (y - exact).norm() < 0.05 * exact.norm()
