"""What the class of a user's own task returns as examples, checked and packed end to end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from common.errors import DataError
from tasks.base import LONGEST_WORD, MOST_CLASSES, NOT_SCORED, OUTCOMES, is_word
from tasks.examples import Examples

LARGEST_TOKEN = 2**31 - 1
LARGEST_REAL = float(np.finfo(np.float32).max)
LARGEST_NUMBER = 2**63 - 1
"""Largest number of a field of metadata."""
FORMS = (
    "a list of sequences, each of whole numbers (length,) or of real ones (length, channels), or "
    "of pairs (tuples) of such; or an array of sequences of one length"
)


def pack_examples(returned: object, *, reals: bool = False) -> Examples:
    """Check and pack what `examples(split, rng)` returned.

    Where sequences are of tokens, labels may be sequences, too, of a class or -1 for each position.

    Args:
        returned: (sequences, labels) or (sequences, labels, metadata).
        reals: whether whole numbers are real numbers, too, because the class states its channels.
    Raises: DataError saying what it is and what was expected.
    """
    if not isinstance(returned, tuple) or len(returned) not in (2, 3):
        raise DataError(
            f"it returned {_kind(returned)}, expected (sequences, labels) or (sequences, labels, "
            f"metadata)"
        )
    given, answers, *more = returned
    of_positions, labels = _all_labels(answers)
    count = len(labels) if of_positions else len(labels[0])
    sequences, towers = _towers(given)
    if of_positions and towers > 1:
        raise DataError(
            "its examples are pairs of sequences, and its labels are those of positions; expected "
            "one sequence of tokens an example, or one label a pair"
        )
    if len(sequences) != towers * count:
        raise DataError(f"{len(sequences) // towers} sequences have {count} labels")
    arrays = [_array(one, f"example {i // towers}", reals) for i, one in enumerate(sequences)]
    _check_kinds(arrays, towers)
    if of_positions:
        _check_position_labels(arrays, labels)
    joined = np.concatenate(labels)
    reserved = OUTCOMES if of_positions else ("label", "prediction")
    return Examples(
        values=np.concatenate(arrays),
        lengths=np.array([len(array) for array in arrays], dtype=np.int64),
        labels=np.where(joined < 0, NOT_SCORED, joined),
        targets="token" if of_positions else "example",
        towers=towers,
        metadata=_metadata(more[0] if more else {}, count, reserved),
    )


def _kind(value: object) -> str:
    return f"a {type(value).__name__}"


def _is_sequence(value: Any) -> bool:
    """Whether a value is a list, a tuple, or an array of NumPy, torch or pandas with an axis."""
    return isinstance(value, (list, tuple)) or getattr(value, "ndim", 0) > 0


def _items(value: Any, what: str, expected: str) -> Sequence[Any]:
    """List what a list, a tuple or an array holds.

    Raises: DataError for anything else.
    """
    if isinstance(value, (list, tuple)):
        return value
    if not (_is_sequence(value) and (array := _plain(value, what)).ndim):
        raise DataError(f"{what} {_kind(value)}, expected {expected}")
    return list(array)


def _plain(value: Any, what: str) -> np.ndarray:
    """Return a value as an array, unless that would silently change what it means."""
    if isinstance(value, (np.matrix, np.ma.MaskedArray)):
        raise DataError(
            f"{what} a numpy {type(value).__name__}, expected plain arrays or lists: every row "
            f"of a matrix is a matrix, and a mask would be lost"
        )
    return np.asarray(value)


def _typed(value: Any, what: str) -> np.ndarray:
    """Return a value as an array of numbers or of text, also where pandas has objects."""
    array = _plain(value, what)
    return np.asarray(array.tolist()) if array.dtype == object else array


def _towers(given: object) -> tuple[Sequence[Any], int]:
    """List the sequences of all examples, and how many one example has."""
    examples = _items(given, "its sequences are", FORMS)
    pairs = [isinstance(one, tuple) and any(map(_is_sequence, one)) for one in examples]
    if not any(pairs):
        return examples, 1
    if not all(pairs):
        raise DataError("some of its examples are pairs of sequences, and some are not")
    if not all(len(pair) == 2 for pair in examples):  # noqa: PLR2004
        raise DataError("some of its examples are tuples of other than two sequences")
    return [sequence for pair in examples for sequence in pair], 2


def _array(sequence: Any, example: str, reals: bool) -> np.ndarray:
    """Return a sequence as (length,) int32 tokens, or as (length, channels) float32.

    Args:
        example: names it in errors.
        reals: see `pack_examples`.
    """
    try:
        array = _typed(sequence, f"{example} is")
    except ValueError as error:
        raise DataError(f"{example} is no array ({error}); expected {FORMS}") from None
    kind, shape = array.dtype.kind, array.shape
    if not array.size:
        raise DataError(f"{example} is empty, expected at least one position")
    if kind in "SU":
        raise DataError(
            f"{example} is text ({str(array.flat[0])[:20]!r}); expected tokens as whole numbers: "
            f"list(text.encode()) gives one for each byte"
        )
    if kind in "iub" and not reals and array.ndim == 2:  # noqa: PLR2004
        raise DataError(
            f"{example} has whole numbers of shape {shape}; state channels = {shape[1]} in the "
            f"class if they are real numbers (length, channels), or give tokens (length,)"
        )
    if kind not in "iubf" or array.ndim not in (1, 2):
        found = f"an array of {array.dtype} {shape}" if shape else _kind(sequence)
        image = "; reshape an image to (height * width, channels)" if array.ndim > 2 else ""  # noqa: PLR2004
        raise DataError(f"{example} is {found}, expected {FORMS}{image}")
    if kind == "f" or reals:
        return _single(array.reshape(len(array), -1), example)
    if array.min() < 0 or array.max() > LARGEST_TOKEN:
        raise DataError(
            f"tokens of {example} reach from {array.min()} to {array.max()}, expected 0 to "
            f"{LARGEST_TOKEN}"
        )
    return array.astype(np.int32)


def _single(array: np.ndarray, example: str) -> np.ndarray:
    """Round numbers (length, channels) to float32, which all of them must be in the range of."""
    real = array if array.dtype.kind == "f" else array.astype(np.float32)
    is_finite = np.isfinite(real)
    if not is_finite.all():
        position, channel = np.argwhere(~is_finite)[0]
        value = "NaN" if np.isnan(real[position, channel]) else "infinity"
        raise DataError(
            f"{example} has {value} at position {position}; replace such numbers, or leave the "
            f"example out"
        )
    largest = np.abs(real).max()
    if largest > LARGEST_REAL:
        raise DataError(
            f"{example} has a number of size {largest:.3g}, expected at most {LARGEST_REAL:.3g}, "
            f"the largest number of float32; scale the inputs down"
        )
    return real.astype(np.float32)


def _check_kinds(arrays: Sequence[np.ndarray], towers: int) -> None:
    """Refuse sequences some of which hold tokens, or have another number of channels than others.

    Raises: DataError that names two examples.
    """
    widths = [array.shape[1:] for array in arrays]
    other = next((i for i, width in enumerate(widths) if width != widths[0]), None)
    if other is None:
        return
    first, second = (
        f"{w[0]} real numbers a position" if w else "tokens" for w in (widths[0], widths[other])
    )
    advice = "; transpose arrays of shape (channels, length)" if widths[0] and widths[other] else ""
    raise DataError(f"example 0 has {first}, and example {other // towers} has {second}{advice}")


def _all_labels(answers: Any) -> tuple[bool, list[np.ndarray]]:
    """Check labels, which are of examples, or of positions if they are sequences.

    Returns: whether they are of positions; and all of them in one array, or one for each example.
    """
    items = _items(answers, "its labels are", "a list or an array with a whole number an example")
    if not any(map(_is_sequence, items)):
        return False, [_labels(items)]
    found: list[np.ndarray] = []
    for number, own in enumerate(items):
        if not _is_sequence(own):
            raise DataError(
                f"example {number} has a single label, and others have one for each position; "
                f"expected the same of all"
            )
        if not len(own):
            raise DataError(f"example {number} has no labels, expected one for each position")
        found.append(_labels(own, example=number))
    return True, found


def _labels(answers: Sequence[Any], example: int | None = None) -> np.ndarray:
    """Return labels as (labels,) int64.

    Args:
        answers: the labels of all examples.
        example: instead, the example whose positions have these labels, or none where they are -1.
    """
    labels = _typed(answers, "its labels are")
    if not labels.size:
        raise DataError("it returned no examples")
    if labels.ndim == 1 and labels.dtype.kind not in "iub":
        _refuse_labels(labels, example)
    if labels.ndim != 1:
        raise DataError(
            f"its labels are {labels.dtype} {labels.shape}, expected a whole number an example"
        )
    lowest = 0 if example is None else -1
    if not lowest <= labels.min() <= labels.max() < MOST_CLASSES:
        unscored = "" if example is None else ", and -1 where a position has none"
        raise DataError(
            f"its labels reach from {labels.min()} to {labels.max()}, expected 0 to "
            f"{MOST_CLASSES - 1}{unscored}"
        )
    return labels.astype(np.int64)


def _refuse_labels(labels: np.ndarray, example: int | None) -> None:
    """Name the first label that is no whole number, and what to do about it.

    Raises: DataError.
    """
    values = labels.tolist()
    is_whole = [isinstance(x, (int, float)) and x == x // 1 for x in values]
    number = 0 if all(is_whole) else is_whole.index(False)
    label = values[number]
    advice = "give each class a number, the same in all splits"
    if isinstance(label, float):
        advice = "regression is not supported; convert classes with astype(int)"
        if math.isnan(label):
            advice = "replace it, or leave the example out"
    place = f"the label of example {number}" if example is None else f"a label of example {example}"
    raise DataError(f"{place} is {repr(label)[:20]}, expected a whole number from 0 on; {advice}")


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
                f"many, -1 where a position has none; or labels of shape (examples,) for one each"
            )
        if own.max() < 0:
            raise DataError(
                f"no position of example {number} has a label; expected at least one class from 0 "
                f"to {MOST_CLASSES - 1}"
            )


def _metadata(given: object, examples: int, reserved: Sequence[str]) -> dict[str, np.ndarray]:
    """Check metadata, whose fields cannot be called as other columns of predictions are."""
    if not isinstance(given, Mapping):
        raise DataError(f"its metadata is {_kind(given)}, expected fields by their names")
    found: dict[str, np.ndarray] = {}
    for name, column in given.items():
        array = _typed(column, f"its metadata {name!r} is")
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
