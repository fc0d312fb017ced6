"""What a task of a user's own returns as examples, checked and packed end to end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tasks.base import LONGEST_WORD, MOST_CLASSES, NOT_SCORED, OUTCOMES, Split, is_word
from tasks.errors import DataError
from tasks.labelled import LabelledTokens
from tasks.splits import Packed, PackedReals, PackedTokens, RealSequences, Sequences

LARGEST_TOKEN = 2**31 - 1
LARGEST_REAL = float(np.finfo(np.float32).max)
LARGEST_NUMBER = 2**63 - 1
"""Largest number of a field of metadata."""
_SEQUENCES = (list, tuple, np.ndarray)
FORMS = (
    "a list of sequences, each of whole numbers (length,) or of real ones (length, channels), or "
    "of pairs (tuples) of such; or an array of sequences of one length"
)


@dataclass(frozen=True, kw_only=True)
class Examples:
    """Examples of one split, their sequences stored end to end."""

    values: np.ndarray
    """(positions,) int32 tokens, or (positions, channels) float32."""
    lengths: np.ndarray
    """(examples * towers,) int64, tower by tower of each example."""
    labels: np.ndarray
    """(examples,) int64; or, if positions have labels, (positions,) with NOT_SCORED elsewhere."""
    targets: Literal["example", "token"] = "example"
    """What has a label, see `TaskInfo.targets`."""
    towers: int
    metadata: Mapping[str, np.ndarray]
    """Fields by which results are broken down, each (examples,) int64 or text."""

    @property
    def channels(self) -> int | None:
        """Real numbers a position; None for tokens."""
        return self.values.shape[1] if self.values.ndim > 1 else None

    @property
    def offsets(self) -> np.ndarray:
        """Where each sequence begins and the last one ends, (sequences + 1,) int64."""
        return np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int64)

    @property
    def which(self) -> np.ndarray:
        """Sequences of each example, (examples, towers)."""
        return np.arange(len(self.lengths)).reshape(-1, self.towers)

    @property
    def classes(self) -> np.ndarray:
        """Classes of all labels, (targets,)."""
        return self.labels[self.labels != NOT_SCORED]

    def __len__(self) -> int:
        return len(self.lengths) // self.towers

    def split(self) -> Split:
        """Return the examples as a split."""
        if self.targets == "token":
            return LabelledTokens(self.values, self.offsets, self.labels, dict(self.metadata))
        return OwnTokens(self) if self.channels is None else OwnReals(self)

    def same(self, other: Examples) -> bool:
        """Whether sequences and labels are those of other examples."""
        return all(
            np.array_equal(getattr(self, name), getattr(other, name))
            for name in ("values", "lengths", "labels")
        )

    def identical(self, other: Examples) -> bool:
        """Whether sequences, labels and metadata are those of other examples."""
        return (
            self.same(other)
            and list(self.metadata) == list(other.metadata)
            and all(
                np.array_equal(self.metadata[name], other.metadata[name]) for name in other.metadata
            )
        )

    def keys(self) -> list[bytes]:
        """Return bytes for every example that are equal where the sequences are."""
        offsets, width = self.offsets, self.towers
        return [
            self.lengths[i : i + width].tobytes()
            + self.values[offsets[i] : offsets[i + width]].tobytes()
            for i in range(0, len(self.lengths), width)
        ]


def pack_examples(returned: object) -> Examples:
    """Check and pack what `examples(split, rng)` returned.

    Args:
        returned: (sequences, labels) or (sequences, labels, metadata).
    Where sequences are of tokens, labels may be sequences, too, of a class or -1 for each position.

    Raises: DataError saying what it is and what was expected.
    """
    if not isinstance(returned, tuple) or len(returned) not in (2, 3):
        raise DataError(
            f"it returned {_kind(returned)}, expected (sequences, labels) or (sequences, labels, "
            f"metadata)"
        )
    given, answers, *more = returned
    of_positions = _are_of_positions(answers)
    labels = _labels_of_positions(answers) if of_positions else [_labels(answers)]
    count = len(labels) if of_positions else len(labels[0])
    sequences, towers = _towers(given)
    if of_positions and towers > 1:
        raise DataError(
            "its examples are pairs of sequences, and its labels are those of positions; expected "
            "one sequence of tokens an example, or one label a pair"
        )
    if len(sequences) != towers * count:
        raise DataError(f"{len(sequences) // towers} sequences have {count} labels")
    arrays = [_array(sequence) for sequence in sequences]
    values = _end_to_end(arrays)
    if of_positions:
        _check_position_labels(arrays, labels)
    joined = np.concatenate(labels)
    reserved = OUTCOMES if of_positions else ("label", "prediction")
    return Examples(
        values=values,
        lengths=np.array([len(array) for array in arrays], dtype=np.int64),
        labels=np.where(joined < 0, NOT_SCORED, joined),
        targets="token" if of_positions else "example",
        towers=towers,
        metadata=_metadata(more[0] if more else {}, count, reserved),
    )


def _are_of_positions(answers: Any) -> bool:
    """Whether labels are those of positions: a sequence for each example."""
    if isinstance(answers, np.ndarray):
        return answers.ndim > 1
    return isinstance(answers, (list, tuple)) and any(isinstance(x, _SEQUENCES) for x in answers)


def _check_position_labels(arrays: Sequence[np.ndarray], labels: Sequence[np.ndarray]) -> None:
    """Refuse labels of positions that do not fit their sequences.

    Raises: DataError that names the first example.
    """
    for number, (array, own) in enumerate(zip(arrays, labels, strict=True)):
        if array.ndim > 1:
            raise DataError("labels of positions need sequences of tokens, one to an example")
        if len(own) != len(array):
            raise DataError(
                f"example {number} has {len(array)} positions and {len(own)} labels; expected as "
                f"many, -1 where a position has none"
            )
        if own.max() < 0:
            raise DataError(
                f"no position of example {number} has a label; expected at least one class from 0 "
                f"to {MOST_CLASSES - 1}"
            )


def _towers(given: object) -> tuple[Sequence[Any], int]:
    """List the sequences of all examples, and how many one example has."""
    if isinstance(given, np.ndarray):
        return list(_plain(given, "its sequences are")), 1
    if not isinstance(given, (list, tuple)):
        raise DataError(f"its sequences are {_kind(given)}, expected {FORMS}")
    pairs = [
        isinstance(one, tuple) and any(isinstance(part, _SEQUENCES) for part in one)
        for one in given
    ]
    if not any(pairs):
        return given, 1
    if not all(pairs):
        raise DataError("some of its examples are pairs of sequences, and some are not")
    if not all(len(pair) == 2 for pair in given):  # noqa: PLR2004
        raise DataError("some of its examples are tuples of other than two sequences")
    return [sequence for pair in given for sequence in pair], 2


def _array(sequence: Any) -> np.ndarray:
    try:
        array = _plain(sequence, "a sequence is")
    except ValueError as error:
        raise DataError(f"a sequence is no array ({error}); expected {FORMS}") from None
    shaped = (array.dtype.kind in "iub" and array.ndim == 1) or (
        array.dtype.kind == "f" and array.ndim in (1, 2)
    )
    if not shaped or not array.size:
        raise DataError(f"a sequence is {array.dtype} {array.shape}; expected {FORMS}")
    if array.dtype.kind == "f":
        return _single(array.reshape(len(array), -1))
    if array.min() < 0 or array.max() > LARGEST_TOKEN:
        raise DataError(
            f"tokens reach from {array.min()} to {array.max()}, expected 0 to {LARGEST_TOKEN}"
        )
    return array.astype(np.int32)


def _plain(value: Any, what: str) -> np.ndarray:
    """Return a value as an array, unless that would silently change what it means."""
    if isinstance(value, (np.matrix, np.ma.MaskedArray)):
        raise DataError(
            f"{what} a numpy {type(value).__name__}, expected plain arrays or lists: every row "
            f"of a matrix is a matrix, and a mask would be lost"
        )
    return np.asarray(value)


def _single(array: np.ndarray) -> np.ndarray:
    """Round real numbers to float32, which all of them must be in the range of."""
    if not np.isfinite(array).all():
        raise DataError("a sequence holds numbers that are not finite")
    largest = np.abs(array).max()
    if largest > LARGEST_REAL:
        raise DataError(
            f"a sequence holds a number of size {largest:.3g}, expected at most "
            f"{LARGEST_REAL:.3g}, the largest number of float32; scale the inputs down"
        )
    return array.astype(np.float32)


def _end_to_end(arrays: Sequence[np.ndarray]) -> np.ndarray:
    kinds = {("tokens" if a.ndim == 1 else f"{a.shape[1]} real numbers") for a in arrays}
    if len(kinds) > 1:
        raise DataError(f"its sequences hold {' and '.join(sorted(kinds))} a position")
    return np.concatenate(arrays)


def _labels_of_positions(answers: Sequence[Any]) -> list[np.ndarray]:
    found: list[np.ndarray] = []
    for number, own in enumerate(answers):
        if not isinstance(own, _SEQUENCES):
            raise DataError(
                f"example {number} has a single label, and others have one for each position; "
                f"expected the same of all"
            )
        if not len(own):
            raise DataError(f"example {number} has no labels, expected one for each position")
        found.append(_labels(own, lowest=-1))
    return found


def _labels(answers: object, lowest: int = 0) -> np.ndarray:
    labels = _plain(answers, "its labels are")
    if labels.shape == (0,):
        raise DataError("it returned no examples")
    if labels.ndim != 1 or labels.dtype.kind not in "iub":
        raise DataError(
            f"its labels are {labels.dtype} {labels.shape}, expected a whole number an example"
        )
    if not lowest <= labels.min() <= labels.max() < MOST_CLASSES:
        unscored = "" if lowest == 0 else ", and -1 where a position has none"
        raise DataError(
            f"its labels reach from {labels.min()} to {labels.max()}, expected 0 to "
            f"{MOST_CLASSES - 1}{unscored}"
        )
    return labels.astype(np.int64)


def _metadata(given: object, examples: int, reserved: Sequence[str]) -> dict[str, np.ndarray]:
    """Check metadata, whose fields cannot be called as other columns of predictions are."""
    if not isinstance(given, Mapping):
        raise DataError(f"its metadata is {_kind(given)}, expected fields by their names")
    found: dict[str, np.ndarray] = {}
    for name, column in given.items():
        array = _plain(column, f"its metadata {name!r} is")
        if array.shape != (examples,) or array.dtype.kind not in "iubU":
            raise DataError(
                f"its metadata {name!r} is {array.dtype} {array.shape}, expected a whole number or "
                f"a word an example"
            )
        if not is_word(name) or name in (*reserved, "length"):
            raise DataError(f"its metadata cannot be called {name!r}; rename it")
        if array.dtype.kind == "U" and not all(map(is_word, array.tolist())):
            raise DataError(
                f"its metadata {name!r} has words of over {LONGEST_WORD} letters, or odd ones"
            )
        if array.dtype.kind == "u" and array.max() > LARGEST_NUMBER:
            raise DataError(
                f"its metadata {name!r} reaches up to {array.max()}, expected at most "
                f"{LARGEST_NUMBER}"
            )
        found[name] = array if array.dtype.kind == "U" else array.astype(np.int64)
    return found


def _kind(value: object) -> str:
    return f"a {type(value).__name__}"


class _OwnExamples(Packed):
    """Examples that a user's class has made, with their metadata."""

    def __init__(self, examples: Examples) -> None:
        kind = Sequences if examples.channels is None else RealSequences
        sequences = kind(examples.values, examples.offsets)
        super().__init__(sequences, examples.labels, examples.which)
        self.examples = examples

    def metadata(self) -> dict[str, np.ndarray]:
        """See `Split.metadata`."""
        return dict(self.examples.metadata)


class OwnTokens(_OwnExamples, PackedTokens):
    """Sequences of tokens."""


class OwnReals(_OwnExamples, PackedReals):
    """Sequences of real numbers."""
