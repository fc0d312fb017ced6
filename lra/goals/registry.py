"""The file of each goal."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

from pydantic import Field

from lra.goals.classes import ClassResult, ClassScorer
from lra.goals.labels import LabelScorer, LabelsResult
from lra.goals.next_token import NextTokenResult, TokenScorer
from lra.goals.scorer import Scorer
from lra.goals.values import ValueScorer
from tasks.base import TaskInfo
from tasks.goals import ExampleClass, Goal, InputValues, NextToken, PositionLabels

SCORERS: Mapping[type[Goal], type[Scorer]] = MappingProxyType(
    {
        ExampleClass: ClassScorer,
        PositionLabels: LabelScorer,
        NextToken: TokenScorer,
        InputValues: ValueScorer,
    }
)


AnyResult = Annotated[ClassResult | LabelsResult | NextTokenResult, Field(discriminator="goal")]


def scorer_of(info: TaskInfo) -> Scorer:
    """Return what a task's goal answers."""
    return SCORERS[type(info.goal)](info)
