"""The files of Retrieval: `new_aan_pairs.{train,eval,test}.tsv` of the Long Range Arena release.

The files have no header. A line holds label, id, id, text and text, separated by tabs; quotes
belong to the text. Several GB repeat the texts of a few ten thousand papers, so the files are
read in one pass and each text is kept once.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import IO, NamedTuple

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


class Pairs(NamedTuple):
    """The pairs of one file."""

    labels: np.ndarray
    """(pairs,) uint8."""
    documents: np.ndarray
    """(pairs, 2) int64, indices of the documents."""
    skipped: list[str]
    """Malformed lines, each with its place and fault."""


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
    labels: list[int] = []
    pairs: list[tuple[int, int]] = []
    skipped: list[str] = []
    for number, row in enumerate(read_rows(file, shown, longest=LONGEST_LINE), start=1):
        label = _LABELS.get(row[0])
        if len(row) == _FIELDS and label is not None:
            labels.append(label)
            pairs.append((documents.add(row[3]), documents.add(row[4])))
            continue
        fault = f"got {len(row)} tab-separated fields, expected {_FIELDS}"
        if len(row) == _FIELDS:
            fault = f"got label {row[0][:20].decode(errors='replace')!r}, expected 0 or 1"
        skipped.append(f"{shown}:{number}: {fault}")
    total = len(labels) + len(skipped)
    if not labels or len(skipped) > max(1, MOST_MALFORMED * total):
        raise DataError(
            f"{len(skipped)} of {total} lines of {shown} are malformed, the first: "
            f"{skipped[0] if skipped else 'it is empty'}; expected label, id, id, text, text, "
            f"separated by tabs"
        )
    for line in skipped:
        logger.info(f"skipped {line}")
    return Pairs(np.array(labels, dtype=np.uint8), np.array(pairs, dtype=np.int64), skipped)
