"""Reading pickled batches of CIFAR-10 without giving a pickle anything that it could misuse.

The names that a pickle asks for become stand-ins that only note what they are told: type, shape,
bytes. An array is made of that at the end, once everything has been checked.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import Any, ClassVar

import numpy as np

from common.errors import DataError

MOST_INSTRUCTIONS = 2**20
"""Most instructions of a pickle; a batch of 10,000 images has some 50,000."""

_MEMO = frozenset({"PUT", "BINPUT", "LONG_BINPUT"})
_ENCODINGS = ("latin1", b"latin1")
_WHOLE_NUMBERS = ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8")


class _Type:
    """What a pickle says of the type of an array's numbers."""

    def __init__(self, name: object, *_: object) -> None:
        self.name = name
        self.order: object = "|"

    def __setstate__(self, state: Any) -> None:
        self.order = state[1]

    def found(self) -> np.dtype[Any]:
        """Return the type, if it is one of whole numbers."""
        name, order = (t.decode() if isinstance(t, bytes) else t for t in (self.name, self.order))
        if name not in _WHOLE_NUMBERS or order not in ("|", "<", ">", "="):
            raise ValueError(f"an array of type {order!r}{name!r}, expected whole numbers")
        return np.dtype(f"{order}{name}")


class _Array:
    """What a pickle says of an array."""

    def __init__(self, *_: object) -> None:
        self.state: Any = None

    def __setstate__(self, state: object) -> None:
        self.state = state

    def found(self) -> np.ndarray:
        """Make the array: its type, shape and bytes must fit one another."""
        _, shape, kind, is_fortran, raw = self.state
        if not isinstance(kind, _Type) or not isinstance(raw, bytes) or is_fortran:
            raise ValueError("an array that is not written row after row")
        return np.frombuffer(raw, dtype=kind.found()).reshape([_whole(size) for size in shape])


class _Encoded:
    """Bytes that newer versions of Python write as text of the same numbers."""

    def __new__(cls, text: Any, encoding: Any) -> Any:
        if type(text) is not str or encoding not in _ENCODINGS:
            raise ValueError(f"bytes encoded as {encoding!r}, expected latin1")
        return text.encode("latin1")

    def __setstate__(self, state: object) -> None:
        raise ValueError("a state for bytes")


class _Unpickler(pickle.Unpickler):
    STAND_INS: ClassVar[dict[tuple[str, str], type]] = {
        ("numpy", "ndarray"): _Array,
        ("numpy", "dtype"): _Type,
        ("numpy.core.multiarray", "_reconstruct"): _Array,
        ("numpy._core.multiarray", "_reconstruct"): _Array,
        ("_codecs", "encode"): _Encoded,
    }

    def find_class(self, module_name: str, global_name: str) -> Any:
        """Look up one of the few names that arrays need."""
        if (module_name, global_name) not in self.STAND_INS:
            raise pickle.UnpicklingError(f"it asks for {module_name}.{global_name}; refused")
        return self.STAND_INS[module_name, global_name]


def read_pickled(content: bytes, shown: str) -> tuple[np.ndarray, np.ndarray]:
    """Read a pickled batch.

    Args:
        content: of the file.
        shown: its name in messages.
    Returns: data as the pickle has it, and labels (n,), both whole numbers.
    Raises: DataError for anything else.
    """
    try:
        _check_instructions(content)
        batch = _Unpickler(io.BytesIO(content), encoding="bytes").load()
        if type(batch) is not dict:
            raise ValueError(f"it holds a {type(batch).__name__}, expected a dict")
        data, labels = batch[b"data"], batch[b"labels"]
        if not isinstance(data, _Array):
            raise ValueError(f"its data is a {type(data).__name__}, expected an array")
        found = labels.found() if isinstance(labels, _Array) else _listed(labels)
        return data.found(), found
    except Exception as error:
        raise DataError(f"{shown} is no batch of CIFAR-10 ({error}); is it complete?") from None


def _check_instructions(content: bytes) -> None:
    """Refuse sizes beyond the end of a pickle and memory cells far beyond those it can fill."""
    for number, (instruction, argument, _) in enumerate(pickletools.genops(content), start=1):
        if number > MOST_INSTRUCTIONS:
            raise ValueError(f"more than {MOST_INSTRUCTIONS:,} instructions")
        if instruction.name in _MEMO and int(argument or 0) > MOST_INSTRUCTIONS:
            raise ValueError(f"memory cell {argument:,}")


def _listed(labels: object) -> np.ndarray:
    if type(labels) is not list:
        raise ValueError(f"its labels are a {type(labels).__name__}, expected a list")
    return np.array([_whole(label) for label in labels], dtype=np.int64)


def _whole(value: object) -> int:
    if type(value) is not int:
        raise ValueError(f"{str(value)[:40]!r} where a whole number is expected")
    return value
