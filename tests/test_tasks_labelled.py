"""Splits whose positions have labels that are not the next token."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tasks.base import NOT_SCORED, TaskInfo
from tasks.labelled import LabelledTokens

INFO = TaskInfo(name="made", num_classes=5, vocab_size=9, max_length=4, targets="token")
TOKENS = np.array([8, 0, 1, 2, 3, 4, 5], dtype=np.uint8)
LABELS = np.array([-100, 4, 0, -100, -100, -100, 2], dtype=np.int8)
OFFSETS = np.array([0, 2, 3, 7])


def split_of(**changes: Any) -> LabelledTokens:
    given = {"tokens": TOKENS, "offsets": OFFSETS, "position_labels": LABELS}
    return LabelledTokens(**{**given, **changes})


def test_a_batch_has_the_labels_of_its_positions() -> None:
    split = split_of(fields={"kind": np.array([7, 8, 9])})
    split.check(INFO)
    batch = split.batch(np.array([2, 0]))
    assert batch.inputs.tolist() == [2, 3, 4, 5, 8, 0]
    assert batch.lengths.tolist() == [[4], [2]]
    assert batch.scored is not None and batch.counts is not None
    assert batch.labels.tolist() == [2, 4]
    assert batch.scored.tolist() == [3, 5] and batch.counts.tolist() == [1, 1]
    second = batch.rows(1, 2)
    assert second.scored is not None
    assert second.inputs.tolist() == [8, 0] and second.labels.tolist() == [4]
    assert second.scored.tolist() == [1]
    assert split.count_targets(np.array([2, 0])) == 2
    assert split.labels.tolist() == [4, 0, 2], "the classes of scored positions, in order"
    assert split.metadata()["kind"].tolist() == [7, 8, 9]
    assert split.lengths.tolist() == [2, 1, 4] and len(split) == 3


def labels_with(position: int, label: int) -> np.ndarray:
    labels = LABELS.copy()
    labels[position] = label
    return labels


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"position_labels": labels_with(1, 5)}, "label 5, expected a class from 0 to 4, or -100"),
        ({"position_labels": labels_with(1, -1)}, "label -1, expected a class from 0 to 4"),
        ({"position_labels": labels_with(2, NOT_SCORED)}, "no position of example 1 is scored"),
        ({"position_labels": np.full_like(LABELS, NOT_SCORED)}, "example 0 is scored; label at"),
        (
            {"position_labels": LABELS[:-1]},
            r"labels are int8 \(6,\), expected signed integers \(7,\)",
        ),
        ({"position_labels": LABELS.astype(np.float32)}, "labels are float32"),
        ({"tokens": np.full_like(TOKENS, 9)}, "token 9 is outside the vocabulary of 9"),
        ({"offsets": np.array([0, 2, 7])}, "expected at least one, and each of 1 to 4 positions"),
        (
            {"offsets": np.array([0, 2, 2, 3, 7])},
            "expected at least one, and each of 1 to 4 positions",
        ),
        ({"offsets": np.array([0, 2, 3, 6])}, "ends outside"),
        ({"offsets": np.array([0])}, "ends outside"),
        (
            {"tokens": TOKENS[:0], "position_labels": LABELS[:0], "offsets": np.array([0])},
            "0 sequences, expected at least one",
        ),
    ],
)
def test_what_does_not_hold_is_named(changes: dict[str, np.ndarray], words: str) -> None:
    with pytest.raises(ValueError, match=words) as raised:
        split_of(**changes).check(INFO)
    assert "\n" not in str(raised.value)
