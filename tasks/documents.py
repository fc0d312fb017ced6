"""What Text and Retrieval have in common: examples are one or two documents of a release.

A document is a sequence of bytes or characters; each distinct one is stored once.
"""

import abc
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from lra.common.errors import DataError
from lra.tasks.base import Dataset, Task, TaskInfo, accuracy_percent, majority
from lra.tasks.cache import Cache
from lra.tasks.goals import ExampleClass
from lra.tasks.preparation import Build
from lra.tasks.sources.releases import Release, ReleaseCache
from lra.tasks.splits import PackedSequences, Sequences

Unit = Literal["bytes", "characters"]

UNKNOWN, END = 1, 2
"""Ids that stand for no particular character; 0 is the padding."""
NUM_CODE_POINTS = 0x110000
BYTES_VOCABULARY = 257
"""Number of ids of bytes: 0 is the padding, b + 1 the byte b."""


@dataclass(frozen=True)
class Alphabet:
    """How text becomes ids.

    Characters are numbered from 3 on, by falling frequency in what is read of the training
    documents; 0 is the padding, 1 any other character, 2 the end of a sequence.

    Raises: ValueError if options of characters are given and the unit is bytes.
    """

    unit: Unit
    sequence_length: int
    """Positions read of a document, end token included."""
    has_end: bool
    min_frequency: int | None
    """Times that a character must occur in training to get an id."""
    size: int | None
    """Most ids of characters."""

    def __post_init__(self) -> None:
        if self.unit == "bytes" and (self.min_frequency, self.size) != (None, None):
            raise ValueError(
                "min_frequency and vocab_size have no effect: they are for characters, and unit is "
                "bytes"
            )

    @property
    def limit(self) -> int:
        """Bytes or characters read of each document."""
        return self.sequence_length - self.has_end

    @property
    def first_id(self) -> int:
        """Number that is added to stored tokens to get ids."""
        return 1 if self.unit == "bytes" else 0

    @property
    def end_token(self) -> int | None:
        """Id that ends a sequence."""
        if not self.has_end:
            return None
        return BYTES_VOCABULARY if self.unit == "bytes" else END

    @property
    def vocab_size(self) -> int:
        """Number of ids."""
        return self.size or BYTES_VOCABULARY + self.has_end

    def choose(self, counts: np.ndarray) -> np.ndarray:
        """Choose code points that get ids by their counts, (NUM_CODE_POINTS,): (chosen,) uint32."""
        assert self.size is not None
        frequent = np.flatnonzero(counts >= (self.min_frequency or 1))
        by_falling_count = frequent[np.argsort(-counts[frequent], kind="stable")]
        return by_falling_count[: self.size - END - 1].astype(np.uint32)

    def number(self, chosen: np.ndarray) -> np.ndarray:
        """Return the ids of all code points, (NUM_CODE_POINTS,) uint16, given the chosen ones."""
        ids = np.full(NUM_CODE_POINTS, UNKNOWN, dtype=np.uint16)
        ids[chosen] = np.arange(END + 1, END + 1 + len(chosen))
        return ids


class Documents:
    """Distinct documents."""

    def __init__(self, alphabet: Alphabet) -> None:
        self.alphabet = alphabet
        self.num_replaced = self.num_empty = 0
        self._texts: dict[bytes, bytes] = {}

    def add(self, text: bytes) -> bytes:
        """Add a document, unless the same text is there already; return its key."""
        key = hashlib.blake2b(text, digest_size=16).digest()
        if key not in self._texts:
            self._texts[key] = self._cut(text)
        return key

    def number(self, keys: Sequence[bytes]) -> np.ndarray:
        """Number all documents by their keys, in the order in which they first appear in the list.

        Returns: (keys,) int64.
        """
        self._texts = {key: self._texts[key] for key in keys}
        numbers = {key: number for number, key in enumerate(self._texts)}
        return np.array([numbers[key] for key in keys], dtype=np.int64)

    def _cut(self, text: bytes) -> bytes:
        """Cut a text to the sequence's length; characters are returned as UTF-8."""
        if not text:
            self.num_empty += 1
            return b" "
        limit = self.alphabet.limit
        if self.alphabet.unit == "bytes":
            return text[:limit]
        # No character has more than four bytes.
        characters = text[: 4 * limit].decode(errors="replace")[:limit]
        self.num_replaced += "\ufffd" in characters and "\ufffd".encode() not in text
        return characters.encode()

    def save(self, made: Build, training: np.ndarray) -> None:
        """Write all documents as sequences, end to end.

        Characters are counted in the documents of all training examples, (count,) indices.
        """
        texts = list(self._texts.values())
        sequences = [np.frombuffer(text, dtype=np.uint8) for text in texts]
        vocabulary = np.zeros(0, dtype=np.uint32)
        if self.alphabet.unit == "characters":
            counts = np.zeros(NUM_CODE_POINTS, dtype=np.int64)
            for index, times in zip(*np.unique(training, return_counts=True), strict=True):
                points, occurrences = np.unique(code_points(texts[index]), return_counts=True)
                counts[points] += times * occurrences
            vocabulary = self.alphabet.choose(counts)
            id_of = self.alphabet.number(vocabulary)
            stored = np.uint8 if self.alphabet.vocab_size <= 256 else np.uint16  # noqa: PLR2004
            sequences = [id_of[code_points(text)].astype(stored) for text in texts]
        lengths = [len(sequence) for sequence in sequences]
        made.save("tokens", np.concatenate(sequences))
        made.save("offsets", np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]))
        made.save("vocabulary", vocabulary)
        made.notes |= {
            "distinct texts": len(texts),
            "texts with bytes that are no UTF-8, read as U+FFFD": self.num_replaced,
            "empty texts, read as one blank": self.num_empty,
        }

    def histogram(self) -> np.ndarray:
        """Count the bytes in what is read of each document: (documents, 256) float32."""
        texts = self._texts.values()
        rows = [np.bincount(np.frombuffer(text, dtype=np.uint8), minlength=256) for text in texts]
        return np.array(rows, dtype=np.float32)


def code_points(text: bytes) -> np.ndarray:
    """Return the code points of a text in UTF-8: (characters,) uint32."""
    return np.frombuffer(text.decode().encode("utf-32-le"), dtype="<u4")


Rows = tuple[str, np.ndarray]
"""The name of a split as it was read, and (n,) indices of its examples."""


class DocumentTask(Task):
    """A task of two classes whose examples are one or more documents.

    For each split as it was read, the cache holds labels (n,) and documents (n, towers), which
    are indices of the stored sequences; for the test split it holds what the bag of bytes, a
    trivial baseline, predicts.

    Args:
        alphabet: how text becomes ids.
        source: the task's option `source`.
        counts: the options that say how many examples to use, by name.
        data_seed: seed of the random choice of examples.
    """

    release: ClassVar[Release]
    usual: ClassVar[tuple[int, int]]
    """Options min_frequency and vocab_size of characters, if they are not given."""
    splits_read: ClassVar[tuple[str, ...]]
    towers: ClassVar[int]

    def __init__(
        self, alphabet: Alphabet, *, source: str, counts: Mapping[str, int | None], data_seed: int
    ) -> None:
        if alphabet.unit == "characters":
            min_frequency = alphabet.min_frequency or self.usual[0]
            size = alphabet.size or self.usual[1]
            alphabet = replace(alphabet, min_frequency=min_frequency, size=size)
        self.alphabet = alphabet
        self.source = source
        self.counts = counts
        self.data_seed = data_seed
        self.info = TaskInfo(
            name=self.name,
            goal=ExampleClass(2),
            max_length=alphabet.sequence_length,
            vocab_size=alphabet.vocab_size,
            towers=self.towers,
        )

    @classmethod
    def fresh(
        cls, options: Mapping[str, Any], *, length: int | None, examples: int
    ) -> dict[str, Any]:
        """See `Task.fresh`: reads more of the same documents."""
        if options["unit"] == "characters":
            raise DataError(
                f"{cls.name}: characters are numbered by how often they occur in what the training "
                f"read, so that other options give them other numbers; models of bytes "
                f"(--protocol lra) can read further"
            )
        return {} if length is None else {"sequence_length": length}

    @abc.abstractmethod
    def read(self, made: Build, path: Path) -> None:
        """Read an archive or folder into a cache."""

    @abc.abstractmethod
    def choose(self, sizes: Mapping[str, int]) -> dict[str, Rows]:
        """Choose the examples of train, val and test.

        Args:
            sizes: numbers of examples of the splits as they were read, by name.
        Raises: DataError if the examples are too few.
        """

    def plan(self, data_dir: Path) -> ReleaseCache:
        """See `Task.plan`."""
        alphabet = self.alphabet
        request = {"unit": alphabet.unit, "limit": alphabet.limit}
        if alphabet.unit == "characters":
            request |= {"min_frequency": alphabet.min_frequency, "vocab_size": alphabet.size}
        return ReleaseCache(
            release=self.release,
            data_dir=data_dir,
            name=alphabet.unit,
            option=self.source,
            request=request,
            read=self.read,
        )

    def open_dataset(self, cache: Cache) -> Dataset:
        """See `Task.open_dataset`."""
        alphabet, offsets = self.alphabet, np.asarray(cache.array("offsets"))
        sequences = Sequences(cache.array("tokens"), offsets, alphabet.first_id, alphabet.end_token)
        labels, documents = self._arrays(cache, "labels"), self._arrays(cache, "documents")
        chosen = self.choose({name: len(classes) for name, classes in labels.items()})
        splits = {
            name: PackedSequences(sequences, labels[read][rows], documents[read][rows])
            for name, (read, rows) in chosen.items()
        }
        predictions = np.asarray(cache.array("test_predictions"))[chosen["test"][1]]
        return Dataset.from_cache(
            cache,
            splits,
            {**self.counts, "data_seed": self.data_seed},
            vars(alphabet),
            baselines={
                "majority class": majority(splits["train"].labels, splits["test"].labels),
                "bag of bytes": accuracy_percent(predictions, splits["test"].labels),
            },
            selected_on="test" if chosen["val"][0] == "test" else "val",
        )

    def _arrays(self, cache: Cache, kind: str) -> dict[str, np.ndarray]:
        return {name: np.asarray(cache.array(f"{name}_{kind}")) for name in self.splits_read}

    def save_examples(
        self, made: Build, labels: Mapping[str, np.ndarray], documents: Mapping[str, np.ndarray]
    ) -> None:
        """Write labels (n,) uint8 and documents (n, towers) of each split."""
        for name in self.splits_read:
            made.sizes[name] = len(labels[name])
            made.save(f"{name}_labels", labels[name])
            made.save(f"{name}_documents", documents[name])

    def check(self, cache: Cache, dataset: Dataset) -> list[str]:
        """See `Task.check`: every stored token."""
        tokens, lengths = cache.array("tokens"), np.diff(cache.array("offsets"))
        low, high = 0, 255
        if self.alphabet.unit == "characters":
            low, high = UNKNOWN, END + len(cache.array("vocabulary"))
        if lengths.max() > self.alphabet.limit or tokens.min() < low or tokens.max() > high:
            raise DataError(
                f"{cache.folder}: tokens {tokens.min()} to {tokens.max()} in up to {lengths.max()} "
                f"positions, expected {low} to {high} in up to {self.alphabet.limit}"
            )
        sentences = [f"{len(tokens)} tokens of {len(lengths)} distinct texts are {low} to {high}"]
        for name, labels in self._arrays(cache, "labels").items():
            sentences.append(f"{name} has {len(labels)} examples, {labels.sum()} of them positive")
        return sentences
