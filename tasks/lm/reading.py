"""Texts out of files, and their division into splits."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from common.errors import DataError
from common.untrusted import explain_errors
from tasks.base import SPLITS
from tasks.lm.corpora import CORPORA, SPLIT_FILE, WHOLE
from tasks.sources.archives import GIB, is_zip, read_unpacked, walk

LARGEST_TEXT = 4 * GIB
"""Most bytes of a file of text."""

_DIGESTS = {32: "md5", 40: "sha1", 64: "sha256"}
"""Names of digests, by their length in hexadecimal digits."""
_ARCHIVE = re.compile(r"\.(?:zip|tgz|tar(?:\.\w+)?)$")
_ALIASES = {"valid": "val", "validation": "val"}


@dataclass(frozen=True)
class TextFile:
    """What a file holds."""

    file: str
    content: bytes

    def digest(self, name: str) -> str:
        """Hash the content by a digest of hashlib, in hexadecimal."""
        return hashlib.new(name, self.content, usedforsecurity=False).hexdigest()


TextFiles = Mapping[str, TextFile]
"""The files of a corpus, by the split that each holds, or a single one as WHOLE."""


def read_texts(path: Path, files: re.Pattern[str]) -> TextFiles:
    """Read a corpus.

    Args:
        path: a folder or archive with a file a split, or a file of text, which gzip, xz or zip may
            compress.
        files: pattern of the files to read in a folder or archive: SPLIT_FILE, or of the only one.
    Raises: DataError for files that are missing, or there twice.
    """
    if files is not SPLIT_FILE and not is_zip(path):
        return {WHOLE: TextFile(str(path), read_unpacked(path, largest=LARGEST_TEXT))}
    found: dict[str, TextFile] = {}
    for match, file in walk(path, files, inside="*", largest=LARGEST_TEXT):
        split = _ALIASES.get(match[1], match[1]) if files is SPLIT_FILE else WHOLE
        if split in found:
            raise DataError(f"{path} has {split} twice: {found[split].file} and {match.string}")
        found[split] = TextFile(match.string, file.read())
    missing = [name for name in (SPLITS if files is SPLIT_FILE else [WHOLE]) if name not in found]
    if missing:
        raise DataError(
            f"{path} has no file of {', '.join(missing)}; expected train.txt, valid.txt and "
            f"test.txt, or wiki.train.tokens and so on, or of a corpus in one file that one"
        )
    return found


def read_own(corpus: str) -> TextFiles:
    """Read a user's own text: a file, or a folder or archive with a file a split.

    Raises: DataError for a name of nothing, and as `read_texts`.
    """
    path = Path(corpus)
    with explain_errors(corpus):
        if path.is_dir() or (path.is_file() and _ARCHIVE.search(path.name)):
            return read_texts(path, SPLIT_FILE)
        if path.is_file():
            return {WHOLE: TextFile(corpus, read_unpacked(path, largest=LARGEST_TEXT))}
    near = difflib.get_close_matches(corpus, CORPORA, n=1, cutoff=0.5)
    suggestion = f"; did you mean {near[0]}?" if near else ";"
    raise DataError(
        f"task.corpus is {corpus!r}, which is no file or folder{suggestion} expected "
        f"{', '.join(CORPORA)}, or the path of a text"
    )


def differences(texts: TextFiles, digests: Mapping[str, str]) -> list[str]:
    """List the files whose content is not that of a release."""
    return [
        texts[name].file
        for name, digest in digests.items()
        if texts[name].digest(_DIGESTS[len(digest)]) != digest
    ]


def divide(texts: TextFiles, *, held_out_once: bool) -> dict[str, np.ndarray]:
    """Divide a corpus that comes in one file: 90, 5 and 5 % in order, or 90 and 10 %.

    Returns: bytes, (length,) uint8 each; without val where the test split serves both.
    """
    arrays = {name: np.frombuffer(text.content, dtype=np.uint8) for name, text in texts.items()}
    if WHOLE not in arrays:
        return {name: arrays[name] for name in SPLITS}
    whole = arrays[WHOLE]
    first, second = len(whole) * 9 // 10, len(whole) * 19 // 20
    if held_out_once:
        return {"train": whole[:first], "test": whole[first:]}
    return {"train": whole[:first], "val": whole[first:second], "test": whole[second:]}
