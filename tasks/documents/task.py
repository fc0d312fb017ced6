"""What Text and Retrieval have in common: examples are one or two documents of a release."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from common.errors import DataError
from tasks.base import Dataset, Task, TaskInfo, accuracy_percent, majority
from tasks.cache import Cache
from tasks.documents.documents import END, UNKNOWN, Alphabet, Unit
from tasks.preparation import Build
from tasks.sources.releases import Release, ReleaseCache
from tasks.splits import PackedSequences, Sequences

Rows = tuple[str, np.ndarray]
"""The name of a split as it was read, and (n,) indices of its examples."""


class DocumentTask(Task):
    """A task of two classes whose examples are one or more documents.

    For each split as it was read, the cache holds labels (n,) and documents (n, towers), which
    are indices of the stored sequences; for the test split it holds what the bag of bytes, a
    trivial baseline, predicts.

    Args:
        source: the task's option `source`.
        unit, sequence_length, end_token, min_frequency, vocab_size: see `Alphabet`.
        counts: the options that say how many examples to use, by name.
        data_seed: seed of the random choice of examples.
    """

    release: ClassVar[Release]
    usual: ClassVar[tuple[int, int]]
    """Options min_frequency and vocab_size of characters, if they are not given."""
    splits_read: ClassVar[tuple[str, ...]]
    towers: ClassVar[int]

    def __init__(
        self,
        *,
        source: str,
        unit: Unit,
        sequence_length: int,
        end_token: bool,
        min_frequency: int | None,
        vocab_size: int | None,
        counts: Mapping[str, int | None],
        data_seed: int,
    ) -> None:
        if unit == "characters":
            min_frequency = min_frequency or self.usual[0]
            vocab_size = vocab_size or self.usual[1]
        self.alphabet = Alphabet(
            unit=unit,
            sequence_length=sequence_length,
            has_end=end_token,
            min_frequency=min_frequency,
            size=vocab_size,
        )
        self.source = source
        self.counts = counts
        self.data_seed = data_seed
        self.info = TaskInfo(
            name=self.name,
            num_classes=2,
            max_length=sequence_length,
            vocab_size=self.alphabet.vocab_size,
            towers=self.towers,
        )

    @classmethod
    def fresh(
        cls, options: Mapping[str, Any], *, length: int | None, examples: int
    ) -> dict[str, Any]:
        """See `Task.fresh`: reads more of the same documents."""
        if options["unit"] == "characters":
            raise DataError(
                f"{cls.name}: characters are numbered by how often they occur in what the training "
                f"read, so that other options give them other numbers; models of bytes "
                f"(--protocol lra) can read further"
            )
        return {} if length is None else {"sequence_length": length}

    @abc.abstractmethod
    def read(self, made: Build, path: Path) -> None:
        """Read an archive or folder into a cache."""

    @abc.abstractmethod
    def choose(self, sizes: Mapping[str, int]) -> dict[str, Rows]:
        """Choose the examples of train, val and test.

        Args:
            sizes: numbers of examples of the splits as they were read, by name.
        Raises: DataError if the examples are too few.
        """

    def plan(self, data_dir: Path) -> ReleaseCache:
        """See `Task.plan`."""
        return ReleaseCache(
            self.release,
            data_dir,
            name=self.alphabet.unit,
            option=self.source,
            request=self.alphabet.request(),
            read=self.read,
        )

    def open_dataset(self, cache: Cache) -> Dataset:
        """See `Task.open_dataset`."""
        alphabet, offsets = self.alphabet, np.asarray(cache.array("offsets"))
        first_id, end = alphabet.first_id, alphabet.end_token
        sequences = Sequences(cache.array("tokens"), offsets, first_id, end)
        labels, documents = self._arrays(cache, "labels"), self._arrays(cache, "documents")
        chosen = self.choose({name: len(found) for name, found in labels.items()})
        splits = {
            name: PackedSequences(sequences, labels[read][rows], documents[read][rows])
            for name, (read, rows) in chosen.items()
        }
        predictions = np.asarray(cache.array("test_predictions"))[chosen["test"][1]]
        view = {**self.counts, "data_seed": self.data_seed}
        return Dataset.from_cache(
            cache,
            splits,
            view,
            vars(alphabet),
            baselines={
                "majority class": majority(splits["train"].labels, splits["test"].labels),
                "bag of bytes": accuracy_percent(predictions, splits["test"].labels),
            },
            selected_on="test" if chosen["val"][0] == "test" else "val",
        )

    def _arrays(self, cache: Cache, kind: str) -> dict[str, np.ndarray]:
        return {name: np.asarray(cache.array(f"{name}_{kind}")) for name in self.splits_read}

    def save_examples(
        self, made: Build, labels: Mapping[str, np.ndarray], documents: Mapping[str, np.ndarray]
    ) -> None:
        """Write labels (n,) uint8 and documents (n, towers) of each split."""
        for name in self.splits_read:
            made.sizes[name] = len(labels[name])
            made.save(f"{name}_labels", labels[name])
            made.save(f"{name}_documents", documents[name])

    def check(self, cache: Cache, dataset: Dataset) -> list[str]:
        """See `Task.check`: every stored token."""
        tokens, lengths = cache.array("tokens"), np.diff(cache.array("offsets"))
        low, high = 0, 255
        if self.alphabet.unit == "characters":
            low, high = UNKNOWN, END + len(cache.array("vocabulary"))
        limit = self.alphabet.limit
        if lengths.max() > limit or tokens.min() < low or tokens.max() > high:
            raise DataError(
                f"{cache.folder}: tokens {tokens.min()} to {tokens.max()} in up to {lengths.max()} "
                f"positions, expected {low} to {high} in up to {limit}"
            )
        found = f"{len(tokens)} tokens of {len(lengths)} distinct texts are {low} to {high}"
        labels = self._arrays(cache, "labels").items()
        return [
            found,
            *(f"{n} has {len(y)} examples, {y.sum()} of them positive" for n, y in labels),
        ]
