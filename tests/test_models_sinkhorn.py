"""Sparse Sinkhorn attention against plain computations, one sequence and one head at a time."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from conftest import build_mixer
from lra.models.sinkhorn import Sinkhorn
from references import assert_equal_with_gradients, close, padded_rows

LENGTHS = [1, 3, 4, 9, 12, 13]
FORMS = [
    {"causal": causal, "joint_softmax": joint}
    for causal, joint in itertools.product((False, True), repeat=2)
]


def build(*, causal: bool = False, **options: Any) -> Sinkhorn:
    options = {"num_heads": 2, "block_size": 3, **options}
    mixer = build_mixer("sinkhorn", causal=causal, max_length=64, **options)
    assert isinstance(mixer, Sinkhorn)
    return mixer.double().eval()


def plain_matrix(logits: Tensor, iterations: int, *, causal: bool) -> list[list[Tensor]]:
    """Normalise weights by division: rows are sources, columns are targets."""
    count = len(logits)
    zero = logits.new_zeros(())
    weights = [
        [zero if causal and s >= t else logits[s, t].exp() for t in range(count)]
        for s in range(count)
    ]
    for _ in range(iterations):
        ends = [t + 1 if causal else count for t in range(count)]
        sums = [[sum(row[:end], zero) for end in ends] for row in weights]
        weights = divide(weights, sums)
        columns = [sum((row[t] for row in weights), zero) for t in range(count)]
        weights = divide(weights, [columns] * count)
    return weights


def divide(weights: list[list[Tensor]], sums: list[list[Tensor]]) -> list[list[Tensor]]:
    """Divide by sums, where they are not 0."""
    return [
        [w / total if total > 0 else w for w, total in zip(row, totals, strict=True)]
        for row, totals in zip(weights, sums, strict=True)
    ]


def plain_result(mixer: Sinkhorn, x: Tensor) -> Tensor:
    """Compute the mixer for one sequence without padding: (length, 8)."""
    size, causal = mixer.block_size, mixer.context.causal
    parts = mixer.query_key_value(x).chunk(3, dim=1)
    channels = parts[0].shape[1] // mixer.num_heads
    heads = []
    for head in range(mixer.num_heads):
        query, key, value = (part[:, head * channels :][:, :channels] for part in parts)
        blocks = [range(start, min(start + size, len(x))) for start in range(0, len(x), size)]
        sums = torch.stack([key[block].sum(dim=0) for block in blocks])
        logits = (sums @ mixer.sort.weight.T)[:, : len(blocks)] / mixer.temperature
        order = plain_matrix(logits, mixer.iterations, causal=causal)
        rows = []
        for i in range(len(x)):
            target = i // size
            weights = [row[target] for row in order]
            own = [(1.0, key[j], value[j]) for j in blocks[target] if j <= i or not causal]
            moved = [
                entry
                for slot in range(size)
                if (entry := sorted_entry(weights, blocks, slot, (key, value))) is not None
            ]
            groups = [own + moved] if mixer.joint_softmax else [own, moved]
            rows.append(sum(attend(query[i], group) for group in groups if group))
        heads.append(torch.stack(rows))
    return mixer.output(torch.cat(heads, dim=1))


def sorted_entry(
    weights: list[Tensor], blocks: list[range], slot: int, parts: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Return the weight, the key and the value of a position of a sorted block, if it has one.

    Args:
        weights: of the blocks in the sorted block.
        blocks: the real positions of each block.
        slot: the position within a block.
        parts: keys and values.
    """
    members = [
        (weight, block[slot])
        for weight, block in zip(weights, blocks, strict=True)
        if slot < len(block) and weight > 0
    ]
    if not members:
        return None
    total = torch.stack([weight for weight, _ in members]).sum()
    key, value = (torch.stack([w * part[j] for w, j in members]).sum(dim=0) for part in parts)
    return total, key, value


def attend(query: Tensor, entries: list[Any]) -> Tensor:
    """Attend to entries of a weight, a key and a value."""
    scale = len(query) ** -0.5
    weights = [weight * (scale * query @ key).exp() for weight, key, _ in entries]
    total = torch.stack(weights).sum()
    return torch.stack(
        [w * value for w, (_, _, value) in zip(weights, entries, strict=True)]
    ).sum(dim=0) / total  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_the_mixer_equals_a_plain_computation_of_each_sequence(form: dict[str, bool]) -> None:
    mixer = build(**form, iterations=3)
    x, mask = padded_rows(LENGTHS, padding=5)
    assert_equal_with_gradients(
        lambda: mixer(x, mask)[mask],
        lambda: torch.cat([plain_result(mixer, row[real]) for row, real in zip(x, mask)]),  # noqa: B905
        [x, *mixer.parameters()],
    )
    (row, *_) = x.detach()
    close(mixer(row[None])[0], plain_result(mixer, row))
