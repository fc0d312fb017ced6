"""Text: whether a film review is positive, read character by character or byte by byte.

The Large Movie Review Dataset (Maas et al. 2011) as the Long Range Arena takes it (Tay et al.
2021, arXiv:2011.04006).
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveInt

from lra.common.errors import DataError
from lra.common.untrusted import map_array
from lra.tasks.base import DataSeed
from lra.tasks.baselines import logistic
from lra.tasks.documents import Alphabet, Documents, DocumentTask, Rows, Unit
from lra.tasks.preparation import Build
from lra.tasks.random_words import permutation
from lra.tasks.sources.archives import walk
from lra.tasks.sources.downloads import Address
from lra.tasks.sources.parquet import NAME, SPLITS, read_examples
from lra.tasks.sources.prepared import is_prepared, order_as_prepared, read_prepared
from lra.tasks.sources.releases import Release, choose_rows

OFFICIAL_CONTENT = "c106b9774fae8465e995ed1dad71c5b477e2f307d837642c8fe698622287fbf1"
"""The digest that `_reviews` computes for the original 50,000 reviews in their order."""

OFFICIAL_COUNTS = {"train": 22_500, "holdout": 2_500, "test": 25_000}

LARGEST_REVIEW = 2**20
"""Most bytes that a review may have."""

ARCHIVE_BLOCK = 128
"""Reviews of a class that the official archive, and so a table, has in falling order."""

RATINGS = Path(__file__).with_name("sources") / "ratings.npy"
"""The ratings of all reviews, (12500,) uint8, in the order of split, class and number: four in each
byte, from the lowest bits on, each less the lowest rating of its class. TFDS sorts by them."""


RELEASE = Release(
    task="text",
    names={
        "aclImdb*.tar*": "aclImdb_v1.tar.gz, 84,125,825 bytes",
        "aclImdb": "the folder in it, with train/ and test/",
        NAME: "with test*.parquet and the columns text and label, as Hugging Face serves it",
    },
    people_get_it="Get aclImdb_v1.tar.gz from https://ai.stanford.edu/~amaas/data/sentiment/; it "
    "need not be unpacked.",
    addresses=(
        Address(
            # The second is that of "Dive into Deep Learning", with the same SHA-1 as the first.
            urls=(
                "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
                "http://d2l-data.s3-accelerate.amazonaws.com/aclImdb_v1.tar.gz",
            ),
            file_name="aclImdb_v1.tar.gz",
            bytes=84_125_825,
            sha256="c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
        ),
    ),
    accept=lambda path: path if path.is_file() or (path / "train").is_dir() else None,
    table_column="text",
    inside="*/*/*.txt",
    prepared="imdb_reviews/plain_text:1.0.0",
)

_REVIEW = re.compile(r"(?:^|/)(train|test)/(neg|pos)/(\d{1,9})_\d+\.txt$")
_CLASSES = {"neg": 0, "pos": 1}
_LOWEST_RATINGS = {"neg": 1, "pos": 7}
_HOLDOUT, _TRAIN, _TEST = range(3)
"""Streams of the random choices of examples."""


class Text(DocumentTask):
    """Tell negative reviews from positive ones; tokens are characters or bytes.

    Args:
        source: official for files in the data folder, download to fetch them, auto for either, or
            tfds for what tensorflow-datasets has prepared as array_record.
        unit: whether a token is a byte or a character.
        min_frequency: times a character must occur in training to be a token; 15, if not given.
        vocab_size: most tokens; rarer characters become one unknown token; 135, if not given.
        sequence_length: positions read of a review, end token included.
        end_token: whether a token marks the end of every sequence.
        holdout: reviews of the training set to select on; 0 selects on the test set, as the
            published results do.
        train: reviews to train on; if not given, all that are not held out.
        test: reviews to test on; all, if not given.
        data_seed: seed of the random choice of the holdout and of reviews for smaller splits.
    Raises: ValueError if options of characters are given and the unit is bytes.
    """

    name = "text"
    default_counts = OFFICIAL_COUNTS
    release = RELEASE
    usual = (15, 135)
    splits_read = SPLITS
    towers = 1

    def __init__(
        self,
        *,
        source: Literal["auto", "official", "download", "tfds"] = "auto",
        unit: Unit = "characters",
        min_frequency: PositiveInt | None = None,
        vocab_size: Annotated[int, Field(ge=4, le=65_536)] | None = None,
        sequence_length: Annotated[int, Field(ge=2)] = 4096,
        end_token: bool = True,
        holdout: NonNegativeInt = 2500,
        train: PositiveInt | None = None,
        test: PositiveInt | None = None,
        data_seed: DataSeed = 0,
    ) -> None:
        alphabet = Alphabet(unit, sequence_length, end_token, min_frequency, vocab_size)
        counts = {"train": train, "holdout": holdout, "test": test}
        super().__init__(alphabet, source=source, counts=counts, data_seed=data_seed)

    def choose(self, sizes: Mapping[str, int]) -> dict[str, Rows]:
        """See `DocumentTask.choose`."""
        seed, counts = self.data_seed, self.counts
        holdout = counts["holdout"] or 0
        if holdout >= sizes["train"]:
            raise DataError(f"task.holdout is {holdout}, of {sizes['train']} reviews to train on")
        order = permutation(seed, _HOLDOUT, sizes["train"])
        rest = np.sort(order[holdout:])
        train = rest[choose_rows(seed, _TRAIN, len(rest), counts["train"], "task.train")]
        test = choose_rows(seed, _TEST, sizes["test"], counts["test"], "task.test")
        return {
            "train": ("train", train),
            "val": ("train", np.sort(order[:holdout])) if holdout else ("test", test),
            "test": ("test", test),
        }

    def read(self, made: Build, path: Path) -> None:
        """See `DocumentTask.read`."""
        documents = Documents(self.alphabet)
        reviews, content = _reviews(path, documents)
        if content != OFFICIAL_CONTENT:
            made.mark_unofficial(
                "the checksum of its content, in the order of the reviews, is not that of the "
                "release"
            )
        labels = {name: labels for name, (labels, _) in reviews.items()}
        which = {name: which for name, (_, which) in reviews.items()}
        for name in SPLITS:
            if len(np.unique(labels[name])) < len(_CLASSES):
                raise DataError(f"{path} lacks reviews of a class in {name}; is it complete?")
        train, test = which["train"], which["test"]
        self.save_examples(made, labels, {name: which[name][:, None] for name in SPLITS})
        documents.save(made, train)
        bags = np.log1p(documents.histogram())
        made.save("test_predictions", logistic(bags[train], labels["train"], bags[test]))
        made.notes["texts in both train and test"] = len(np.intersect1d(train, test))

    def training_examples(self) -> int:
        """See `Task.training_examples`."""
        labelled = OFFICIAL_COUNTS["train"] + OFFICIAL_COUNTS["holdout"]
        return self.counts["train"] or labelled - (self.counts["holdout"] or 0)


def _reviews(
    path: Path, documents: Documents
) -> tuple[dict[str, tuple[np.ndarray, np.ndarray]], str]:
    """Read all labelled reviews.

    Returns: the labels and the indices of the documents of each split, in the order of class and
        number; and a digest of the whole content in that order.
    """
    rows: dict[str, list[tuple[int, int, bytes]]] = {name: [] for name in SPLITS}
    digests: dict[tuple[str, int, int], bytes] = {}
    read = _read_rows if path.suffix == ".parquet" else _read_files
    read = _read_prepared if is_prepared(path) else read
    for split, label, number, text in read(path):
        rows[split].append((label, number, documents.add(text)))
        digests[split, label, number] = hashlib.sha256(f"{split} {label} ".encode() + text).digest()
    content = hashlib.sha256(b"".join(digests[key] for key in sorted(digests))).hexdigest()
    ordered = [sorted(rows[name]) for name in SPLITS]
    numbers = documents.number([key for reviews in ordered for *_, key in reviews])
    parts = np.split(numbers, [len(ordered[0])])
    labels = [np.array([label for label, *_ in reviews], dtype=np.uint8) for reviews in ordered]
    return dict(zip(SPLITS, zip(labels, parts, strict=True), strict=True)), content


def _read_files(path: Path) -> Iterator[tuple[str, int, int, bytes]]:
    """Read an archive or folder of reviews; yield split, label, number and text of each."""
    for match, file in walk(path, _REVIEW, inside=RELEASE.inside, largest=LARGEST_REVIEW):
        yield match[1], _CLASSES[match[2]], int(match[3]), file.read()


def _read_rows(path: Path) -> Iterator[tuple[str, int, int, bytes]]:
    """Read Parquet files; yield split, label, number and text of each review.

    Rows are in the order of the official archive, which has the reviews of a class 128 at a time,
    each time from the highest number to the lowest.
    """
    for split in SPLITS:
        texts: tuple[list[bytes], ...] = ([], [])
        for text, label in read_examples(path, split, "text", len(_CLASSES)):
            texts[label].append(text)
        for label, class_texts in enumerate(texts):
            for row, text in enumerate(class_texts):
                first = row - row % ARCHIVE_BLOCK
                end = min(first + ARCHIVE_BLOCK, len(class_texts))
                yield split, label, first + end - 1 - row, text


def _read_prepared(path: Path) -> Iterator[tuple[str, int, int, bytes]]:
    """Read what TFDS has prepared; yield split, label, number and text of each review.

    TFDS sorts reviews by the names of their files, which the ratings are a part of.
    """
    packed = map_array(RATINGS)[:, None] >> np.arange(0, 8, 2, dtype=np.uint8)
    ratings = (packed & 3).reshape(len(SPLITS), len(_CLASSES), -1)
    for split, of_split in zip(SPLITS, ratings, strict=True):
        keys = [
            f"aclImdb/{split}/{name}/{number}_{_LOWEST_RATINGS[name] + rating}.txt"
            for name, of_class in zip(_CLASSES, of_split, strict=True)
            for number, rating in enumerate(of_class.tolist())
        ]
        numbers = order_as_prepared(split, keys) % ratings.shape[-1]
        for number, example in zip(numbers.tolist(), read_prepared(path, split), strict=True):
            yield split, int(example["label"]), number, example["text"]
