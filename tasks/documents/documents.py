"""Documents as sequences of bytes or characters; each distinct document is stored once."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tasks.preparation import Build

Unit = Literal["bytes", "characters"]

PADDING, UNKNOWN, END = 0, 1, 2
"""Ids that stand for no particular character."""

NUM_CODE_POINTS = 0x110000

BYTES_VOCABULARY = 257
"""Number of ids of bytes: 0 is the padding, b + 1 the byte b."""


@dataclass(frozen=True, kw_only=True)
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

    def request(self) -> dict[str, Any]:
        """Describe what the stored documents depend on, for the request of a cache."""
        facts = {"unit": self.unit, "limit": self.limit}
        if self.unit == "characters":
            facts |= {"min_frequency": self.min_frequency, "vocab_size": self.size}
        return facts

    def vocabulary(self, counts: np.ndarray) -> np.ndarray:
        """Choose the code points that get ids.

        Args:
            counts: (NUM_CODE_POINTS,) how often each one occurs.
        Returns: (chosen,) uint32, by falling count.
        """
        assert self.size is not None
        frequent = np.flatnonzero(counts >= (self.min_frequency or 1))
        by_falling_count = frequent[np.argsort(-counts[frequent], kind="stable")]
        return by_falling_count[: self.size - END - 1].astype(np.uint32)


class Documents:
    """Distinct documents, in the order in which they came.

    Args:
        alphabet: how their text becomes ids.
    """

    def __init__(self, alphabet: Alphabet) -> None:
        self.alphabet = alphabet
        self.num_replaced = self.num_empty = 0
        self._index: dict[bytes, int] = {}
        self._texts: list[bytes] = []

    def __len__(self) -> int:
        return len(self._texts)

    def add(self, text: bytes) -> int:
        """Add a document, unless the same text is there already; return its index."""
        digest = hashlib.blake2b(text, digest_size=16).digest()
        index = self._index.setdefault(digest, len(self._texts))
        if index == len(self._texts):
            self._texts.append(self._cut(text))
        return index

    def renumber(self, appearances: np.ndarray) -> np.ndarray:
        """Number the documents in the order in which they first appear in a list of indices.

        The numbers then do not depend on the order in which files were read.

        Args:
            appearances: (count,) indices, in which every document appears.
        Returns: (documents,) int64, the new index by the old one.
        """
        _, first = np.unique(appearances, return_index=True)
        order = appearances[np.sort(first)]
        self._texts = [self._texts[i] for i in order.tolist()]
        new_index = np.empty(len(order), dtype=np.int64)
        new_index[order] = np.arange(len(order))
        self._index = {digest: int(new_index[i]) for digest, i in self._index.items()}
        return new_index

    def _cut(self, text: bytes) -> bytes:
        """Cut a text to the sequence's length; characters are returned as UTF-8."""
        if not text:
            self.num_empty += 1
            return b" "
        limit = self.alphabet.limit
        if self.alphabet.unit == "bytes":
            return text[:limit]
        start = text[: 4 * limit]  # no character has more bytes
        try:
            return start.decode()[:limit].encode()
        except UnicodeDecodeError:
            characters = start.decode(errors="replace")[:limit]
            self.num_replaced += "\ufffd" in characters
            return characters.encode()

    def save(self, made: Build, training: np.ndarray) -> None:
        """Write all documents as sequences, end to end.

        Args:
            made: the cache to write to.
            training: (count,) indices of the documents of all training examples, in which
                characters are counted.
        """
        lengths = [len(text) for text in self._texts]
        vocabulary = np.zeros(0, dtype=np.uint32)
        tokens = np.frombuffer(b"".join(self._texts), dtype=np.uint8)
        if self.alphabet.unit == "characters":
            vocabulary = self.alphabet.vocabulary(self._count(training))
            id_of = np.full(NUM_CODE_POINTS, UNKNOWN, dtype=np.uint16)
            id_of[vocabulary] = np.arange(END + 1, END + 1 + len(vocabulary))
            stored = np.uint8 if self.alphabet.vocab_size <= 256 else np.uint16  # noqa: PLR2004
            sequences = [id_of[_code_points(text)].astype(stored) for text in self._texts]
            lengths, tokens = [len(ids) for ids in sequences], np.concatenate(sequences)
        made.save("tokens", tokens)
        made.save("offsets", np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]))
        made.save("vocabulary", vocabulary)
        made.notes |= {
            "distinct texts": len(self),
            "texts with bytes that are no UTF-8, read as U+FFFD": self.num_replaced,
            "empty texts, read as one blank": self.num_empty,
        }

    def _count(self, training: np.ndarray) -> np.ndarray:
        """Count the characters of the training examples: (NUM_CODE_POINTS,) int64."""
        repeats = np.bincount(training, minlength=len(self._texts)).tolist()
        counts = np.zeros(NUM_CODE_POINTS, dtype=np.int64)
        for text, times in zip(self._texts, repeats, strict=True):
            if times:
                points, found = np.unique(_code_points(text), return_counts=True)
                counts[points] += times * found
        return counts

    def histogram(self) -> np.ndarray:
        """Count the bytes in what is read of each document: (documents, 256) float32."""
        rows = [
            np.bincount(np.frombuffer(text, dtype=np.uint8), minlength=256) for text in self._texts
        ]
        return np.array(rows, dtype=np.float32)


def _code_points(text: bytes) -> np.ndarray:
    return np.frombuffer(text.decode().encode("utf-32-le"), dtype="<u4")
