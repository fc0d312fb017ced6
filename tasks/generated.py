"""What tasks share whose examples are drawn from a law."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lra.common.errors import DataError
from lra.common.progress import progress
from lra.tasks.base import SPLITS, Dataset, Split, Task, majority
from lra.tasks.cache import Cache
from lra.tasks.goals import NOT_SCORED, PositionLabels
from lra.tasks.preparation import Build, Preparation
from lra.tasks.random_words import RandomWords

FRESH_TRAINING = 1000
"""Training examples that come with new test examples, for the trivial baselines to be fitted to."""
GROUP = 1024
"""Number of sequences that are drawn at once. It belongs to the laws: another number gives other
examples."""


class GeneratedTask(Task):
    """A task whose examples are drawn from a law, in memory.

    A subclass sets `default_counts`, and its constructor sets `counts`, `data_seed` and `info`.
    """

    draws_data = True
    counts: Mapping[str, int]  # pyright: ignore[reportIncompatibleVariableOverride]
    data_seed: int

    @abc.abstractmethod
    def describe_law(self) -> dict[str, Any]:
        """Return all that determines the examples, except for their numbers and the seed."""

    @abc.abstractmethod
    def draw(self) -> dict[str, np.ndarray]:
        """Draw all examples: the arrays of the cache, by name, such as train_labels."""

    @abc.abstractmethod
    def open_split(self, cache: Cache, split: str) -> Split:
        """Open a split of the cache."""

    def mean_length(self, split: str) -> float:
        """Return about how many positions an example of a split has."""
        return self.info.max_length

    def measure_baselines(self, arrays: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Return test accuracies in percent of trivial baselines, by name."""
        labels = [arrays["train_labels"], arrays["test_labels"]]
        train, test = (some[some != NOT_SCORED] for some in labels)
        return {"majority class": majority(train, test), "chance": 100 / self.info.goal.outputs}

    def request(self) -> dict[str, Any]:
        """Return all that determines the examples."""
        return {"law": self.describe_law(), "seed": self.data_seed, "counts": dict(self.counts)}

    def plan(self, data_dir: Path) -> Preparation:
        """See `Task.plan`."""
        parts = 1 + isinstance(self.info.goal, PositionLabels)  # tokens, and their labels
        width = parts * np.min_scalar_type(self.info.vocab_size or 0).itemsize
        positions = sum(count * self.mean_length(split) for split, count in self.counts.items())
        return Preparation(
            data_dir=data_dir,
            task=self.name,
            name="generated",
            source="generated",
            request=self.request(),
            build=lambda made: self.save(made, self.draw()),
            description=f"generate {sum(self.counts.values()):,} examples",
            bytes=int(width * positions),
        )

    def save(self, made: Build, arrays: Mapping[str, np.ndarray]) -> None:
        """Write the arrays of the cache and the accuracies of trivial baselines."""
        for name, array in arrays.items():
            made.save(name, array)
        made.sizes = dict(self.counts)
        made.baselines = self.measure_baselines(arrays)

    def open_dataset(self, cache: Cache) -> Dataset:
        """See `Task.open_dataset`."""
        return Dataset.from_cache(cache, {split: self.open_split(cache, split) for split in SPLITS})

    def check(self, cache: Cache, dataset: Dataset) -> list[str]:
        """See `Task.check`: draws all examples again."""
        for name, again in self.draw().items():
            # Processors round real numbers differently.
            tolerance = 1e-3 if again.dtype.kind == "f" else 0
            stored = cache.array(name)
            same = stored.shape == again.shape
            if not same or not np.allclose(stored, again, rtol=tolerance, atol=tolerance):
                raise DataError(
                    f"{cache.folder}: {name} is not what its law draws; delete that folder and run "
                    f"the same command again to draw it again"
                )
        return [f"{sum(self.counts.values())} examples were drawn again and are the same"]

    @classmethod
    def fresh(
        cls, options: Mapping[str, Any], *, length: int | None, examples: int
    ) -> dict[str, Any]:
        """See `Task.fresh`: draws new examples."""
        drawn = {"data_seed": options["data_seed"] + 1, "train": FRESH_TRAINING, "val": 1}
        longer = {} if length is None else cls.change_length(options, length)
        return {**drawn, "test": examples, **longer}

    @classmethod
    @abc.abstractmethod
    def change_length(cls, options: Mapping[str, Any], length: int) -> dict[str, Any]:
        """Return the options that change for test examples of another length."""


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

    @classmethod
    def from_cache(cls, cache: Cache, split: str) -> Drawn:
        """Open the sequences of a split."""
        return cls(*(cache.array(f"{split}_{name}") for name in cls.__dataclass_fields__))

    def first(self, count: int) -> Drawn:
        """Keep the first `count` sequences."""
        positions = int(self.lengths[:count].sum(dtype=np.int64))
        labels = positions if len(self.labels) == len(self.tokens) else count
        return Drawn(self.tokens[:positions], self.lengths[:count], self.labels[:labels])

    def arrays(self, split: str) -> dict[str, np.ndarray]:
        """Name the arrays as in the cache."""
        return {f"{split}_{name}": array for name, array in vars(self).items()}


def join_drawn(parts: Iterable[Drawn]) -> Drawn:
    """Concatenate sequences."""
    columns = zip(*((part.tokens, part.lengths, part.labels) for part in parts), strict=True)
    return Drawn(*(np.concatenate(column) for column in columns))


Law = Callable[[RandomWords], Drawn]
"""Draws GROUP sequences."""


def draw_in_groups(title: str, count: int, law: Law, seed: int, stream: int) -> Drawn:
    """Draw `count` sequences in groups, each from random words of its own."""
    groups = progress(title, range(-(-count // GROUP)), unit="groups")
    drawn = (law(RandomWords(seed, stream << 32 | group)) for group in groups)
    return join_drawn(drawn).first(count)


def draw_segments(
    laws: Mapping[str, Mapping[str, Law]], counts: Mapping[str, Sequence[int]], seed: int
) -> dict[str, np.ndarray]:
    """Draw splits in segments, by split: laws by name, and numbers of sequences."""
    arrays: dict[str, np.ndarray] = {}
    for number, split in enumerate(SPLITS):
        segments = zip(laws[split].items(), counts[split], strict=True)
        parts = [
            draw_in_groups(f"drawing {split} {name}", count, law, seed, number << 8 | index)
            for index, ((name, law), count) in enumerate(segments)
        ]
        arrays |= join_drawn(parts).arrays(split)
    return arrays


def divide(total: int, shares: Iterable[int]) -> list[int]:
    """Divide a number in given proportions: whole numbers with this sum."""
    sums = np.cumsum([0, *shares])
    return np.diff(total * sums // sums[-1]).tolist()
