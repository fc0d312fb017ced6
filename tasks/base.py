"""The interface of a task, and the batches, splits and data sets that it is made of."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from common.errors import DataError, UserError, describe, format_value
from common.tensors import send
from tasks.vocabulary import Numbers, Vocabulary

if TYPE_CHECKING:
    import torch
    from torch import Tensor

BENCHMARK = ("listops", "text", "retrieval", "image", "pathfinder", "pathx")
"""The tasks of the Long Range Arena, in the order of its tables."""

PROBES = ("recall", "languages", "groups")
"""Tasks that each ask for one ability. Their results are tabulated by themselves."""

MOST_CLASSES = 1000
"""Most classes of examples that a task may have: tables and predictions are made for no more."""
NOT_SCORED = -100
"""Label of a position that has no target."""
OUTCOMES = ("targets", "correct", "first_wrong")
"""Columns of predictions.csv where positions have labels: how many, those predicted right, and the
first position that was not, or -1."""
LONGEST_WORD = 100
"""Most letters of a metadata field's name, and of its words."""


def is_word(value: object) -> bool:
    """Whether a value can be a metadata field's name, or one of its words."""
    return isinstance(value, str) and value.isprintable() and len(value) <= LONGEST_WORD


@dataclass(frozen=True, kw_only=True)
class TaskInfo:
    """What a classifier must know about a task."""

    name: str
    num_classes: int
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
    targets: Literal["example", "position", "token"] = "example"
    """What has a label. example: each example. position: each position, whose label is the next
    token. token: some positions, whose labels are classes; the others are not scored."""


@dataclass(frozen=True)
class Batch:
    """Examples packed end to end, without padding."""

    inputs: Tensor
    """(positions,) int64 tokens or (positions, channels) float32, sequence after sequence."""
    lengths: Tensor
    """(batch, towers) int64, positions of each sequence; always on the CPU."""
    labels: Tensor
    """(batch,) int64, one for each example; or (positions,), with NOT_SCORED where a position has
    no label; or (targets,), of the positions in `scored`."""
    scored: Tensor | None = None
    """(targets,) int64 indices of the positions that have a label, in order; None: see `labels`."""
    counts: Tensor | None = None
    """(batch,) int64, how many positions of each example `scored` has; always on the CPU."""

    def to(self, device: torch.device) -> Batch:
        """Copy inputs and labels to a device; copies to a GPU are asynchronous."""
        scored = None if self.scored is None else send(self.scored, device)
        inputs, labels = send(self.inputs, device), send(self.labels, device)
        return Batch(inputs, self.lengths, labels, scored, self.counts)

    @property
    def model_inputs(self) -> tuple[Tensor, ...]:
        """What a model takes: inputs, lengths and, if there are any, the scored positions."""
        found = self.inputs, self.lengths
        return found if self.scored is None else (*found, self.scored)

    @property
    def label_counts(self) -> Tensor:
        """(batch,) int64, how many of `labels` each example has; on the CPU."""
        if self.counts is not None:
            return self.counts
        # Where there are as many labels as positions and examples, each example has one of both.
        is_position = len(self.labels) == len(self.inputs)
        return self.lengths.sum(dim=1) if is_position else self.lengths.new_ones(len(self.lengths))

    def padded(self) -> tuple[Tensor, Tensor]:
        """Pad the sequences with zeros to the longest one of the batch.

        `inputs[mask]` is the packed form again, and `logits[mask]` that of the logits of positions;
        with `scored`, `logits[mask][scored]` are those of the labels.

        Returns: inputs, (batch, length) int64 tokens or (batch, length, channels) float32, and a
            mask, (batch, length) bool, True where a position is real; (batch, 2, length) for pairs.
        """
        import torch

        lengths = self.lengths.squeeze(1) if self.lengths.shape[1] == 1 else self.lengths
        longest = int(lengths.max()) if len(lengths) else 0
        mask = (torch.arange(longest) < lengths[..., None]).to(self.inputs.device)
        inputs = self.inputs.new_zeros(*mask.shape, *self.inputs.shape[1:])
        inputs[mask] = self.inputs
        return inputs, mask

    def rows(self, start: int, stop: int) -> Batch:
        """Take a range of examples."""
        first = int(self.lengths[:start].sum())
        count = int(self.lengths[start:stop].sum())
        first_label = int(self.label_counts[:start].sum())
        counts = self.label_counts[start:stop]
        labels = slice(first_label, first_label + int(counts.sum()))
        return Batch(
            self.inputs[first : first + count],
            self.lengths[start:stop],
            self.labels[labels],
            None if self.scored is None else self.scored[labels] - first,
            None if self.counts is None else counts,
        )


def check_indices(given: Sequence[int] | np.ndarray, count: int) -> np.ndarray:
    """Check indices of examples, (examples,) in any form that NumPy reads: (examples,) int64.

    Raises: UserError for anything but whole numbers from 0 to count - 1.
    """
    expected = f"expected whole numbers from 0 to {count - 1}, in a list, range or array"
    try:
        indices = np.asarray(given)
    except Exception as error:
        raise UserError(
            f"indices: got {format_value(given)}, {expected} ({describe(error)})"
        ) from None
    if indices.shape == (0,):
        return np.empty(0, dtype=np.int64)
    if indices.ndim != 1 or indices.dtype.kind not in "iu":
        is_array = hasattr(given, "dtype")
        shown = f"{indices.dtype} {indices.shape}" if is_array else format_value(given)
        raise UserError(f"indices: got {shown}, {expected}")
    if (outside := indices[(indices < 0) | (indices >= count)]).size:
        raise UserError(f"indices: got {outside[0]}, {expected}")
    return indices.astype(np.int64, copy=False)


class Split(abc.ABC):
    """The examples of one split, which are assembled into batches without a loop over them."""

    stored: ClassVar[tuple[str, ...]] = ()
    """Names of attributes that may lie on a GPU, see `tasks.resident`: tensors that `assemble`
    gathers inputs from, or a split."""
    lengths: np.ndarray
    """(examples,) int64, positions of the longest tower of each example."""
    labels: np.ndarray
    """(examples,) class of each example; where positions have labels (targets,), the class of each
    target, in order."""
    text_bytes: int | None = None
    """Number of bytes of text that the targets encode; None if they are not text."""
    ideal_bits: np.ndarray | None = None
    """(examples, positions) bits that the best possible predictor needs for each target; None where
    the law of the data is not known."""

    def __len__(self) -> int:
        return len(self.lengths)

    def metadata(self) -> dict[str, np.ndarray]:
        """Return fields by which the report breaks results down, each (examples,), by name."""
        return {}

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

    def count_targets(self, indices: np.ndarray) -> int | None:
        """Count the targets of the examples at indices, (batch,); None if only a batch tells."""
        return None

    def check(self, info: TaskInfo) -> None:
        """Raise a ValueError unless the examples are as the task describes them."""
        labels, lengths = self.labels, self.lengths
        fits = info.targets != "example" or len(labels) == len(lengths)
        if not (labels.ndim == 1 and labels.dtype.kind in "iu" and fits):
            raise ValueError(f"labels are {labels.dtype} {labels.shape}")
        if not len(labels) or labels.min() < 0 or labels.max() >= info.num_classes:
            raise ValueError(f"labels are none, or outside 0 to {info.num_classes - 1}")
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

    @property
    def sizes(self) -> dict[str, int]:
        """Number of examples per split."""
        return {name: len(split) for name, split in self.splits.items()}


def check_dataset(dataset: Dataset, info: TaskInfo) -> Dataset:
    """Return a data set whose examples are as the task describes them; else raise a ValueError."""
    for split in dataset.splits.values():
        split.check(info)
    return dataset


class Task(abc.ABC):
    """A classification task.

    A subclass sets `name`. Its options are typed keyword-only arguments of the constructor, whose
    names, types and defaults become the settings task.KEY.
    """

    name: ClassVar[str]
    """The name that `--task` takes."""
    draws_data: ClassVar[bool] = False
    """Whether the task can draw new examples, of other lengths or difficulty."""
    info: TaskInfo

    @abc.abstractmethod
    def prepare(self, data_dir: Path) -> Dataset:
        """Open the task's cache under data_dir; build it first if there is none.

        Raises: DataError if the data is missing and cannot be generated, or is damaged.
        """

    def describe_preparation(self, data_dir: Path) -> str:
        """Say what `prepare` still has to do: "download ... (80.2 MiB)", or nothing.

        Raises: DataError if files are missing that the task can neither download nor generate.
        """
        return ""

    @abc.abstractmethod
    def verify(self, dataset: Dataset) -> list[str]:
        """Check all of a prepared data set; return a sentence for each check that passed.

        Raises: DataError that says what is wrong.
        """

    def export(self, dataset: Dataset, folder: Path) -> list[Path]:
        """Write the data set in the official file format; return the files.

        Raises: DataError for a task whose data is only read and never generated.
        """
        raise DataError(
            f"{dataset.folder}, for {folder}: {self.name} data is read from official files and "
            f"never made, so there is nothing to export; copy those files"
        )

    def vocabulary(self, prepared: Callable[[], Dataset]) -> Vocabulary:
        """Return the vocabulary, which writes tokens as text, or as numbers if they are not text.

        Args:
            prepared: prepares the task's data, for a vocabulary that is stored with it.
        """
        return Numbers(self.info.num_classes)

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
        return None

    @abc.abstractmethod
    def split_sizes(self, examples: int) -> dict[str, int]:
        """Divide a number of examples between the splits, by the options that hold their sizes.

        Raises: DataError if the examples are too few.
        """


def accuracy_percent(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Share of predictions (n,) that equal labels (n,), in percent."""
    return 100.0 * int((predictions == labels).sum()) / len(labels)


def largest_class(labels: np.ndarray) -> float:
    """Percent of labels (n,) that are in the commonest class among them."""
    return 100.0 * int(np.unique(labels, return_counts=True)[1].max()) / len(labels)


def split_proportionally(examples: int, sizes: Mapping[str, int]) -> dict[str, int]:
    """Divide a number of examples in the proportions of the official sizes, at least 1 each.

    Raises: DataError if the examples are fewer than the splits or more than there are.
    """
    total = sum(sizes.values())
    if not len(sizes) <= examples <= total:
        raise DataError(f"got {examples} examples, expected {len(sizes)} to {total}")
    counts = {name: max(1, examples * size // total) for name, size in sizes.items()}
    largest = max(sizes, key=lambda name: sizes[name])
    counts[largest] += examples - sum(counts.values())
    return counts
