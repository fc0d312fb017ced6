"""Tokens of a text as bytes or as words.

Words stand between blanks, and each line end is one, `<eos>`, as WikiText's are counted; a word
has the blanks before it.
"""

from __future__ import annotations

import abc
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from lra.common.errors import DataError
from lra.common.progress import progress
from lra.tasks.lm.corpora import TextFile

UNKNOWN, LINE_END = b"<unk>", b"<eos>"
CHUNK = 2**20
"""Least bytes of a text that are taken at a time."""
LONGEST_QUOTE = 40
"""Most letters of a prompt that an error repeats."""

_BLANK, _WORD = re.compile(rb"\s"), re.compile(rb"\n|\S+")


def chunks(title: str, text: np.ndarray) -> Iterator[tuple[int, bytes]]:
    """Cut a text, (bytes,) uint8, behind blanks; yield the places of the chunks and these."""
    start, view = 0, text.data
    with progress(title, total=len(view), unit="B") as bar:
        while start < len(view):
            blank = _BLANK.search(view, start + CHUNK)
            stop = len(view) if blank is None else blank.end()
            yield start, bytes(view[start:stop])
            bar.update(stop - start)
            start = stop


def check_utf8(text: TextFile) -> None:
    """Make sure that words can be told from one another.

    Raises: DataError naming the file and the first byte that is no UTF-8.
    """
    for start, chunk in chunks("checking text", np.frombuffer(text.content, dtype=np.uint8)):
        try:
            chunk.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{text.file}: byte {start + error.start:,} is not UTF-8 ({error.reason}), which "
                f"words must be; mend it, or use --set task.unit=byte"
            ) from None


def words_of(chunk: bytes) -> list[bytes]:
    """List the words of a text."""
    return chunk.replace(b"\n", b" %b " % LINE_END).split()


def first_words(text: np.ndarray, count: int) -> np.ndarray:
    """Cut a text, (bytes,) uint8, behind its first words; whole, if it has no more than these."""
    last = next(itertools.islice(_WORD.finditer(text.data), count - 1, None), None)
    return text if last is None else text[: last.end()]


def _bytes_of(text: str) -> bytes:
    """Return the bytes of a text, see `Vocabulary.encode`."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise DataError(f"got {text[error.start]!r}, which no bytes stand for") from None


class Vocabulary(abc.ABC):
    """What the tokens of a task are written as."""

    @abc.abstractmethod
    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text.

        Args:
            text: bytes that are not UTF-8 are surrogates, as in arguments of a command.
        Raises: DataError naming what in it is no token.
        """

    @abc.abstractmethod
    def decode(self, token: int) -> bytes:
        """Return what a token adds to a text, in UTF-8; a character may need several tokens."""


class Bytes(Vocabulary):
    """Tokens that are the bytes of a text."""

    def encode(self, text: str) -> list[int]:
        """See `Vocabulary.encode`."""
        return list(_bytes_of(text))

    def decode(self, token: int) -> bytes:
        """See `Vocabulary.decode`."""
        return bytes([token])


class Words(Vocabulary):
    """Words and their numbers. Of a text, the unknown word is 0 and the end of a line 1.

    Args:
        words: the words in order.
    """

    def __init__(self, words: Sequence[bytes]) -> None:
        self.words = words
        self.numbers = {word: number for number, word in enumerate(words)}

    @classmethod
    def of(cls, text: np.ndarray, size: int) -> Words:
        """Choose the commonest words of a text, of like ones the earlier."""
        counts: Counter[bytes] = Counter()
        for _, chunk in chunks("counting words", text):
            counts.update(words_of(chunk))
        special = [UNKNOWN, LINE_END]
        common = [word for word, _ in counts.most_common(size) if word not in special]
        return cls([*special, *common][:size])

    @classmethod
    def of_array(cls, array: np.ndarray) -> Words:
        """Take words up from an array that `as_array` made."""
        return cls(array.tobytes().split(b"\n"))

    def as_array(self) -> np.ndarray:
        """Return the words one after another, a line end between them, (bytes,) uint8."""
        return np.frombuffer(b"\n".join(self.words), dtype=np.uint8)

    def number(self, text: np.ndarray) -> np.ndarray:
        """Number the words of a text, (bytes,) uint8: (words,) unsigned integers."""
        number_of, kind = self.numbers.get, np.min_scalar_type(len(self.words) - 1)
        parts = [
            np.array([number_of(word, 0) for word in words_of(chunk)], dtype=kind)
            for _, chunk in chunks("numbering words", text)
        ]
        return np.concatenate([np.empty(0, kind), *parts])

    def encode(self, text: str) -> list[int]:
        """See `Vocabulary.encode`; words that are not known are refused, `<unk>` is one."""
        words = words_of(_bytes_of(text))
        unknown = next((word for word in words if word not in self.numbers), None)
        if unknown is not None:
            raise DataError(
                f"got {unknown[:LONGEST_QUOTE].decode(errors='replace')!r}, expected some of the "
                f"{len(self.words):,} tokens that the model knows, with blanks between, such as "
                f"{self.words[0].decode()}"
            )
        return [self.numbers[word] for word in words]

    def decode(self, token: int) -> bytes:
        """See `Vocabulary.decode`: a word and a blank, or a line end.

        A number beyond the words, of a corpus that has fewer than the model, is an unknown one.
        """
        word = self.words[token] if token < len(self.words) else UNKNOWN
        return b"\n" if word == LINE_END else word + b" "
