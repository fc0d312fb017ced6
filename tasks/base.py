"""The interface of a task, its splits and its data sets."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from lra.common.errors import DataError, UserError
from lra.tasks.batch import Batch, check_indices
from lra.tasks.cache import Cache, canonical_hash, read_cache
from lra.tasks.goals import Goal
from lra.tasks.preparation import Preparation

BENCHMARK = ("listops", "text", "retrieval", "image", "pathfinder", "pathx")
"""The tasks of the Long Range Arena, in the order of its tables."""

PROBES = ("recall", "languages", "groups", "flip-flop")
"""Tasks that each ask for one ability. Their results are tabulated by themselves."""

SPLITS = ("train", "val", "test")
DataSeed = Annotated[int, Field(ge=0, lt=2**63)]
"""Type of the option that seeds a generator or a random choice of data."""
MOST_CLASSES = 1000
"""Most classes of examples that a task may have: tables and predictions are made for no more."""
LONGEST_WORD = 100
"""Most letters of a metadata field's name, and of its words."""


def is_word(value: object) -> bool:
    """Whether a value can be a metadata field's name, or one of its words."""
    return isinstance(value, str) and value.isprintable() and len(value) <= LONGEST_WORD


@dataclass(frozen=True, kw_only=True)
class TaskInfo:
    """What a classifier must know about a task."""

    name: str
    goal: Goal
    """What a model is to predict."""
    max_length: int
    """Longest sequence, in positions, end token included."""
    vocab_size: int | None = None
    """Number of different tokens; None when inputs are real numbers."""
    channels: int | None = None
    """Real numbers per position; None when inputs are tokens."""
    towers: int = 1
    """Sequences per example: 2 for a pair of documents."""
    grid: tuple[int, int] | None = None
    """(height, width) of an image, None for a sequence."""


class Split(abc.ABC):
    """The examples of one split, which are assembled into batches without a loop over them."""

    stored: ClassVar[tuple[str, ...]] = ()
    """Names of attributes that may lie on a GPU, see `put_on_device`: tensors that `assemble`
    gathers inputs from, or a split."""
    lengths: np.ndarray
    """(examples,) int64, positions of the longest tower of each example."""
    labels: np.ndarray
    """(examples,) class of each example, or (examples, outputs) its numbers; where positions have
    labels (targets,), the class of each target, in order."""
    text_bytes: int | None = None
    """Number of bytes of text that the targets encode; None if they are not text."""
    ideal_bits: np.ndarray | None = None
    """(examples, positions) bits that the best possible predictor needs for each target; None where
    the law of the data is not known."""
    distances: np.ndarray | None = None
    """(targets,) how many positions before each target stands what determines its label; None where
    labels are not scored by distance."""
    fields: Mapping[str, np.ndarray] = MappingProxyType({})
    """See `metadata`."""

    def __len__(self) -> int:
        return len(self.lengths)

    def metadata(self) -> dict[str, np.ndarray]:
        """Return fields by which the report breaks results down, each (examples,), by name."""
        return dict(self.fields)

    def batch(self, indices: Sequence[int] | np.ndarray) -> Batch:
        """Assemble the examples at indices, (batch,) whole numbers from 0 on, in that order.

        Raises: UserError for no or other indices.
        """
        chosen = check_indices(indices, len(self))
        if not len(chosen):
            raise UserError("indices: got none, expected at least one")
        return self.assemble(chosen)

    @abc.abstractmethod
    def assemble(self, indices: np.ndarray) -> Batch:
        """Assemble a batch of valid indices, (batch,) int64; see `batch`."""

    def check(self, info: TaskInfo) -> None:
        """Raise a ValueError unless the examples are as the task describes them."""
        lengths = self.lengths
        info.goal.check(self.labels, len(lengths))
        if lengths.min() < 1 or lengths.max() > info.max_length:
            raise ValueError(f"{lengths.min()} to {lengths.max()} positions, expected 1 to "
                             f"{info.max_length}")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A prepared task, opened."""

    splits: Mapping[str, Split]
    """The splits by their names: train, val and test."""
    source: str
    """Origin of the data: official; generated; own, for a user's own task or text; or unofficial,
    for files in the official format with other content."""
    fingerprint: str
    """Hash of the data and of how the protocol presents it."""
    baselines: Mapping[str, float]
    """Test accuracy in percent of trivial baselines, by name."""
    folder: Path
    baseline_bits: Mapping[str, float] = field(default_factory=dict)
    """Where positions are targets, bits that trivial baselines need on the test split, by name: a
    byte of text or, if the targets are not text, a target."""
    lowest_bits: Mapping[str, float] = field(default_factory=dict)
    """Lower bounds for every model, by name, in the same unit, where the law of the data is
    known."""
    unofficial_because: str = ""
    """How the data differs from the official release, if its source is unofficial."""
    notes: Mapping[str, int] = field(default_factory=dict)
    """Counts that a user should know, such as the number of texts that two splits share."""
    selected_on: Literal["val", "test"] = "val"
    """Split that the best model is selected on: test if val has the examples of the test split."""

    @classmethod
    def from_cache(
        cls, cache: Cache, splits: Mapping[str, Split], *view: object, **facts: Any
    ) -> Dataset:
        """Describe the splits of a cache.

        Args:
            view: whatever determines, beside the cache, what the splits hold.
            facts: other fields of the data set, or in place of the cache's.
        """
        fingerprint = cache.manifest.fingerprint
        known = cache.manifest.model_dump(
            include={"source", "unofficial_because", "baselines", "notes"}
        )
        known["fingerprint"] = canonical_hash([fingerprint, *view]) if view else fingerprint
        return cls(splits=splits, folder=cache.folder, **{**known, **facts})

    def describe(self) -> list[str]:
        """Write a line on each note, each trivial baseline and each bound."""
        unit = f"bits per {'token' if self.splits['test'].text_bytes is None else 'byte'}"
        lines: list[str] = []
        if self.selected_on == "test":
            lines.append("the best model is selected on the test set, which validates it")
        lines += [f"{note}: {count:,}" for note, count in self.notes.items() if count]
        for name, accuracy in self.baselines.items():
            lines.append(f"trivial baseline, {name}: {accuracy:.2f} % of the test set")
        for name, bits in self.baseline_bits.items():
            lines.append(f"trivial baseline, {name}: {bits:.3f} {unit}")
        lines += [
            f"lower bound, {name}: {bits:.3f} {unit}" for name, bits in self.lowest_bits.items()
        ]
        return lines

    @property
    def sizes(self) -> dict[str, int]:
        """Number of examples per split."""
        return {name: len(split) for name, split in self.splits.items()}


class Task(abc.ABC):
    """A classification task, whose data is prepared once and kept in a cache.

    A subclass sets `name`. Its options are typed keyword-only arguments of the constructor, whose
    names, types and defaults become the settings task.KEY.
    """

    name: ClassVar[str]
    """The name that `--task` takes."""
    draws_data: ClassVar[bool] = False
    """Whether the task can draw new examples, of other lengths or difficulty."""
    default_counts: ClassVar[Mapping[str, int]] = MappingProxyType({})
    """Number of examples of each split, by option, unless options say otherwise."""
    info: TaskInfo
    counts: Mapping[str, int | None] = MappingProxyType({})
    """Number of examples of each split, as the options say; None for all that there are."""

    @abc.abstractmethod
    def plan(self, data_dir: Path) -> Preparation:
        """Say where the data comes from, and how it is cached under data_dir.

        Raises: DataError if the data is missing and can neither be downloaded nor generated.
        """

    @abc.abstractmethod
    def open_dataset(self, cache: Cache) -> Dataset:
        """Open the splits of a cache, with what a user should know of them."""

    @abc.abstractmethod
    def check(self, cache: Cache, dataset: Dataset) -> list[str]:
        """Check all that a cache holds; return a sentence for each check that passed.

        Raises: DataError that says what is wrong.
        """

    def prepare(self, data_dir: Path) -> Dataset:
        """Open the task's cache under data_dir; build it first if there is none.

        Raises: DataError if the data is missing and cannot be generated, or is damaged.
        """
        return self.open_plan(self.plan(data_dir))

    def open_plan(self, plan: Preparation) -> Dataset:
        """Open a cache, built if there is none, and check that the examples are as described."""
        cache = plan.open_or_build()
        with cache.explain_errors():
            dataset = self.open_dataset(cache)
            for split in dataset.splits.values():
                split.check(self.info)
        return dataset

    def verify(self, dataset: Dataset) -> list[str]:
        """Check all of a prepared data set, its checksums first; see `check`."""
        cache = read_cache(dataset.folder)
        cache.check_files(checksums=True)
        checks = self.check(cache, dataset)
        return ["sizes and checksums of all files match the manifest", *checks]

    def export(self, dataset: Dataset, folder: Path) -> list[Path]:
        """Write the data set in the official file format; return the files.

        Raises: DataError for a task that does not generate data in such a format.
        """
        raise DataError(
            f"{self.info.name} data has no official file structure, or is read from it and never "
            f"made, so there is nothing to export; its arrays are in {dataset.folder}"
        )

    @classmethod
    def fresh(
        cls, options: Mapping[str, Any], *, length: int | None, examples: int
    ) -> dict[str, Any]:
        """Change options so that a trained model is evaluated out of distribution.

        Args:
            options: the task's options in training, by name.
            length: positions of the longest sequence; None to keep those of training.
            examples: number of test examples, where the task can draw new ones.
        Returns: the options that change.
        Raises: DataError if there is no data of this length.
        """
        if length is not None:
            raise DataError(f"{cls.name} has examples of one length only")
        return {}

    def training_examples(self) -> int | None:
        """Return the number of training examples of official data; None if it is not known yet."""
        return self.counts.get("train") or self.default_counts.get("train")


def accuracy_percent(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Share of predictions (n,) that equal labels (n,), in percent."""
    return 100.0 * int((predictions == labels).sum()) / len(labels)


def majority(train: np.ndarray, test: np.ndarray) -> float:
    """Score the commonest training class on labels (n,), in percent."""
    return accuracy_percent(np.full(len(test), np.bincount(train).argmax()), test)


def largest_class(labels: np.ndarray) -> float:
    """Percent of labels (n,) that are in the commonest class among them."""
    return 100.0 * int(np.unique(labels, return_counts=True)[1].max()) / len(labels)
