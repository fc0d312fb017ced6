"""Every goal has its file, and says the same of its labels as its losses."""

from __future__ import annotations

import pytest
import torch

from lra.goals.registry import SCORERS, scorer_of
from tasks.base import TaskInfo
from tasks.goals import Goal


def all_goals(base: type[Goal] = Goal) -> list[type[Goal]]:
    """List the goals that no other one is made of."""
    made = base.__subclasses__()
    return [goal for one in made for goal in all_goals(one)] if made else [base]


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
