"""Text as tokens and tokens as text, for tasks whose targets are positions."""

from __future__ import annotations

import abc

from common.errors import DataError

LONGEST_QUOTE = 40
"""Most letters of a prompt that an error repeats."""


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


def bytes_of(text: str) -> bytes:
    """Return the bytes of a text, see `Vocabulary.encode`.

    Raises: DataError naming a surrogate that stands for no byte.
    """
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise DataError(f"got {text[error.start]!r}, which no bytes stand for") from None


class Bytes(Vocabulary):
    """Tokens that are the bytes of a text."""

    def encode(self, text: str) -> list[int]:
        """See `Vocabulary.encode`."""
        return list(bytes_of(text))

    def decode(self, token: int) -> bytes:
        """See `Vocabulary.decode`."""
        return bytes([token])


class Numbers(Vocabulary):
    """Tokens that are no text, written as their numbers, with blanks between.

    Args:
        size: different tokens.
    """

    def __init__(self, size: int) -> None:
        self.size = size

    def encode(self, text: str) -> list[int]:
        """See `Vocabulary.encode`."""
        digits = str(self.size - 1)
        for word in text.split():
            is_number = word.isascii() and word.isdecimal() and len(word) <= len(digits)
            if not is_number or int(word) >= self.size:
                raise DataError(
                    f"got {word[:LONGEST_QUOTE]!r}, expected numbers of tokens, 0 to {digits}, "
                    f"with blanks between: they are no text"
                )
        return [int(word) for word in text.split()]

    def decode(self, token: int) -> bytes:
        """See `Vocabulary.decode`."""
        return f"{token} ".encode()
