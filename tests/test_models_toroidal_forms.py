"""Fast forms of attention on a torus against tables, loops over lags and plain words."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from models.ops.spectral_attention import spectral_attention
from models.ops.torus import Torus
from references import close

WEIGHT = 0.7


def by_definition(parts: Sequence[Tensor], torus: Torus, window: int | None) -> Tensor:
    """Compute spectral attention of one head from what its words say, cell by cell."""
    query, key, value = parts
    axes: list[tuple[int, bool]] = [
        *((size, torus.wrap) for size in torus.sizes),
        (torus.num_platters, torus.depth_wrap),
    ]
    places = torus.coordinates(torch.arange(len(query))).tolist()
    cells: dict[tuple[int, ...], tuple[int, int]] = {
        (*place, platter): (position, platter)
        for position, place in enumerate(places)
        for platter in range(torus.num_platters)
    }

    def before(cell: tuple[int, ...], lag: tuple[int, ...]) -> tuple[int, ...]:
        apart = zip(cell, lag, axes, strict=True)
        return tuple((at - by) % size if wrap else at - by for at, by, (size, wrap) in apart)

    scores: dict[tuple[int, ...], Tensor] = {}
    for lag in itertools.product(
        *(range(size) if wrap else range(1 - size, size) for size, wrap in axes)
    ):
        steps = [
            min(abs(by), size - abs(by)) if wrap else abs(by)
            for by, (size, wrap) in zip(lag, axes, strict=True)
        ]
        if window is not None and max(steps[:-1]) >= window:
            continue
        total = sum(
            query[at] @ key[cells[before(cell, lag)]]
            for cell, at in cells.items() if before(cell, lag) in cells
        ) / (len(cells) * query.shape[-1] ** 0.5)  # fmt: skip
        distance = sum(step / size for step, (size, _) in zip(steps, axes, strict=True))
        scores[lag] = torch.as_tensor(total - WEIGHT * distance, dtype=query.dtype)
    weights = torch.stack(list(scores.values())).softmax(dim=0)
    mixed = torch.zeros_like(value)
    for lag, share in zip(scores, weights, strict=True):
        for cell, at in cells.items():
            if before(cell, lag) in cells:
                mixed[at] += share * value[cells[before(cell, lag)]]
    return mixed


@pytest.mark.parametrize("window", [None, 1, 3])
@pytest.mark.parametrize(("torus", "length"), [
    (Torus((7,), 2), 7), (Torus((8,), 2), 5), (Torus((6,), 3, depth_wrap=True), 6),
    (Torus((6,), 2, wrap=False), 6), (Torus((6,), 2, wrap=False, depth_wrap=True), 4),
    (Torus((3, 4), 2), 12), (Torus((3, 2), 1, wrap=False), 6),
])  # fmt: skip
def test_spectral_attention_is_what_its_words_say(
    torus: Torus, length: int, window: int | None
) -> None:
    parts = torch.randn(3, length, torus.num_platters, 4, dtype=torch.float64)
    query, key, value = parts[:, None, None]
    weight = torch.tensor([WEIGHT], dtype=torch.float64)
    found = spectral_attention(query, key, value, torus, weight=weight, window=window)
    close(found[0, 0], by_definition(list(parts), torus, window))
