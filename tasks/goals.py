"""What a task asks a model to predict. `lra.goals` has for each goal what follows from it."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Protocol, Self

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

NOT_SCORED = -100
"""Label of a position that has no target."""


class Labelled(Protocol):
    """A split, as far as a goal asks it."""

    labels: np.ndarray


@dataclass(frozen=True)
class Goal(abc.ABC):
    """What is predicted, and the form of its labels."""

    outputs: int
    """Numbers that a model computes for each target, such as a logit for each class."""

    what: ClassVar[str]
    """What is predicted, as messages call it."""
    of_positions: ClassVar[bool] = False
    """Whether positions have targets, which a batch may lack, rather than examples."""
    noun: ClassVar[str] = "classes"
    """What the outputs are."""
    least_outputs: ClassVar[int] = 2
    unscored: ClassVar[float] = NOT_SCORED
    """Label where there is no target."""

    @property
    def described(self) -> str:
        """How many of what a model predicts."""
        return f"{self.outputs} {self.noun.removesuffix('s') if self.outputs == 1 else self.noun}"

    @classmethod
    def infer(cls, labels: Sequence[np.ndarray]) -> Self:
        """Make the goal with as many outputs as the labels of all splits show."""
        return cls(1 + max(int(array.max()) for array in labels))

    @classmethod
    def columns(cls, outputs: int) -> list[str]:
        """Name the columns of predictions.csv; none if nothing is kept of each example."""
        return []

    def fitted(self, train: Labelled) -> Goal:
        """Return the goal with what it takes from the labels of the training split.

        Raises: ValueError for labels that nothing can be learned from.
        """
        return self

    def list_unseen(self, labels: np.ndarray) -> list[int]:
        """List the outputs that no label of the training split stands for."""
        return sorted({*range(self.outputs)} - {*np.unique(labels).tolist()})

    def is_target(self, labels: Tensor) -> Tensor:
        """Return which rows of a batch's labels are targets: (rows,) bool."""
        return labels != self.unscored

    def check(self, labels: np.ndarray, examples: int) -> None:
        """Raise a ValueError unless labels of a split are those of as many examples."""
        fits = self.of_positions or len(labels) == examples
        if not (labels.ndim == 1 and labels.dtype.kind in "iu" and fits):
            raise ValueError(f"labels are {labels.dtype} {labels.shape}")
        if not len(labels) or labels.min() < 0 or labels.max() >= self.outputs:
            raise ValueError(f"labels are none, or outside 0 to {self.outputs - 1}")


class ExampleClass(Goal):
    """A class for each example: labels are (examples,) whole numbers."""

    what = "classes of examples"

    @classmethod
    def columns(cls, outputs: int) -> list[str]:
        """See `Goal.columns`."""
        return ["label", "prediction"]


class PositionLabels(Goal):
    """A class for some positions; the others are not scored. Labels are (targets,) classes."""

    what = "labels of positions"
    of_positions = True

    @classmethod
    def columns(cls, outputs: int) -> list[str]:
        """Name the numbers of labels and of right ones, and the first wrong position, or -1."""
        return ["targets", "correct", "first_wrong"]


@dataclass(frozen=True)
class DistantLabels(PositionLabels):
    """A class for some positions, which a token at one of some distances before them determines."""

    distances: tuple[int, ...] = ()

    @property
    def columns_by_distance(self) -> list[str]:
        """Name the numbers of labels at each distance, and then of right ones."""
        return [f"{kind}_{number}" for kind in ("asked", "right") for number in self.distances]


class NextToken(Goal):
    """The next token at each position, or a hidden one. Labels are (targets,) tokens."""

    what = "the next token at each position"
    of_positions = True


@dataclass(frozen=True)
class ExampleNumbers(Goal):
    """Numbers for each example: labels are (examples, outputs) float64."""

    least_outputs = 1

    @classmethod
    def infer(cls, labels: Sequence[np.ndarray]) -> Self:
        """See `Goal.infer`."""
        return cls(labels[0].shape[1])

    @classmethod
    def columns(cls, outputs: int) -> list[str]:
        """Name the labels of an example, and then its predictions."""
        ends = [""] if outputs == 1 else [f"_{number}" for number in range(outputs)]
        return [kind + end for kind in ("label", "prediction") for end in ends]

    def is_target(self, labels: Tensor) -> Tensor:
        """See `Goal.is_target`."""
        return labels[:, 0].isfinite()

    def check(self, labels: np.ndarray, examples: int) -> None:
        """See `Goal.check`."""
        if labels.dtype != np.float64 or labels.shape != (examples, self.outputs):
            expected = (examples, self.outputs)
            raise ValueError(f"labels are {labels.dtype} {labels.shape}, expected {expected}")
        if not np.isfinite(labels).all():
            raise ValueError("labels are not all finite")


@dataclass(frozen=True)
class ExampleValues(ExampleNumbers):
    """Real numbers for each example, in any unit: regression."""

    means: tuple[float, ...] = ()
    """Mean of each label over the training split; empty until it is known, as the next."""
    deviations: tuple[float, ...] = ()
    """Standard deviation of each label over the training split."""

    what = "real numbers"
    noun = "real numbers"

    def fitted(self, train: Labelled) -> ExampleValues:
        """See `Goal.fitted`: takes means and deviations."""
        labels = train.labels
        means, deviations = labels.mean(axis=0), labels.std(axis=0)
        constant = np.flatnonzero(labels.max(axis=0) == labels.min(axis=0))
        if len(constant):
            name = self.columns(self.outputs)[constant[0]]
            raise ValueError(f"{name} is {labels[0, constant[0]]:g} in all training examples")
        return replace(self, means=tuple(means.tolist()), deviations=tuple(deviations.tolist()))

    def list_unseen(self, labels: np.ndarray) -> list[int]:
        """See `Goal.list_unseen`."""
        return []


class ExampleLabels(ExampleNumbers):
    """Several labels for each example, each 0 or 1."""

    what = "several labels of examples"
    noun = "labels"

    def list_unseen(self, labels: np.ndarray) -> list[int]:
        """See `Goal.list_unseen`."""
        return np.flatnonzero(~labels.any(axis=0)).tolist()

    def check(self, labels: np.ndarray, examples: int) -> None:
        """See `Goal.check`."""
        super().check(labels, examples)
        if not np.isin(labels, (0, 1)).all():
            raise ValueError("labels are not all 0 or 1")


class InputValues(Goal):
    """The real numbers of hidden or of next positions. Labels are (positions, channels)."""

    what = "the real numbers of its inputs"
    of_positions = True
    unscored = float("nan")

    def is_target(self, labels: Tensor) -> Tensor:
        """See `Goal.is_target`."""
        return ~labels[:, 0].isnan()
