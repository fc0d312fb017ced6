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
from tasks.sources.tables import read_rows

logger = logging.getLogger(__name__)

SPLITS = {"train": "train", "eval": "val", "test": "test"}
"""The name of the split here, by the word in the name of the file."""

LONGEST_LINE = 64 * 2**20
"""Most bytes of a line."""

MOST_MALFORMED = 0.01
"""Share of a file's lines that may be malformed: with more, it is another kind of file."""

FILE = re.compile(r"(?:^|/)new_aan_pairs\.(train|eval|test)\.tsv$")

_LABELS = {b"0": 0, b"0.0": 0, b"1": 1, b"1.0": 1}
_FIELDS = 5


@dataclass
class Pairs:
    """The pairs of one file."""

    labels: bytearray = field(default_factory=bytearray)
    documents: list[tuple[int, int]] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    """Malformed lines, each with its place and fault."""

    def labels_array(self) -> np.ndarray:
        """Return the labels, (pairs,) uint8."""
        return np.frombuffer(bytes(self.labels), dtype=np.uint8)

    def documents_array(self) -> np.ndarray:
        """Return the indices of the documents, (pairs, 2) int64."""
        return np.array(self.documents, dtype=np.int64)


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
        found[SPLITS[match[1]]] = _read(file, documents, f"{path}/{match.string}")
    for word, split in SPLITS.items():
        if split not in found:
            raise DataError(f"{path} lacks new_aan_pairs.{word}.tsv; put it beside the others")
    return found


def _read(file: IO[bytes], documents: Documents, shown: str) -> Pairs:
    pairs, number = Pairs(), 0
    for number, row in enumerate(read_rows(file, shown, longest=LONGEST_LINE), start=1):
        label = _LABELS.get(row[0])
        if len(row) == _FIELDS and label is not None:
            pairs.labels.append(label)
            pairs.documents.append((documents.add(row[3]), documents.add(row[4])))
            continue
        fault = f"got {len(row)} tab-separated fields, expected {_FIELDS}"
        if len(row) == _FIELDS:
            fault = f"got label {row[0][:20].decode(errors='replace')!r}, expected 0 or 1"
        pairs.skipped.append(f"{shown}:{number}: {fault}")
    if not pairs.labels or len(pairs.skipped) > max(1, MOST_MALFORMED * number):
        what = pairs.skipped[0] if pairs.skipped else f"{shown} is empty"
        raise DataError(
            f"{len(pairs.skipped)} of {number} lines of {shown} are malformed, the first: "
            f"{what}; expected label, id, id, text, text, separated by tabs"
        )
    for line in pairs.skipped:
        logger.info(f"skipped {line}")
    return pairs
