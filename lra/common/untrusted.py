"""What somebody else may have written: only regular files of a sane size, every fault one line."""

import contextlib
import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Literal, NoReturn

import numpy as np

from lra.common.errors import DataError, KnownError, describe

MIB = 2**20
LARGEST_TEXT = 16 * MIB
"""Most bytes of a file that is read as a whole, unless another number is given."""
MOST_GROWTH = 40
"""Most times its size that a large compressed file may unpack to; text has up to 20."""


def open_regular(path: Path, *, largest: int | None = None) -> IO[bytes]:
    """Open a regular file for reading; pipes, devices and folders are refused, without waiting.

    Args:
        largest: most bytes that it may have; None for any number.
    Raises: DataError for anything but a regular file, or a larger one; OSError as `open` does.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise DataError(f"{path} is a pipe, device or folder, expected a file; remove it")
    # Where a pipe has taken its place by now, this does not wait.
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb")
    size = os.fstat(file.fileno()).st_size
    if largest is not None and size > largest:
        file.close()
        raise DataError(
            f"{path} has {size:,} bytes, expected at most {largest:,}; is it another file?"
        )
    return file


def read_regular(path: Path, *, largest: int = LARGEST_TEXT) -> bytes:
    """Read a regular file as a whole.

    Raises: DataError and OSError as `open_regular`.
    """
    with open_regular(path, largest=largest) as file:
        return file.read()


def read_text(path: Path, *, largest: int = LARGEST_TEXT) -> str:
    """Read a regular file of UTF-8 text.

    Raises: DataError also for other text; DataError and OSError as `open_regular`.
    """
    try:
        return read_regular(path, largest=largest).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text: {error}") from None


def most_unpacked(size: int) -> int:
    """Return the most bytes that a compressed file of a size in bytes may unpack to."""
    return 32 * MIB + MOST_GROWTH * size


def refuse_growth(path: Path) -> NoReturn:
    """Raise the DataError for a file that unpacks to more than `most_unpacked`."""
    size = path.stat().st_size
    raise DataError(
        f"{path} has {size:,} bytes and unpacks to more than {most_unpacked(size):,}; refused"
    )


def map_array(path: Path) -> np.ndarray:
    """Map an array of numbers into memory, read-only.

    Raises: DataError for a file that is no array of numbers, or shorter than it says.
    """
    open_regular(path).close()
    with explain_errors(f"{path}"):
        return np.load(path, mmap_mode="r", allow_pickle=False)


def decode_png(content: bytes, shown: str, side: int, mode: Literal["L", "RGB"]) -> np.ndarray:
    """Decode a PNG image of side x side pixels, called `shown`: (side * side, channels) uint8.

    Raises: DataError for an image of another size, before it is unpacked, or a damaged one.
    """
    from PIL import Image

    with (
        explain_errors(shown, "get it anew"),
        Image.open(io.BytesIO(content), formats=["png"]) as image,
    ):
        if image.size != (side, side):
            raise DataError(f"{shown} is {image.size}, expected {(side, side)} pixels")
        return np.asarray(image.convert(mode), dtype=np.uint8).reshape(side * side, -1)


@contextlib.contextmanager
def explain_errors(what: str, advice: str = "") -> Iterator[None]:
    """Turn whatever is raised within, while something untrusted is read, into one DataError.

    Errors that explain themselves pass, and so do interruptions, too little memory, and errors of
    the file system.

    Args:
        what: what is read, as the message begins.
        advice: what to do about it, as the message ends.
    Raises: DataError naming what is read and what went wrong.
    """
    try:
        yield
    except (KnownError, KeyboardInterrupt, GeneratorExit, MemoryError):
        raise
    except BaseException as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        end = f"; {advice}" if advice else ""
        raise DataError(f"{what} is damaged or incomplete ({describe(error)}){end}") from error
