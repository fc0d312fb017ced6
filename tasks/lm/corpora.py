"""The corpora that are known by name, and how texts are read out of files and divided."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from lra.common.errors import DataError, nearest
from lra.common.untrusted import explain_errors
from lra.tasks.base import SPLITS
from lra.tasks.sources.archives import GIB, is_zip, read_unpacked, walk
from lra.tasks.sources.downloads import Address
from lra.tasks.sources.releases import Release

Unit = Literal["byte", "word"]
WHOLE = "text"
"""Stands for the only file of a corpus that comes in one."""

SPLIT_FILE = re.compile(r"(?:^|/)(?:wiki\.)?(train|val|valid|validation|test)(?:\.txt|\.tokens)?$")
"""Names of the files of a corpus that comes in splits."""

MORE_WORDS = 50_000
"""Most words of a vocabulary, unless another number is given or known."""


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """A published text."""

    release: Release
    files: re.Pattern[str]
    """Found in the names of the files to read in an archive or folder."""
    digests: Mapping[str, str]
    """MD5, SHA-1 or SHA-256 of each file, by the split that it holds, or as WHOLE."""
    training_tokens: Mapping[Unit, int]
    """Tokens of the training split, where their number is known without the text."""
    vocab_size: int = MORE_WORDS
    """Most words of its vocabulary."""
    held_out_once: bool = False
    """Whether one held-out part serves validation and test both."""


def _has_splits(path: Path) -> Path | None:
    """Accept an archive or folder of WikiText, but not of its raw version."""
    inside = path.iterdir() if path.is_dir() else iter([path])
    fits = path.is_file() or any(SPLIT_FILE.search(file.name) for file in inside)
    return path if fits and "raw" not in path.name else None


def _wikitext(
    number: int, digests: dict[str, str], training_tokens: Mapping[Unit, int], vocab_size: int
) -> Corpus:
    """Describe WikiText (Merity et al. 2016, arXiv:1609.07843), with <unk> for rare words."""
    name = f"wikitext-{number}"
    release = Release(
        task="lm",
        names={
            f"{name}*.zip": f"{name}-v1.zip",
            f"{name}*.tar*": "an archive of the same files",
            name: "a folder of them: wiki.train.tokens or train.txt, and so on",
        },
        people_get_it=f"Get https://wikitext.smerity.com/{name}-v1.zip; it need not be unpacked. "
        f"{name}-raw-v1.zip is a different text.",
        accept=_has_splits,
        inside="*",
    )
    return Corpus(
        release=release,
        files=SPLIT_FILE,
        digests=digests,
        training_tokens=training_tokens,
        vocab_size=vocab_size,
    )


def _hutter(name: str, md5: str) -> Corpus:
    """Describe a text of Mahoney's compression benchmark, of 100 million bytes."""
    release = Release(
        task="lm",
        names={
            f"{name}.zip": "the archive",
            name: "the file in it, 100,000,000 bytes",
            f"{name}.[gx]z": "the same file, compressed",
        },
        people_get_it=f"Get https://mattmahoney.net/dc/{name}.zip; it need not be unpacked.",
        accept=lambda path: path if path.is_file() else None,
        inside="*",
    )
    return Corpus(
        release=release,
        files=re.compile(rf"(?:^|/){name}$"),
        digests={WHOLE: md5},
        training_tokens={"byte": 90_000_000},
    )


_SHAKESPEARE = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"

CORPORA: Mapping[str, Corpus] = {
    "wikitext-2": _wikitext(
        2,
        {
            "train": "9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f",
            "val": "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
            "test": "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
        },
        {"byte": 10_797_148, "word": 2_088_628},
        33_278,
    ),
    "wikitext-103": _wikitext(
        103,
        # As GluonNLP 0.10 has them, whose digests of WikiText-2 are those of the files above.
        {
            "train": "b7497e2dfe77e72cfef5e3dbc61b7b53712ac211",
            "val": "c326ac59dc587676d58c422eb8a03e119582f92b",
            "test": "8a5befc548865cec54ed4273cf87dbbad60d1e47",
        },
        {"word": 103_227_021},
        267_735,
    ),
    "enwik8": _hutter("enwik8", "a1fa5ffddb56f4953e226637dabbb36a"),
    "text8": _hutter("text8", "3bea1919949baf155f99411df5fada7e"),
    "shakespeare": Corpus(
        release=Release(
            task="lm",
            names={
                "tinyshakespeare.txt*": "1,115,394 bytes, or compressed as .xz or .gz",
                "tinyshakespeare/input.txt": "the same file",
                "shakespeare_char/input.txt": "the same file, named as in nanoGPT",
            },
            people_get_it="Get data/tinyshakespeare/input.txt from github.com/karpathy/char-rnn "
            "and save it as tinyshakespeare.txt.",
            addresses=(
                Address(
                    urls=(
                        "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/"
                        "tinyshakespeare/input.txt",
                    ),
                    file_name="tinyshakespeare.txt",
                    bytes=1_115_394,
                    sha256=_SHAKESPEARE,
                ),
            ),
            accept=lambda path: path if path.is_file() else None,
            inside="*",
        ),
        files=re.compile(r"(?:^|/)(?:input|tinyshakespeare)\.txt$"),
        digests={WHOLE: _SHAKESPEARE},
        training_tokens={"byte": 1_003_854},
        held_out_once=True,
    ),
}

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
    texts: dict[str, TextFile] = {}
    for match, file in walk(path, files, inside="*", largest=LARGEST_TEXT):
        split = _ALIASES.get(match[1], match[1]) if files is SPLIT_FILE else WHOLE
        if split in texts:
            raise DataError(f"{path} has {split} twice: {texts[split].file} and {match.string}")
        texts[split] = TextFile(match.string, file.read())
    missing = [name for name in (SPLITS if files is SPLIT_FILE else [WHOLE]) if name not in texts]
    if missing:
        raise DataError(
            f"{path} has no file of {', '.join(missing)}; expected train.txt, valid.txt and "
            f"test.txt, or wiki.train.tokens and so on, or of a corpus in one file that one"
        )
    return texts


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
    near = nearest(corpus, CORPORA)
    suggestion = f"; did you mean {near}?" if near else ";"
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
