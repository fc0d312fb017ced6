"""The file of each goal."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Annotated

from pydantic import Field

from lra.goals.classes import ClassResult, ClassScorer
from lra.goals.distances import DistanceResult, DistanceScorer
from lra.goals.inputs import InputScorer
from lra.goals.labels import LabelScorer, LabelsResult
from lra.goals.multilabel import MultilabelResult, MultilabelScorer
from lra.goals.next_token import NextTokenResult, TokenScorer
from lra.goals.regression import RegressionResult, RegressionScorer
from lra.goals.scorer import Scorer
from lra.tasks.base import Dataset, TaskInfo
from lra.tasks.goals import (
    DistantLabels,
    ExampleClass,
    ExampleLabels,
    ExampleValues,
    Goal,
    InputValues,
    NextToken,
    PositionLabels,
)

SCORERS: Mapping[type[Goal], type[Scorer]] = MappingProxyType(
    {
        ExampleClass: ClassScorer,
        PositionLabels: LabelScorer,
        DistantLabels: DistanceScorer,
        NextToken: TokenScorer,
        InputValues: InputScorer,
        ExampleValues: RegressionScorer,
        ExampleLabels: MultilabelScorer,
    }
)


AnyResult = Annotated[
    ClassResult
    | LabelsResult
    | DistanceResult
    | NextTokenResult
    | RegressionResult
    | MultilabelResult,
    Field(discriminator="goal"),
]


def scorer_of(info: TaskInfo, dataset: Dataset | None = None) -> Scorer:
    """Return what a task's goal answers.

    Args:
        dataset: the one of the training, from whose labels the goal may take something; None: the
            goal has it, or it is not needed.
    """
    if dataset is not None:
        info = replace(info, goal=info.goal.fitted(dataset.splits["train"]))
    return SCORERS[type(info.goal)](info)
