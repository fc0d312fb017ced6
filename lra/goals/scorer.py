"""What every goal answers in training and in tests; a file beside this one has each goal's."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from lra.goals.result import Result
from lra.tasks.base import largest_class
from lra.tasks.goals import NOT_SCORED, Goal

if TYPE_CHECKING:
    from torch import Tensor

    from lra.config.schema import RunConfig
    from lra.tasks.base import Batch, Dataset, Split, TaskInfo

OF_HEADS = {
    "model.pooling", "model.head", "model.head_expand", "model.head_activation", "model.head_bias",
}  # fmt: skip
"""Settings of what reads an example as a whole."""
Add = Callable[[np.ndarray], np.ndarray]
"""Adds the numbers of all processes, of any shape."""


@dataclass(frozen=True)
class Score:
    """What a model scores on a split, the same in every process."""

    total: int
    """Targets: examples, or positions."""
    loss: float
    """Mean over targets; not finite where logits are not."""
    non_finite: int
    """Targets whose logits are not finite, which count as wrong."""
    merit: float
    """What the best model has most of, in percent."""
    numbers: Mapping[str, float]
    """What a validation logs, by name. A result has those of the best one that it has fields of."""
    text: str
    """What it scores, as the log says it."""
    result: Mapping[str, Any] = field(compare=False)
    """Fields of the result of a test, but for those that every score has."""
    predictions: Mapping[str, np.ndarray] = field(default_factory=dict, compare=False)
    """Columns of predictions.csv, (examples,) each, in the order of the split; none if nothing is
    kept of each example."""


class Output(NamedTuple):
    """What is kept of a model's logits for a batch; tensors stay on the device that computes."""

    indices: np.ndarray
    """(examples,) in the split."""
    lengths: np.ndarray
    """(examples,) positions of each."""
    counts: np.ndarray
    """(examples,) labels of each."""
    kept: tuple[Tensor, ...]
    """(labels, ...) each; see `Scorer.keep`."""


class Scorer(abc.ABC):
    """How one goal is trained for, validated and tested.

    Args:
        info: the task.
    """

    result: ClassVar[type[Result]]
    """What a record holds of this goal."""
    has_accuracy: ClassVar[bool] = True
    """Whether predictions can be right."""
    needs_finite_loss: ClassVar[bool] = False
    """Whether a validation whose loss is not finite ends the run, as it can rank no model."""

    def __init__(self, info: TaskInfo) -> None:
        self.info = info
        self.goal: Goal = info.goal

    def losses(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the loss of each label: of classes the cross-entropy in nats.

        Args:
            logits: (labels, outputs).
            labels: as in a batch.
        Returns: losses (labels,) float32, 0 where there is no target; and whether the prediction
            is right, (labels,) bool.
        """
        from torch.nn import functional

        logits = logits.float()
        losses = functional.cross_entropy(logits, labels, reduction="none", ignore_index=NOT_SCORED)
        return losses, logits.argmax(dim=-1) == labels

    @abc.abstractmethod
    def keep(self, logits: Tensor, batch: Batch) -> tuple[Tensor, ...]:
        """Choose what the score needs of a batch: (labels, ...) each."""

    @abc.abstractmethod
    def score(self, outputs: Sequence[Output], split: Split, add: Add) -> Score:
        """Score the examples of a split, of which each process has some.

        Args:
            outputs: of this process, on the CPU.
        """

    def predict(self, logits: np.ndarray) -> np.ndarray:
        """Predict what logits (labels, outputs) stand for: classes (labels,)."""
        return logits.argmax(axis=1)

    def describe(self, score: Score | None, dataset: Dataset, best: Mapping[str, float]) -> Any:
        """Make the result of a record, of the class `result`.

        Args:
            score: of the test split; None as long as it is not known.
            best: numbers of the best validation, by name; none before the first one.
        """
        known = {name: best[name] for name in best if name in self.result.model_fields}
        return self.result.model_validate({**self._list_facts(score, dataset), **known})

    def _list_facts(self, score: Score | None, dataset: Dataset) -> dict[str, Any]:
        """List the fields of a result but for those of a validation."""
        facts: dict[str, Any] = {
            "test_total": score and score.total,
            "test_non_finite": score and score.non_finite,
        }
        if self.has_accuracy:
            facts["baselines"] = dict(dataset.baselines)
            facts["largest_class"] = largest_class(dataset.splits["test"].labels)
        return {**facts, **(score.result if score else {})}

    def contradictions(self, config: RunConfig, given: Set[str]) -> Iterator[str]:
        """List the contradictions between settings and the goal.

        Args:
            given: settings that flags gave a value.
        """
        info, goal = self.info, self.goal
        if goal.of_positions:
            for name in sorted(OF_HEADS & given):
                yield f"{name} has no effect: task {config.task_name} predicts {goal.what}"
            if info.towers > 1:
                yield (
                    f"task {config.task_name} predicts {goal.what}, and has {info.towers} "
                    f"sequences per example, expected 1"
                )
            if config.is_pretrained:
                yield (
                    f"task {config.task_name} predicts {goal.what} already, and "
                    f"pretrain.objective is {config.pretrain.objective}; use --set "
                    f"pretrain.objective=none"
                )
        is_tied = goal.of_positions and info.vocab_size == goal.outputs
        if config.model.tied_embeddings and not is_tied:
            yield (
                f"task {config.task_name} predicts {goal.what}, and model.tied_embeddings needs as "
                f"many classes of positions as tokens; use --set model.tied_embeddings=false"
            )


def gather(outputs: Sequence[Output], number: int, zeros: np.ndarray, add: Add) -> np.ndarray:
    """Gather one of the tensors that are kept of each example, in their order.

    Args:
        zeros: (examples, ...), which are written to. A process may have no outputs.
    """
    for output in outputs:
        zeros[output.indices] = output.kept[number].numpy()
    return add(zeros)


def starts_of(lengths: np.ndarray) -> np.ndarray:
    """Return where packed sequences of these lengths start."""
    return np.cumsum(lengths) - lengths
