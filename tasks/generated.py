"""What tasks share whose examples are all drawn from a law."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from common.errors import DataError
from common.progress import progress
from tasks.base import NOT_SCORED, Dataset, Split, Task, check_dataset
from tasks.baselines import majority
from tasks.cache import Build, Cache, cache_folder, open_or_build, read_cache

SPLITS = ("train", "val", "test")
FRESH_TRAINING = 1000
"""Training examples that come with new test examples, for the trivial baselines to be fitted to."""
GROUP = 1024
"""Number of sequences that `draw_in_groups` draws at once. It belongs to the laws: another number
gives other examples."""


class GeneratedTask(Task):
    """A task that draws all its examples from a law.

    A subclass sets `default_counts`, and the constructor sets `counts`, `data_seed` and `info`.
    """

    draws_data = True
    default_counts: ClassVar[Mapping[str, int]]
    """Number of examples of each split, unless options say otherwise."""
    counts: Mapping[str, int]
    data_seed: int

    @abc.abstractmethod
    def describe_law(self) -> dict[str, Any]:
        """Return all that determines the examples, except for their numbers and the seed."""

    @abc.abstractmethod
    def describe_sequences(self) -> str:
        """Say what is drawn, for `describe_preparation`: "sequences of 512 tokens"."""

    @abc.abstractmethod
    def _build(self, made: Build) -> None:
        """Draw all splits and write them."""

    @abc.abstractmethod
    def _dataset(self, cache: Cache) -> Dataset:
        """Open the splits."""

    def _request(self) -> dict[str, Any]:
        return {"law": self.describe_law(), "seed": self.data_seed, "counts": dict(self.counts)}

    def _folder(self, data_dir: Path) -> Path:
        return cache_folder(data_dir, self.name, "generated", self._request())

    def describe_preparation(self, data_dir: Path) -> str:
        """See `Task.describe_preparation`."""
        if self._folder(data_dir).exists():
            return ""
        return f"generate {sum(self.counts.values()):,} {self.describe_sequences()}"

    def prepare(self, data_dir: Path) -> Dataset:
        """See `Task.prepare`."""
        cache = open_or_build(
            self._folder(data_dir),
            task=self.name,
            source="generated",
            request=self._request(),
            build=self._build,
        )
        with cache.explain_errors():
            return check_dataset(self._dataset(cache), self.info)

    def export(self, dataset: Dataset, folder: Path) -> list[Path]:
        """See `Task.export`: there is no official file structure."""
        raise DataError(
            f"{folder}: {self.name} has no official file structure; its arrays are in "
            f"{dataset.folder}"
        )

    @classmethod
    def fresh(
        cls, options: Mapping[str, Any], *, length: int | None, examples: int
    ) -> dict[str, Any]:
        """See `Task.fresh`: draws new examples; a subclass adds what another length changes."""
        few = {"train": FRESH_TRAINING, "val": 1}
        return {"data_seed": options["data_seed"] + 1, "test": examples, **few}

    def training_examples(self) -> int:
        """See `Task.training_examples`."""
        return self.counts["train"]

    def split_sizes(self, examples: int) -> dict[str, int]:
        """See `Task.split_sizes`."""
        if examples < len(SPLITS):
            raise DataError(f"got {examples} examples, expected at least {len(SPLITS)}")
        sizes = self.default_counts
        total = sum(sizes.values())
        held_out = {split: max(1, examples * sizes[split] // total) for split in ("val", "test")}
        return {"train": examples - sum(held_out.values()), **held_out}


@dataclass(frozen=True)
class Drawn:
    """Sequences end to end."""

    tokens: np.ndarray
    """(positions,) unsigned integers."""
    lengths: np.ndarray
    """(sequences,) int32."""
    labels: np.ndarray
    """(sequences,) or (positions,) signed integers, see `Batch.labels`."""

    @property
    def offsets(self) -> np.ndarray:
        """Where each sequence begins and the last one ends, (sequences + 1,) int64."""
        return np.concatenate([[0], np.cumsum(self.lengths, dtype=np.int64)])

    def first(self, count: int) -> Drawn:
        """Keep the first `count` sequences."""
        positions = int(self.lengths[:count].sum(dtype=np.int64))
        labels = positions if len(self.labels) == len(self.tokens) else count
        return Drawn(self.tokens[:positions], self.lengths[:count], self.labels[:labels])


def join_drawn(parts: Iterable[Drawn]) -> Drawn:
    """Concatenate sequences."""
    columns = zip(*((part.tokens, part.lengths, part.labels) for part in parts), strict=True)
    return Drawn(*(np.concatenate(column) for column in columns))


def draw_in_groups(title: str, count: int, draw: Callable[[int], Drawn]) -> Drawn:
    """Draw `count` sequences in groups of GROUP.

    Args:
        title: name of the progress bar.
        count: at least 1.
        draw: draws the group of a number, from 0.
    """
    groups = progress(title, range(-(-count // GROUP)), unit="groups")
    return join_drawn(draw(group) for group in groups).first(count)


class SequenceTask(GeneratedTask):
    """A generated task of labelled token sequences, which are drawn in memory."""

    @abc.abstractmethod
    def draw(self) -> Mapping[str, Drawn]:
        """Draw all splits: a function of the law, the seed and the counts."""

    @abc.abstractmethod
    def open_split(self, drawn: Drawn) -> Split:
        """Return sequences as a split."""

    def simple_baselines(self, test: Drawn) -> dict[str, float]:
        """Return the test accuracies of baselines that follow from the law, in percent."""
        return {"chance": 100 / self.info.num_classes}

    def _build(self, made: Build) -> None:
        drawn = self.draw()
        for split, sequences in drawn.items():
            made.sizes[split] = len(sequences.lengths)
            for name, array in vars(sequences).items():
                made.save(f"{split}_{name}", array)
        train, test = (_scored(drawn[split].labels) for split in ("train", "test"))
        made.baselines = {
            "majority class": majority(train, test),
            **self.simple_baselines(drawn["test"]),
        }

    def _dataset(self, cache: Cache) -> Dataset:
        return Dataset(
            splits={split: self.open_split(_open(cache, split)) for split in SPLITS},
            source=cache.manifest.source,
            fingerprint=cache.fingerprint,
            baselines=cache.manifest.baselines,
            folder=cache.folder,
        )

    def verify(self, dataset: Dataset) -> list[str]:
        """See `Task.verify`: checks checksums, and draws all examples again."""
        cache = read_cache(dataset.folder)
        cache.check_files(checksums=True)
        for split, again in self.draw().items():
            found = vars(_open(cache, split))
            if not all(np.array_equal(found[name], array) for name, array in vars(again).items()):
                raise DataError(
                    f"{cache.folder}: the {split} examples are not what their law draws; delete "
                    f"that folder and run the same command again to draw them again"
                )
        return [
            "sizes and checksums of all files match the manifest",
            f"{sum(self.counts.values())} examples were drawn again and are the same",
        ]


def _open(cache: Cache, split: str) -> Drawn:
    return Drawn(*(cache.array(f"{split}_{name}") for name in Drawn.__dataclass_fields__))


def _scored(labels: np.ndarray) -> np.ndarray:
    return labels[labels != NOT_SCORED]
