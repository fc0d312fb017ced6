"""Examples of a split of a user's own task, packed end to end."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from tasks.base import NOT_SCORED, Split
from tasks.labelled import LabelledTokens
from tasks.splits import PackedReals, PackedTokens, Sequences


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

    def matches(self, other: Examples) -> bool:
        """Whether examples are those of another drawing, where machines round in different ways."""
        is_close = (
            self.channels is not None
            and self.values.shape == other.values.shape
            and np.allclose(self.values, other.values)
        )
        rounded = replace(self, values=other.values) if is_close else self
        return rounded.digest() == other.digest()

    def digest(self) -> str:
        """Hash sequences, labels and metadata: 64 hexadecimal digits."""
        found = hashlib.sha256(repr(list(self.metadata)).encode())
        for array in (self.values, self.lengths, self.labels, *self.metadata.values()):
            found.update(f"{array.dtype} {array.shape}".encode())
            found.update(array.tobytes())
        return found.hexdigest()

    def keys(self) -> list[bytes]:
        """Return bytes for every example that are equal where the sequences are."""
        offsets, width = self.offsets, self.towers
        return [
            self.lengths[i : i + width].tobytes()
            + self.values[offsets[i] : offsets[i + width]].tobytes()
            for i in range(0, len(self.lengths), width)
        ]


class OwnTokens(PackedTokens):
    """Sequences of tokens that a user's class has made, with their metadata."""

    def __init__(self, examples: Examples) -> None:
        sequences = Sequences(examples.values, examples.offsets)
        super().__init__(sequences, examples.labels, examples.which)
        self.examples = examples

    def metadata(self) -> dict[str, np.ndarray]:
        """See `Split.metadata`."""
        return dict(self.examples.metadata)


class OwnReals(OwnTokens, PackedReals):
    """Sequences of real numbers that a user's class has made."""
