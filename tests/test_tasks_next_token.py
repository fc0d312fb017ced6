"""Windows of a text: every token but the first is scored once, and labels are the next tokens."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tasks.base import NOT_SCORED, TaskInfo
from tasks.next_token import NextToken, windows

INFO = TaskInfo(name="text", num_classes=50, vocab_size=50, max_length=8, targets="position")
TOKENS = np.random.default_rng(0).integers(0, 50, size=61).astype(np.uint8)


@pytest.mark.parametrize("stride", [None, 1, 3, 8])
@pytest.mark.parametrize("total", [2, 8, 9, 10, 61])
def test_each_token_but_the_first_is_scored_once(total: int, stride: int | None) -> None:
    starts, lengths, skipped = windows(total, 8, stride)
    split = NextToken(TOKENS[:total], starts, lengths, skipped=skipped)
    split.check(INFO)
    assert np.array_equal(split.labels, TOKENS[1:total])
    batch = split.batch(np.arange(len(split)))
    assert torch.equal(batch.labels[batch.labels != NOT_SCORED], torch.tensor(TOKENS[1:total]))
    last = np.array([len(split) - 1])
    assert split.count_targets(last) == (split.batch(last).labels != NOT_SCORED).sum()


def test_labels_are_the_tokens_after_the_inputs() -> None:
    starts, lengths, _ = windows(61, 8)
    batch = NextToken(TOKENS, starts, lengths).batch(np.array([3, 0]))
    assert batch.inputs.tolist() == [*TOKENS[24:32], *TOKENS[:8]]
    assert batch.labels.tolist() == [*TOKENS[25:33], *TOKENS[1:9]]
    second = batch.rows(1, 2)
    assert second.labels.tolist() == [*TOKENS[1:9]] and second.lengths.tolist() == [[8]]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"starts": np.array([54])}, "ends outside"),
        ({"lengths": np.array([9])}, "not of 1 to 8"),
        ({"skipped": np.array([8])}, "no target"),
        ({"tokens": TOKENS.astype(np.int64)}, "tokens are int64"),
        ({"tokens": np.full(61, 50, dtype=np.uint8)}, "token 50 is outside"),
    ],
)
def test_what_does_not_hold_is_named(changes: dict[str, np.ndarray], words: str) -> None:
    given = {
        "tokens": TOKENS, "starts": np.array([0]), "lengths": np.array([8]),
        "skipped": np.array([0]),
    }  # fmt: skip
    NextToken(**given).check(INFO)
    with pytest.raises(ValueError, match=words):
        NextToken(**{**given, **changes}).check(INFO)
