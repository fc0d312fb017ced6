"""Retrieval: whether one paper cites another, both read character by character or byte by byte.

The ACL Anthology Network (Radev et al. 2013) as the Long Range Arena takes it (Tay et al. 2021,
arXiv:2011.04006).

The files `new_aan_pairs.{train,eval,test}.tsv` of its release have no header. A line holds label,
id, id, text and text, separated by tabs; quotes belong to the text. Several GB repeat the texts of
a few ten thousand papers, so the files are read in one pass and each text is kept once.
"""

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field, PositiveInt

from lra.common.errors import DataError
from lra.tasks.base import SPLITS, DataSeed
from lra.tasks.baselines import LARGEST_FIT, logistic, pair_features
from lra.tasks.documents import Alphabet, Documents, DocumentTask, Rows, Unit
from lra.tasks.preparation import Build
from lra.tasks.random_words import permutation
from lra.tasks.sources.archives import read_rows, walk
from lra.tasks.sources.downloads import Address
from lra.tasks.sources.releases import (
    NEARLY_ARCHIVE,
    Release,
    choose_rows,
    describe_size_difference,
)

logger = logging.getLogger(__name__)

OFFICIAL_COUNTS = {"train": 147_086, "val": 18_090, "test": 17_437}
PRINTABLE = np.isin(np.arange(256), np.arange(0x20, 0x7F))
"""Which bytes texts of the release consist of. No checksum of it is published, but the size of S4's
vocabulary is: 98, for the 95 printable characters of ASCII and three more."""

FILE_SPLITS = {"train": "train", "eval": "val", "test": "test"}
"""The name of the split here, by the word in the name of the file."""

LONGEST_LINE = 64 * 2**20
"""Most bytes of a line."""

MOST_MALFORMED = 0.01
"""Share of a file's lines that may be malformed: with more, it is another kind of file."""

FILE = re.compile(r"(?:^|/)new_aan_pairs\.(train|eval|test)\.tsv$")

FOLDER = (
    "https://huggingface.co/datasets/OpenNLPLab/lra/resolve/"
    "6cb133c44f406da743661488df9e977b87d98775/data/aan"
)
SIZES = {"eval": 1.05e9, "test": 1.04e9, "train": 8.53e9}
"""Bytes of the files in FOLDER, about. The training file is downloaded last, because a folder is
read once it has that file."""

_LABELS = {b"0": 0, b"0.0": 0, b"1": 1, b"1.0": 1}
_FIELDS = 5

RELEASE = Release(
    task="retrieval",
    names={
        "new_aan_pairs.train.tsv": "with .eval and .test in the same folder",
        "lra_release*gz": "the whole archive, 7.7 GB",
    },
    nearly=rf"new.?aan.?pairs|{NEARLY_ARCHIVE}",
    people_get_it="Run python -m lra.prepare --task retrieval --source download to fetch the three "
    "files (10.6 GB), which the authors of TNN keep in data/aan of "
    "huggingface.co/datasets/OpenNLPLab/lra. lra_release.gz, of "
    "github.com/google-research/long-range-arena, can no longer be downloaded. Other pairs in the "
    "same columns are marked as unofficial.",
    addresses=tuple(
        Address(urls=(f"{FOLDER}/{name}",), bytes=round(size), file_name=f"aan/{name}")
        for name, size in ((f"new_aan_pairs.{word}.tsv", size) for word, size in SIZES.items())
    ),
    accept=lambda path: path.parent if path.suffix == ".tsv" else path if path.is_file() else None,
    inside="new_aan_pairs.*.tsv",
)


class Retrieval(DocumentTask):
    """Tell pairs of papers without a citation from pairs with one; tokens are characters or bytes.

    Args:
        source: official insists on the official pairs, and download fetches them (10.6 GB); auto
            takes any in files of that structure.
        unit: whether a token is a byte or a character.
        min_frequency: times a character must occur in training to be a token; 1, if not given.
        vocab_size: most tokens; rarer characters become one unknown token; 98, if not given.
        sequence_length: positions read of a paper, end token included.
        end_token: whether a token marks the end of every sequence.
        train: pairs to train on; all, if not given.
        val: pairs to select on; all, if not given.
        test: pairs to test on; all, if not given.
        data_seed: seed of the random choice of pairs for smaller splits.
    Raises: ValueError if options of characters are given and the unit is bytes.
    """

    name = "retrieval"
    default_counts = OFFICIAL_COUNTS
    release = RELEASE
    usual = (1, 98)
    splits_read = SPLITS
    towers = 2

    def __init__(
        self,
        *,
        source: Literal["auto", "official", "download"] = "auto",
        unit: Unit = "characters",
        min_frequency: PositiveInt | None = None,
        vocab_size: Annotated[int, Field(ge=4, le=65_536)] | None = None,
        sequence_length: Annotated[int, Field(ge=2)] = 4000,
        end_token: bool = True,
        train: PositiveInt | None = None,
        val: PositiveInt | None = None,
        test: PositiveInt | None = None,
        data_seed: DataSeed = 0,
    ) -> None:
        alphabet = Alphabet(unit, sequence_length, end_token, min_frequency, vocab_size)
        counts = {"train": train, "val": val, "test": test}
        super().__init__(alphabet, source=source, counts=counts, data_seed=data_seed)

    def choose(self, sizes: Mapping[str, int]) -> dict[str, Rows]:
        """See `DocumentTask.choose`."""
        return {
            name: (
                name,
                choose_rows(self.data_seed, stream, sizes[name], self.counts[name], f"task.{name}"),
            )
            for stream, name in enumerate(SPLITS)
        }

    def read(self, made: Build, path: Path) -> None:
        """See `DocumentTask.read`."""
        documents = Documents(self.alphabet)
        pairs_read = _read_pairs(path, documents)
        made.skipped = [line for name in SPLITS for line in pairs_read[name].skipped]
        labels = {name: pairs_read[name].labels for name in SPLITS}
        numbers = documents.number([key for name in SPLITS for key in pairs_read[name].keys])
        ends = np.cumsum([len(labels[name]) for name in SPLITS])[:-1]
        parts = np.split(numbers.reshape(-1, 2).astype(np.int32), ends)
        pairs: dict[str, np.ndarray] = dict(zip(SPLITS, parts, strict=True))
        self.save_examples(made, labels, pairs)
        bytes_of = documents.histogram()
        if made.sizes != OFFICIAL_COUNTS:
            made.mark_unofficial(describe_size_difference(made.sizes, OFFICIAL_COUNTS, "pairs"))
        elif bytes_of[:, ~PRINTABLE].any():
            made.mark_unofficial("it has texts with characters beyond the printable ones of ASCII")
        else:
            made.notes["pairs taken for the official ones without a checksum"] = sum(
                OFFICIAL_COUNTS.values()
            )
        train, test = pairs["train"], pairs["test"]
        documents.save(made, train.ravel())
        bags = np.log1p(bytes_of)
        fit = permutation(0, 0, len(train))[:LARGEST_FIT]
        features = pair_features(bags, train[fit])
        predictions = logistic(features, labels["train"][fit], pair_features(bags, test))
        made.save("test_predictions", predictions)
        made.notes |= {
            "lines skipped as malformed": len(made.skipped),
            "pairs in both train and test": len(_common(train, test)),
            "papers in both train and test": len(np.intersect1d(train, test)),
        }


def _common(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Find the pairs (n, 2) that are in both lists."""
    key = np.array([2**32, 1])
    return np.intersect1d(a.astype(np.int64) @ key, b.astype(np.int64) @ key)


class Pairs(NamedTuple):
    """The pairs of one file."""

    labels: np.ndarray
    """(pairs,) uint8."""
    keys: list[bytes]
    """Two of each pair, of its documents."""
    skipped: list[str]
    """Malformed lines, each with its place and fault."""


def _read_pairs(path: Path, documents: Documents) -> dict[str, Pairs]:
    """Read all three files of a folder or an archive, by split; texts are added to the documents.

    Raises: DataError if a file is missing, is empty, or has another format.
    """
    pairs: dict[str, Pairs] = {}
    for match, file in walk(path, FILE, inside=RELEASE.inside):
        pairs[FILE_SPLITS[match[1]]] = _read_file(file, documents, f"{path}/{match.string}")
    for word, split in FILE_SPLITS.items():
        if split not in pairs:
            raise DataError(f"{path} lacks new_aan_pairs.{word}.tsv; put it beside the others")
    return pairs


def _read_file(file: IO[bytes], documents: Documents, shown: str) -> Pairs:
    labels: list[int] = []
    keys: list[bytes] = []
    skipped: list[str] = []
    for number, row in enumerate(read_rows(file, shown, longest=LONGEST_LINE), start=1):
        label = _LABELS.get(row[0])
        if len(row) == _FIELDS and label is not None:
            labels.append(label)
            keys += documents.add(row[3]), documents.add(row[4])
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
    return Pairs(np.array(labels, dtype=np.uint8), keys, skipped)
