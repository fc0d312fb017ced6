"""Text: whether a film review is positive, read character by character or byte by byte.

The Large Movie Review Dataset (Maas et al. 2011) as the Long Range Arena takes it (Tay et al.
2021, arXiv:2011.04006).
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveInt

from tasks._archive import walk
from tasks._baselines import bag, logistic, majority
from tasks._documents import (
    Documents,
    Unit,
    check_documents,
    choose_alphabet,
    open_documents,
)
from tasks._release import Release, open_release
from tasks.base import DataError, Dataset, Task, TaskInfo, accuracy_percent, share
from tasks.batching import PackedTokens, choose_rows
from tasks.cache import Build, canonical_hash, read_cache
from tasks.random_words import permutation

OFFICIAL_COUNT = 25_000
"""Reviews in train and in test, half of them positive."""

OFFICIAL_CONTENT = "4c28138be40caa9c0ec559ec9763c8ceb580882c90f1568531d1ef139a5add14"
"""What `_reviews` makes of the content of the original 50,000."""

LARGEST_REVIEW = 2**20

RELEASE = Release(
    task="text",
    names={
        "aclImdb*.tar*": "aclImdb_v1.tar.gz has 84,125,825 bytes",
        "aclImdb": "the folder in it, with train/ and test/",
    },
    people_get_it="Get aclImdb_v1.tar.gz from https://ai.stanford.edu/~amaas/data/sentiment/ and "
    "put it there as it is.",
    registered_as="imdb_reviews",
    accept=lambda path: path if path.is_file() or (path / "train").is_dir() else None,
    inside="*/*/*.txt",
)

_REVIEW = re.compile(r"(?:^|/)(train|test)/(neg|pos)/(\d+)_(\d+)\.txt$")
SPLITS = ("train", "test")
_CLASSES = {"neg": 0, "pos": 1}
_HOLDOUT, _TRAIN, _TEST = range(3)
"""Streams of the random orders that splits are chosen by."""


class Text(Task):
    """Two classes, negative and positive; tokens are characters or bytes.

    Args:
        source: official files that are there, a download of them, or auto: whichever can be had.
        unit: what a token is.
        min_frequency: times that a character must occur in training to be a token (15).
        vocab_size: tokens, at most; rarer characters are one unknown token (135).
        sequence_length: positions read of a review, end token included.
        end_token: whether a token marks the end of every sequence.
        holdout: reviews of the training set to select on; 0 selects on the test set, as the
            published results do.
        train: reviews to train on; all that are left, if not given.
        test: reviews to test on; all, if not given.
        data_seed: chooses the holdout, and the reviews of smaller splits.
    Raises: ValueError for options of characters that bytes have no use for.
    """

    name = "text"

    def __init__(
        self,
        *,
        source: Literal["auto", "official", "download"] = "auto",
        unit: Unit = "characters",
        min_frequency: PositiveInt | None = None,
        vocab_size: Annotated[int, Field(ge=4, le=65_536)] | None = None,
        sequence_length: Annotated[int, Field(ge=2)] = 4096,
        end_token: bool = True,
        holdout: NonNegativeInt = 2500,
        train: PositiveInt | None = None,
        test: PositiveInt | None = None,
        data_seed: Annotated[int, Field(ge=0, lt=2**63)] = 0,
    ) -> None:
        self.source = source
        self.alphabet = choose_alphabet(
            unit,
            sequence_length=sequence_length,
            end_token=end_token,
            min_frequency=min_frequency,
            vocab_size=vocab_size,
            usual=(15, 135),
        )
        self.counts = {"train": train, "holdout": holdout, "test": test}
        self.data_seed = data_seed
        self.info = TaskInfo(
            name=self.name,
            num_classes=2,
            max_length=sequence_length,
            vocab_size=self.alphabet.vocab_size,
        )

    def prepare(self, data_dir: Path) -> Dataset:
        """See `Task.prepare`."""
        cache = open_release(
            RELEASE,
            data_dir,
            name=self.alphabet.unit,
            source=self.source,
            request=self.alphabet.request(),
            read=self._read,
        )
        sequences = open_documents(cache, self.alphabet)
        labels = {name: np.asarray(cache.array(f"{name}_labels")) for name in SPLITS}
        documents = {name: np.asarray(cache.array(f"{name}_documents")) for name in labels}
        chosen = self._choose({name: len(found) for name, found in labels.items()})
        splits = {
            name: PackedTokens(sequences, labels[origin][rows], documents[origin][rows, None])
            for name, (origin, rows) in chosen.items()
        }
        _, tested = chosen["test"]
        guesses = np.asarray(cache.array("test_guesses"))[tested]
        selected_on = "val" if self.counts["holdout"] else "test"
        view = {**self.counts, "data_seed": self.data_seed, "alphabet": vars(self.alphabet)}
        return Dataset(
            splits=splits,
            source=cache.manifest.source,
            fingerprint=canonical_hash([cache.fingerprint, view]),
            baselines={
                "majority class": majority(splits["train"].labels, splits["test"].labels),
                "bag of bytes": accuracy_percent(guesses, splits["test"].labels),
            },
            folder=cache.folder,
            notes=cache.manifest.notes,
            selected_on=selected_on,
        )

    def _choose(self, sizes: dict[str, int]) -> dict[str, tuple[str, np.ndarray]]:
        """Choose each split's reviews: the official split they are from, and their rows."""
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

    def _read(self, made: Build, path: Path) -> None:
        documents = Documents(self.alphabet)
        reviews, content = _reviews(path, documents)
        if content != OFFICIAL_CONTENT:
            made.source = "unofficial"
        for split, (labels, which) in reviews.items():
            if len(np.unique(labels)) < len(_CLASSES):
                raise DataError(f"{path} lacks reviews of a class in {split}; is it complete?")
            made.sizes[split] = len(labels)
            made.save(f"{split}_labels", labels)
            made.save(f"{split}_documents", which)
        (labels, train), (_, test) = reviews["train"], reviews["test"]
        documents.save(made, train)
        bags = bag(documents.histogram())
        made.save("test_guesses", logistic(bags[train], labels, bags[test]))
        made.notes["texts in both train and test"] = len(np.intersect1d(train, test))

    def verify(self, dataset: Dataset) -> list[str]:
        """See `Task.verify`: checksums, every token, and the classes."""
        cache = read_cache(dataset.folder)
        cache.check_files(checksums=True)
        checks = check_documents(cache, self.alphabet)
        for name in SPLITS:
            labels = cache.array(f"{name}_labels")
            count, positive = len(labels), int((labels == 1).sum())
            if cache.manifest.source == "official" and (count, 2 * positive) != (
                OFFICIAL_COUNT,
                OFFICIAL_COUNT,
            ):
                raise DataError(
                    f"{dataset.folder}: {name} has {count} reviews, {positive} positive"
                )
            checks.append(f"{name} has {count} reviews, {positive} of them positive")
        return checks

    def split_sizes(self, examples: int) -> dict[str, int]:
        """See `Task.split_sizes`."""
        return share(examples, {"train": 22_500, "holdout": 2_500, "test": OFFICIAL_COUNT})


def _reviews(
    path: Path, documents: Documents
) -> tuple[dict[str, tuple[np.ndarray, np.ndarray]], str]:
    """Read all labelled reviews.

    Returns: by split the labels and the indices of the documents, in the order of class and
        number; and a digest of the whole content.
    """
    rows: dict[str, list[tuple[int, int, int]]] = {name: [] for name in SPLITS}
    digests: list[bytes] = []
    for found, file in walk(path, _REVIEW, inside=RELEASE.inside, largest=LARGEST_REVIEW):
        split, label, number = found[1], _CLASSES[found[2]], int(found[3])
        text = file.read()
        rows[split].append((label, number, documents.add(text)))
        digests.append(hashlib.sha256(f"{split} {label} ".encode() + text).digest())
    content = hashlib.sha256(b"".join(sorted(digests))).hexdigest()
    tables = {
        name: np.array(sorted(of), dtype=np.int64).reshape(-1, 3) for name, of in rows.items()
    }
    new_index = documents.renumber(np.concatenate([table[:, 2] for table in tables.values()]))
    reviews = {name: (t[:, 0].astype(np.uint8), new_index[t[:, 2]]) for name, t in tables.items()}
    return reviews, content
