"""What the class of a user's own task states, and returns as examples: checked, and packed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from common.errors import DataError, format_value
from tasks.base import LONGEST_WORD, MOST_CLASSES, NOT_SCORED, OUTCOMES, Split, is_word
from tasks.cache import file_facts
from tasks.splits import LabelledTokens, PackedSequences, Sequences

LARGEST_TOKEN = 2**31 - 1
FORMS = (
    "a list or array of sequences, each of whole numbers (length,) or of real ones (length, "
    "channels), or of pairs (tuples) of such"
)


class DeclaredInfo(BaseModel):
    """What a class may state of its examples, as attributes; else it is read off them."""

    model_config = ConfigDict(strict=True)

    num_classes: Annotated[int, Field(ge=2, le=MOST_CLASSES)] | None = None
    max_length: PositiveInt | None = None
    vocab_size: PositiveInt | None = None
    channels: PositiveInt | None = None
    towers: Annotated[int, Field(ge=1, le=2)] | None = None
    grid: tuple[PositiveInt, PositiveInt] | None = None
    targets: Literal["example", "token"] | None = None
    data_files: Path | str | tuple[Path | str, ...] | list[Path | str] | None = None
    """Files that `examples` reads."""

    @classmethod
    def of(cls, own: object, name: str) -> DeclaredInfo:
        """Read the attributes of an instance; `name` is that of the task.

        Raises: DataError naming an attribute with another value than expected.
        """
        try:
            return cls.model_validate({key: getattr(own, key, None) for key in cls.model_fields})
        except ValidationError as error:
            first = error.errors()[0]
            raise DataError(
                f"{name}: its attribute {first['loc'][0]} is {format_value(first['input'])}: "
                f"{first['msg']}"
            ) from None

    def file_digests(self, name: str) -> list[str] | None:
        """Hash the data files; None if the class does not name them.

        Raises: DataError for a path of no file.
        """
        files = self.data_files
        if files is None:
            return None
        paths = [Path(path) for path in ([files] if isinstance(files, (str, Path)) else files)]
        for path in paths:
            if not path.is_file():
                raise DataError(
                    f"{name}: its attribute data_files names {path}, but there is no such file "
                    f"(looked for in {Path.cwd()})"
                )
        return [file_facts(path).sha256 for path in paths]


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
    def classes(self) -> np.ndarray:
        """Classes of all labels, (targets,)."""
        return self.labels[self.labels != NOT_SCORED]

    def __len__(self) -> int:
        return len(self.lengths) // self.towers

    def split(self) -> Split:
        """Return the examples as a split."""
        sequences = Sequences(self.values, self.offsets)
        if self.targets == "token":
            return LabelledTokens(sequences, self.labels, self.metadata)
        which = np.arange(len(self.lengths)).reshape(-1, self.towers)
        return PackedSequences(sequences, self.labels, which, self.metadata)

    def digest(self) -> str:
        """Hash sequences, labels and metadata: 64 hexadecimal digits."""
        found = hashlib.sha256(repr(list(self.metadata)).encode())
        for array in (self.values, self.lengths, self.labels, *self.metadata.values()):
            found.update(f"{array.dtype} {array.shape}".encode())
            found.update(array.tobytes())
        return found.hexdigest()

    def matches(self, other: Examples) -> bool:
        """Whether examples are those of another drawing, where machines round in different ways."""
        is_close = (
            self.channels is not None
            and self.values.shape == other.values.shape
            and np.allclose(self.values, other.values)
        )
        rounded = replace(self, values=other.values) if is_close else self
        return rounded.digest() == other.digest()

    def keys(self) -> list[bytes]:
        """Return bytes for every example that are equal where the sequences are."""
        offsets, width = self.offsets, self.towers
        return [
            self.lengths[i : i + width].tobytes()
            + self.values[offsets[i] : offsets[i + width]].tobytes()
            for i in range(0, len(self.lengths), width)
        ]


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
            f"it returned a {type(returned).__name__}, expected (sequences, labels) or (sequences, "
            f"labels, metadata)"
        )
    given, answers, *more = returned
    examples, answers = _items(given, "sequences"), _items(answers, "labels")
    if not len(examples) or len(examples) != len(answers):
        raise DataError(
            f"it returned {len(examples)} sequences and {len(answers)} labels, expected a label "
            f"for each, and at least one"
        )
    is_pair = [isinstance(one, tuple) and any(map(_is_sequence, one)) for one in examples]
    if any(is_pair) and not all(k and len(x) == 2 for k, x in zip(is_pair, examples, strict=True)):  # noqa: PLR2004
        raise DataError("some of its examples are tuples of two sequences, and some are not")
    towers = 2 if any(is_pair) else 1
    sequences = [x for pair in examples for x in pair] if any(is_pair) else examples
    arrays = [_sequence(x, f"example {i // towers}", reals) for i, x in enumerate(sequences)]
    for number, array in enumerate(arrays):
        if array.shape[1:] != arrays[0].shape[1:]:
            raise DataError(
                f"example {number // towers} has positions of shape {array.shape[1:]}, and example "
                f"0 of {arrays[0].shape[1:]}; transpose arrays of shape (channels, length)"
            )
    of_positions = any(map(_is_sequence, answers))
    if of_positions:
        labels = _position_labels(answers, arrays, towers)
    else:
        labels = _classes(answers, "its labels", 0)
    reserved = OUTCOMES if of_positions else ("label", "prediction")
    return Examples(
        values=np.concatenate(arrays),
        lengths=np.array([len(array) for array in arrays], dtype=np.int64),
        labels=labels,
        targets="token" if of_positions else "example",
        towers=towers,
        metadata=_metadata(more[0], len(answers), reserved) if more else {},
    )


def _is_sequence(value: Any) -> bool:
    """Whether a value is a list, a tuple, or an array of NumPy, torch or pandas with an axis."""
    return isinstance(value, (list, tuple)) or getattr(value, "ndim", 0) > 0


def _items(value: Any, name: str) -> Sequence[Any]:
    """List what a list, a tuple or an array holds."""
    if isinstance(value, (list, tuple)):
        return value
    if not _is_sequence(value):
        raise DataError(f"its {name} are a {type(value).__name__}, expected a list or array")
    return list(_array(value, f"its {name}"))


def _array(value: Any, name: str) -> np.ndarray:
    """Return a value as an array of numbers or text, unless that would change what it means."""
    if isinstance(value, (np.matrix, np.ma.MaskedArray)):
        raise DataError(f"{name} has a numpy {type(value).__name__}, expected plain arrays")
    try:
        array = np.asarray(value)
        return np.asarray(array.tolist()) if array.dtype == object else array
    except ValueError as error:
        raise DataError(f"{name} is no array ({error}); expected {FORMS}") from None


def _sequence(value: Any, name: str, reals: bool) -> np.ndarray:
    """Return a sequence as (length,) int32 tokens, or as (length, channels) float32."""
    array = _array(value, name)
    is_real = array.dtype.kind == "f" or (reals and array.dtype.kind in "iub")
    if array.dtype.kind not in "iubf" or array.ndim not in (1, 1 + is_real) or not array.size:
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
    is_finite = np.isfinite(real)
    if not is_finite.all():
        first = int(is_finite.argmin())
        raise DataError(
            f"{name} has {array.ravel()[first]:.3g} at position {first // real.shape[1]}, expected "
            f"numbers of float32; replace it, or leave the example out"
        )
    return real


def _classes(values: Sequence[Any], name: str, lowest: int) -> np.ndarray:
    """Return labels as (labels,) int64."""
    array = _array(values, name)
    for value in array.tolist():
        if not isinstance(value, int) or not lowest <= value < MOST_CLASSES:
            raise DataError(
                f"{name} include {format_value(value)}, expected whole numbers from {lowest} to "
                f"{MOST_CLASSES - 1}, one for each class; regression is not supported"
            )
    return array.astype(np.int64)


def _position_labels(
    answers: Sequence[Any], arrays: Sequence[np.ndarray], towers: int
) -> np.ndarray:
    """Return the labels of all positions, (positions,) int64, NOT_SCORED where there is none."""
    if towers > 1 or arrays[0].ndim > 1 or not all(map(_is_sequence, answers)):
        raise DataError(
            "labels of positions need sequences of tokens, one to an example, and labels for each"
        )
    found: list[np.ndarray] = []
    for number, (array, own) in enumerate(zip(arrays, answers, strict=True)):
        labels = _classes(own, f"the labels of example {number}", -1)
        if len(labels) != len(array) or labels.max() < 0:
            raise DataError(
                f"example {number} has {len(array)} positions and the labels "
                f"{format_value(labels.tolist())}; expected as many, at least one of them a class, "
                f"and -1 where a position has none; or labels of shape (examples,) for one each"
            )
        found.append(np.where(labels < 0, NOT_SCORED, labels))
    return np.concatenate(found)


def _metadata(given: object, examples: int, reserved: Sequence[str]) -> dict[str, np.ndarray]:
    """Check metadata, whose fields cannot be called as other columns of predictions are."""
    if not isinstance(given, Mapping):
        raise DataError(f"its metadata is a {type(given).__name__}, expected fields by their names")
    found: dict[str, np.ndarray] = {}
    for name, column in given.items():
        if not is_word(name) or name in (*reserved, "length"):
            raise DataError(f"its metadata cannot be called {format_value(name)}; rename it")
        array = _array(column, f"its metadata {name!r}")
        is_text = array.dtype.kind == "U" and all(map(is_word, array.ravel().tolist()))
        is_whole = array.dtype.kind in "iub" and array.max(initial=0) < 2**63
        if array.shape != (examples,) or not (is_text or is_whole):
            raise DataError(
                f"its metadata {name!r} is {array.dtype} {array.shape}, expected a whole number of "
                f"int64, or a word of at most {LONGEST_WORD} letters, an example"
            )
        found[name] = array if is_text else array.astype(np.int64)
    return found
