"""What a trainer must know to go on: the content of a checkpoint that is about the model."""

from typing import Annotated

from pydantic import Field
from torch import nn
from typing_extensions import TypedDict

from lra.runtime.environment import RandomState, SavedTensor
from lra.schema import Amount, Count, Percent, ShortText
from lra.train.metrics import Loss, MetricsState
from lra.train.optimizer import Moments, Plateau


class Best(TypedDict):
    """The best model so far on the validation split."""

    merit: Percent
    numbers: dict[ShortText, Loss]
    """See `Score`; those that are finite."""
    step: Count
    model: dict[str, SavedTensor]


class TrainerState(TypedDict):
    """Everything that later steps depend on."""

    step: Count
    validated_step: Count
    validated_seconds: Amount
    best: Best | None
    model: dict[str, SavedTensor]
    moments: Moments
    metrics: MetricsState
    plateau: Plateau
    random: Annotated[list[RandomState], Field(min_length=1)]
    """Of each process."""


def load_weights(model: nn.Module, state: TrainerState) -> None:
    """Load the weights of a state; those of its best model are only tried.

    Raises: RuntimeError or ValueError for what does not fit, after which the model is of no use.
    """
    best = state["best"]
    steps = best["step"] if best else 0, state["validated_step"], state["step"]
    if [*steps] != sorted(steps) or (best is None and steps[1]):
        raise ValueError(f"the best, the validated and the last step are {steps}")
    for weights in [state["model"]] if best is None else [best["model"], state["model"]]:
        model.load_state_dict(weights)
        for name, parameter in model.named_parameters():
            if weights[name].dtype != parameter.dtype:  # torch converts them
                raise ValueError(f"weights of another type in {name}")
