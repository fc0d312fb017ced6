"""What a task asks a model to predict. `lra.goals` has for each goal what follows from it."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

NOT_SCORED = -100
"""Label of a position that has no target."""


@dataclass(frozen=True)
class Goal(abc.ABC):
    """What is predicted, and the form of its labels."""

    outputs: int
    """Numbers that a model computes for each target, such as a logit for each class."""

    what: ClassVar[str]
    """What is predicted, as messages call it."""
    of_positions: ClassVar[bool] = False
    """Whether positions have targets, which a batch may lack, rather than examples."""
    columns: ClassVar[tuple[str, ...]] = ()
    """Columns of predictions.csv; none if nothing is kept of each example."""
    unscored: ClassVar[float] = NOT_SCORED
    """Label where there is no target."""

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
    columns = ("label", "prediction")


class PositionLabels(Goal):
    """A class for some positions; the others are not scored. Labels are (targets,) classes."""

    what = "labels of positions"
    of_positions = True
    columns = ("targets", "correct", "first_wrong")
    """How many labels, those predicted right, and the first position that was not, or -1."""


class NextToken(Goal):
    """The next token at each position, or a hidden one. Labels are (targets,) tokens."""

    what = "the next token at each position"
    of_positions = True


class InputValues(Goal):
    """The real numbers of hidden or of next positions. Labels are (positions, channels)."""

    what = "the real numbers of its inputs"
    of_positions = True
    unscored = float("nan")

    def is_target(self, labels: Tensor) -> Tensor:
        """See `Goal.is_target`."""
        return ~labels[:, 0].isnan()
