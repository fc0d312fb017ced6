"""Every goal has its file, and says the same of its labels as its losses."""

import math

import numpy as np
import pytest
import torch

from lra.goals.registry import SCORERS, scorer_of
from lra.goals.scorer import Output
from lra.tasks.base import TaskInfo
from lra.tasks.goals import ExampleClass, ExampleLabels, ExampleValues, Goal
from lra.tasks.returned import build_split


def all_goals(base: type[Goal] = Goal) -> list[type[Goal]]:
    """List the goals that say what is predicted."""
    made = [goal for one in base.__subclasses__() for goal in all_goals(one)]
    return [base, *made] if hasattr(base, "what") else made


def test_every_goal_has_a_scorer() -> None:
    assert {*SCORERS} == {*all_goals()}


@pytest.mark.parametrize("kind", [one for one in all_goals() if one.least_outputs != 1])
def test_what_is_not_scored_has_no_loss(kind: type[Goal]) -> None:
    """And no gradient; a target has both."""
    goal = kind(3)
    scorer = scorer_of(TaskInfo(name="made", goal=goal, max_length=4, channels=3))
    logits = torch.randn(4, 3, requires_grad=True)
    labels = torch.rand(4, 3) if goal.unscored != goal.unscored else torch.tensor([0, 2, 1, 0])
    labels[1:3] = goal.unscored
    assert goal.is_target(labels).tolist() == [True, False, False, True]
    losses, is_right = scorer.losses(logits, labels)
    losses.sum().backward()
    assert logits.grad is not None
    assert (losses > 0).tolist() == logits.grad.any(dim=1).tolist() == [True, False, False, True]
    assert not is_right[1:3].any()


class Unread:
    """A training split whose labels are many."""

    @property
    def labels(self) -> np.ndarray:
        raise AssertionError


@pytest.mark.parametrize("kind", [one for one in all_goals() if one is not ExampleValues])
def test_labels_that_a_goal_takes_nothing_from_are_not_made(kind: type[Goal]) -> None:
    goal, train = kind(3), Unread()
    assert goal.fitted(train) is goal  # pyright: ignore[reportArgumentType]


GOALS = [ExampleClass(3), ExampleValues(2, (0.0, 1.0), (1.0, 2.0)), ExampleLabels(2)]


@pytest.mark.parametrize("goal", GOALS)
def test_a_process_without_examples_has_the_whole_score(goal: Goal) -> None:
    """As where there are fewer batches than processes."""
    rng, count = np.random.default_rng(0), 12
    labels = rng.integers(0, 2, (count, 2)).astype(float)
    labels = labels if goal.least_outputs == 1 else rng.integers(0, 3, count)
    lengths = np.ones(count, dtype=np.int64)
    split = build_split(np.zeros(count, np.int32), lengths, labels, {}, towers=1, goal=type(goal))
    scorer = scorer_of(TaskInfo(name="made", goal=goal, max_length=1, vocab_size=2))
    batch = split.batch(np.arange(count))
    kept = scorer.keep(torch.randn(count, goal.outputs), batch)
    added: list[np.ndarray] = []

    def add(numbers: np.ndarray) -> np.ndarray:
        added.append(numbers.copy())
        return numbers

    whole = scorer.score([Output(np.arange(count), lengths, lengths, kept)], split, add)
    without = scorer.score([], split, lambda numbers: numbers + added.pop(0))
    assert without == whole and math.isfinite(whole.loss)
    for name, column in whole.predictions.items():
        assert np.array_equal(without.predictions[name], column)
