"""Examples of a user's own task: what its class returned, checked and packed into a split."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lra.common.errors import DataError, format_value
from lra.tasks.base import LONGEST_WORD, MOST_CLASSES, is_word
from lra.tasks.goals import (
    NOT_SCORED,
    ExampleClass,
    ExampleLabels,
    ExampleNumbers,
    ExampleValues,
    Goal,
    PositionLabels,
)
from lra.tasks.splits import LabelledTokens, PackedSequences, Sequences

LARGEST_TOKEN = 2**31 - 1
FORMS = (
    "a list or array of sequences, each of whole numbers (length,) or of real ones (length, "
    "channels), or of pairs (tuples) of such"
)


def pack_examples(
    returned: object, *, reals: bool = False, goal: type[Goal] | None = None
) -> PackedSequences:
    """Check and pack what `examples(split, rng)` returned.

    Args:
        returned: (sequences, labels) or (sequences, labels, metadata).
        reals: whether whole numbers are real numbers, too, because the class states its channels.
        goal: what labels are for. None: real numbers are values, other sequences labels of
            positions (a class or -1 for each), and whole numbers classes.
    Returns: a split of int32 tokens or float32 numbers, with labels as the goal takes them.
    Raises: DataError saying what it is and what was expected.
    """
    if not isinstance(returned, tuple) or len(returned) not in (2, 3):
        raise DataError(
            f"it returned a {type(returned).__name__}, expected (sequences, labels) or (sequences, "
            f"labels, metadata)"
        )
    examples, answers = _list_items(returned[0], "sequences"), _list_items(returned[1], "labels")
    if not len(examples) or len(examples) != len(answers):
        raise DataError(
            f"it returned {len(examples)} sequences and {len(answers)} labels, expected a label "
            f"for each, and at least one"
        )
    arrays, towers = _pack_sequences(examples, reals)
    goal = goal or _infer_goal(answers)
    if issubclass(goal, ExampleNumbers):
        labels = _pack_numbers(answers, goal)
    elif goal is PositionLabels:
        labels = _pack_position_labels(answers, arrays, towers)
    else:
        labels = _pack_labels(answers, "its labels", 0)
    reserved = goal.columns(labels.shape[-1])
    return build_split(
        np.concatenate(arrays),
        np.array([len(array) for array in arrays]),
        labels,
        _pack_metadata(returned[2], len(answers), reserved) if len(returned) > 2 else {},  # noqa: PLR2004
        towers=towers,
        goal=goal,
    )


def _pack_sequences(examples: Sequence[Any], reals: bool) -> tuple[list[np.ndarray], int]:
    """Return the sequences of all examples, see `_pack_sequence`, and how many each example has."""
    widths = {
        len(example) if isinstance(example, tuple) and any(map(_is_sequence, example)) else 1
        for example in examples
    }
    if widths not in ({1}, {2}):
        raise DataError("some of its examples are tuples of two sequences, and some are not")
    (towers,) = widths
    sequences = [x for pair in examples for x in pair] if towers > 1 else examples
    arrays = [_pack_sequence(x, f"example {i // towers}", reals) for i, x in enumerate(sequences)]
    for number, array in enumerate(arrays):
        if array.shape[1:] != arrays[0].shape[1:]:
            raise DataError(
                f"example {number // towers} has positions of shape {array.shape[1:]}, and example "
                f"0 of {arrays[0].shape[1:]}; transpose arrays of shape (channels, length)"
            )
    return arrays, towers


def _infer_goal(answers: Sequence[Any]) -> type[Goal]:
    """Tell from labels what they are for.

    Raises: DataError for real numbers that are all whole, which may be classes.
    """
    arrays = [_read_array(answer, "one of its labels") for answer in answers]
    if reals := [array for array in arrays if array.dtype.kind == "f"]:
        if all((array == np.floor(array)).all() for array in reals):
            raise DataError(
                f"its labels are whole numbers of a real type, such as "
                f"{format_value(reals[0].tolist())}; give whole numbers for classes, or write "
                f"goal = ExampleValues(1) (from lra.tasks.goals) for real numbers"
            )
        return ExampleValues
    return PositionLabels if any(map(_is_sequence, answers)) else ExampleClass


def build_split(
    values: np.ndarray,
    lengths: np.ndarray,
    labels: np.ndarray,
    metadata: Mapping[str, np.ndarray],
    *,
    towers: int,
    goal: type[Goal],
) -> PackedSequences:
    """Build a split of sequences that are stored end to end, tower by tower of each example.

    Labels are as the goal takes them; if positions have labels (positions,), with NOT_SCORED
    elsewhere.
    """
    sequences = Sequences(values, np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]))
    if goal is PositionLabels:
        return LabelledTokens(sequences, labels, metadata)
    which = np.arange(len(lengths)).reshape(-1, towers)
    return PackedSequences(sequences, labels, which, metadata, goal=goal)


def describe_kind(examples: PackedSequences) -> dict[str, Any]:
    """Describe what all splits of a task have in common, in fields of `TaskInfo`; of its goal only
    the kind.
    """
    tokens = examples.sequences.tokens
    return {
        "channels": tokens.shape[1] if tokens.ndim > 1 else None,
        "towers": examples.which.shape[1],
        "goal": examples.goal,
    }


def list_arrays(examples: PackedSequences) -> dict[str, np.ndarray]:
    """List the arrays that `build_split` takes, and the columns of metadata by their numbers."""
    in_positions = isinstance(examples, LabelledTokens)
    return {
        "values": examples.sequences.tokens,
        "lengths": examples.sequences.lengths,
        "labels": examples.position_labels if in_positions else examples.labels,
        **{f"metadata{i}": column for i, column in enumerate(examples.fields.values())},
    }


def is_same(a: PackedSequences, b: PackedSequences) -> bool:
    """Whether examples are the same, but for real numbers, which machines round differently."""
    arrays, others = list_arrays(a), list_arrays(b)
    return list(a.fields) == list(b.fields) and all(
        array.shape == others[name].shape and _is_close(array, others[name])
        for name, array in arrays.items()
    )


def _is_close(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether arrays of one shape are equal; of real numbers, in any unit, but for rounding."""
    if a.dtype.kind != "f":
        return np.array_equal(a, b)
    return np.allclose(a, b, atol=min(1e-8, 1e-6 * float(np.abs(a).max(initial=0))))


def _is_sequence(value: Any) -> bool:
    """Whether a value is a list, a tuple, or an array of NumPy, torch or pandas with an axis."""
    return isinstance(value, (list, tuple)) or getattr(value, "ndim", 0) > 0


def _list_items(value: Any, name: str) -> Sequence[Any]:
    if isinstance(value, (list, tuple)):
        return value
    if not _is_sequence(value):
        raise DataError(f"its {name} are a {type(value).__name__}, expected a list or array")
    return list(_read_array(value, f"its {name}"))


def _read_array(value: Any, name: str) -> np.ndarray:
    """Return a value as an array of numbers or text, unless that would change what it means."""
    if isinstance(value, (np.matrix, np.ma.MaskedArray)):
        raise DataError(f"{name} has a numpy {type(value).__name__}, expected plain arrays")
    try:
        array = np.asarray(value)
        return np.asarray(array.tolist()) if array.dtype == object else array
    except ValueError as error:
        raise DataError(f"{name} is no array ({error}); expected {FORMS}") from None


def _pack_sequence(value: Any, name: str, reals: bool) -> np.ndarray:
    """Return a sequence as (length,) int32 tokens, or as (length, channels) float32."""
    array = _read_array(value, name)
    if not array.size:
        raise DataError(f"{name} is empty, expected at least one position; leave it out")
    is_real = array.dtype.kind == "f" or (reals and array.dtype.kind in "iub")
    if array.dtype.kind not in "iubf" or array.ndim not in (1, 1 + is_real):
        raise DataError(
            f"{name} is an array of {array.dtype} {array.shape}, expected {FORMS}; whole numbers "
            f"are real ones if the class states its channels"
        )
    if not is_real:
        if array.min() < 0 or array.max() > LARGEST_TOKEN:
            raise DataError(
                f"tokens of {name} reach from {array.min()} to {array.max()}, expected 0 to "
                f"{LARGEST_TOKEN}"
            )
        return array.astype(np.int32)
    with np.errstate(over="ignore"):
        real = array.reshape(len(array), -1).astype(np.float32)
    if not np.isfinite(real).all():
        position, channel = np.argwhere(~np.isfinite(real))[0]
        raise DataError(
            f"{name} has {real[position, channel]:.3g} at position {position}, expected numbers of "
            f"float32; replace it, or leave the example out"
        )
    return real


def _pack_labels(values: Sequence[Any], name: str, lowest: int) -> np.ndarray:
    """Return labels as (labels,) int64."""
    array = _read_array(values, name)
    if array.dtype.kind == "f":  # NaN and fractions are named, and not whole numbers before them
        array = array.ravel()[np.argsort((array == np.floor(array)).ravel(), kind="stable")]
    for value in array.tolist():
        if not isinstance(value, int) or not lowest <= value < MOST_CLASSES:
            raise DataError(
                f"{name} include {format_value(value)}, expected whole numbers from {lowest} to "
                f"{MOST_CLASSES - 1} of an integer type, one for each class"
            )
    return array.astype(np.int64)


def _pack_numbers(answers: Sequence[Any], goal: type[Goal]) -> np.ndarray:
    """Return the numbers of all examples, (examples, outputs) float64."""
    rows: list[np.ndarray] = []
    for number, answer in enumerate(answers):
        array = _read_array(answer, f"the label of example {number}")
        is_fit = array.dtype.kind in "iubf" and array.ndim < 2 and np.isfinite(array).all()  # noqa: PLR2004
        row = array.astype(np.float64).reshape(-1) if is_fit else array
        is_binary = goal is not ExampleLabels or (is_fit and np.isin(row, (0, 1)).all())
        if not (is_fit and is_binary) or len(row) != len((rows or [row])[0]) or not len(row):
            numbers = "finite numbers" if is_binary else "0 or 1 for each label"
            raise DataError(
                f"the label of example {number} is {format_value(array.tolist())}, expected "
                f"{numbers}, as many as of the other examples"
            )
        rows.append(row)
    return np.stack(rows)


def _pack_position_labels(
    answers: Sequence[Any], arrays: Sequence[np.ndarray], towers: int
) -> np.ndarray:
    """Return the labels of all positions, (positions,) int64, NOT_SCORED where there is none."""
    if towers > 1 or arrays[0].ndim > 1 or not all(map(_is_sequence, answers)):
        raise DataError(
            "labels of positions need sequences of tokens, one to an example, and labels for each"
        )
    every: list[np.ndarray] = []
    for number, (array, answer) in enumerate(zip(arrays, answers, strict=True)):
        labels = _pack_labels(answer, f"the labels of example {number}", -1)
        if len(labels) != len(array) or labels.max() < 0:
            raise DataError(
                f"example {number} has {len(array)} positions and the labels "
                f"{format_value(labels.tolist())}; expected as many, at least one of them a class, "
                f"and -1 where a position has none; or labels of shape (examples,) for one each; "
                f"for several labels of each, write goal = ExampleLabels({len(labels)}) (from "
                f"lra.tasks.goals)"
            )
        every.append(np.where(labels < 0, NOT_SCORED, labels))
    return np.concatenate(every)


def _pack_metadata(
    metadata: object, examples: int, reserved: Sequence[str]
) -> dict[str, np.ndarray]:
    """Check metadata, whose fields cannot be called as other columns of predictions are."""
    if not isinstance(metadata, Mapping):
        kind = type(metadata).__name__
        raise DataError(f"its metadata is a {kind}, expected fields by their names")
    fields: dict[str, np.ndarray] = {}
    for name, column in metadata.items():
        if not is_word(name) or name in (*reserved, "length"):
            raise DataError(f"its metadata cannot be called {format_value(name)}; rename it")
        array = _read_array(column, f"its metadata {name!r}")
        is_text = array.dtype.kind == "U" and all(map(is_word, array.ravel().tolist()))
        is_whole = array.dtype.kind in "iub" and array.max(initial=0) < 2**63
        if array.shape != (examples,) or not (is_text or is_whole):
            raise DataError(
                f"its metadata {name!r} is {array.dtype} {array.shape}, expected a whole number of "
                f"int64, or a word of at most {LONGEST_WORD} letters, an example"
            )
        fields[name] = array if is_text else array.astype(np.int64)
    return fields
