"""The files of Retrieval: `new_aan_pairs.{train,eval,test}.tsv` of the Long Range Arena release.

The files have no header. A line holds label, id, id, text and text, separated by tabs; quotes
belong to the text. Several GB repeat the texts of a few ten thousand papers, so the files are
read in one pass and each text is kept once.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np

from common.errors import DataError
from tasks.documents.documents import Documents
from tasks.sources.archives import walk
from tasks.sources.tables import describe_saved_again, read_rows

logger = logging.getLogger(__name__)

SPLITS = {"train": "train", "eval": "val", "test": "test"}
"""The name of the split here, by the word in the name of the file."""

LONGEST_LINE = 64 * 2**20
"""Most bytes of a line; a longer line is malformed."""

MOST_MALFORMED = 0.01
"""Share of a file's lines that may be malformed: with more, it is another kind of file."""

FILE = re.compile(r"(?:^|/)new_aan_pairs\.(train|eval|test)\.tsv$")

_LABELS = {b"0": 0, b"0.0": 0, b"1": 1, b"1.0": 1}
_FIELDS = 5


@dataclass
class Pairs:
    """The pairs of one file."""

    name: str
    labels: bytearray = field(default_factory=bytearray)
    documents: list[tuple[int, int]] = field(default_factory=list)
    lines: int = 0
    skipped: list[str] = field(default_factory=list)
    """Malformed lines, each with its place and fault."""

    def add(self, label: int, first: int, second: int) -> None:
        """Add a pair of documents."""
        self.labels.append(label)
        self.documents.append((first, second))

    def labels_array(self) -> np.ndarray:
        """Return the labels, (pairs,) uint8."""
        return np.frombuffer(bytes(self.labels), dtype=np.uint8)

    def documents_array(self) -> np.ndarray:
        """Return the indices of the documents, (pairs, 2) int64."""
        return np.array(self.documents, dtype=np.int64)


class _Malformed(Exception):
    """A line that is no pair."""


def read_pairs(path: Path, inside: str, documents: Documents) -> dict[str, Pairs]:
    """Read all three files of a folder or an archive.

    Args:
        path: the folder or archive.
        inside: pattern of the files of a folder.
        documents: collection that the texts are added to.
    Returns: the pairs, by the names train, val and test.
    Raises: DataError if a file is missing, is empty, or has another format.
    """
    found: dict[str, Pairs] = {}
    for match, file in walk(path, FILE, inside=inside):
        name, split = match.string, SPLITS[match[1]]
        if split in found:
            raise DataError(
                f"{path} holds both {found[split].name} and {name}; unpack one of them, and "
                f"put it in the place of the archive"
            )
        found[split] = _read(name, file, documents, f"{path}/{name}")
    for word, split in SPLITS.items():
        if split not in found:
            raise DataError(f"{path} lacks new_aan_pairs.{word}.tsv; put it beside the others")
    return found


def _read(name: str, file: IO[bytes], documents: Documents, shown: str) -> Pairs:
    pairs = Pairs(name)
    with_tabs: list[tuple[int, list[bytes]]] = []
    for number, row in enumerate(read_rows(file, shown, longest=LONGEST_LINE), start=1):
        pairs.lines = number
        if number == 1 and _is_header(row):
            raise describe_saved_again(shown, "its first line is a header")
        try:
            fields = _check(row)
            if len(fields) > _FIELDS:
                with_tabs.append((number, fields))
            else:
                pairs.add(_label(fields[0]), documents.add(fields[3]), documents.add(fields[4]))
        except _Malformed as fault:
            pairs.skipped.append(f"{shown}:{number}: {fault}")
    for number, fields in with_tabs:
        try:
            pairs.add(_label(fields[0]), *_split_at_tab(fields[3:], documents))
        except _Malformed as fault:
            pairs.skipped.append(f"{shown}:{number}: {fault}")
    _report(pairs, shown)
    return pairs


def _check(fields: list[bytes] | None) -> list[bytes]:
    if fields is None:
        raise _Malformed(f"the line is longer than {LONGEST_LINE:,} bytes")
    if len(fields) < _FIELDS:
        raise _Malformed(f"got {len(fields)} tab-separated fields, expected {_FIELDS}")
    return fields


def _is_header(fields: list[bytes] | None) -> bool:
    """Whether a first line names columns: with words, or with 0 1 2 3 4 as pandas does."""
    if fields is None or len(fields) < _FIELDS:
        return False
    label = fields[0].strip(b'"')
    return not label or label[:1].isalpha() or fields == [b"0", b"1", b"2", b"3", b"4"]


def _label(text: bytes) -> int:
    if text not in _LABELS:
        raise _Malformed(f"got label {text[:20].decode(errors='replace')!r}, expected 0 or 1")
    return _LABELS[text]


def _split_at_tab(pieces: list[bytes], documents: Documents) -> tuple[int, int]:
    """Find where the first of two texts ends if there are tabs in the texts.

    The place is certain where one of the two texts is known from another line.
    """
    for cut in range(1, len(pieces)):
        first, second = b"\t".join(pieces[:cut]), b"\t".join(pieces[cut:])
        if documents.find(first) is not None or documents.find(second) is not None:
            return documents.add(first), documents.add(second)
    raise _Malformed(
        f"got {len(pieces) + 3} tab-separated fields, expected {_FIELDS}; neither text is known "
        f"from another line, so where the first ends is uncertain"
    )


def _report(pairs: Pairs, shown: str) -> None:
    if not pairs.labels or len(pairs.skipped) > max(1, MOST_MALFORMED * pairs.lines):
        what = pairs.skipped[0] if pairs.skipped else f"{shown} is empty"
        raise DataError(
            f"{len(pairs.skipped)} of {pairs.lines} lines of {shown} are malformed, the first: "
            f"{what}; expected label, id, id, text, text, separated by tabs"
        )
    for line in pairs.skipped:
        logger.info(f"skipped {line}")
