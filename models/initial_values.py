"""Distributions from which initial values of parameters are drawn, by name.

A distribution is written as its name and its numbers: "normal 0.02". Some depend on the number of
inputs and outputs of a linear map, its fan.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from pydantic import AfterValidator
from torch import Tensor, nn


class Fan(NamedTuple):
    """Number of inputs and outputs of a linear map. An embedding table has tokens as inputs."""

    inputs: int
    outputs: int


@dataclass(frozen=True)
class Initialization:
    """How a parameter is initialized: mean, standard deviation, and a function that draws it."""

    mean: float
    deviation: float
    draw: Callable[[Tensor], Tensor]


TRUNCATED_DEVIATION = 0.87962566103423978
"""Standard deviation of a normal distribution of deviation 1 that is cut off at -2 and 2."""


def draw_truncated_normal(tensor: Tensor, deviation: float) -> Tensor:
    """Fill a tensor as flax does: normal numbers, those beyond two scales drawn again."""
    scale = deviation / TRUNCATED_DEVIATION
    return nn.init.trunc_normal_(tensor, std=scale, a=-2 * scale, b=2 * scale)


def _normal(deviation: float) -> Initialization:
    return Initialization(0.0, deviation, lambda tensor: nn.init.normal_(tensor, std=deviation))


def _truncated_normal(deviation: float) -> Initialization:
    return Initialization(0.0, deviation, lambda tensor: draw_truncated_normal(tensor, deviation))


def _uniform(low: float, high: float) -> Initialization:
    deviation = (high - low) / math.sqrt(12)
    return Initialization(
        (low + high) / 2, deviation, lambda tensor: nn.init.uniform_(tensor, low, high)
    )


def _constant(value: float) -> Initialization:
    return Initialization(value, 0.0, lambda tensor: nn.init.constant_(tensor, value))


def _xavier_uniform(fan: Fan, maps: float = 1) -> Initialization:
    bound = math.sqrt(6 / (fan.inputs + fan.outputs / maps))
    return _uniform(-bound, bound)


@dataclass(frozen=True)
class InitialDistribution:
    """A named distribution.

    Args:
        start: returns the initialization of a parameter for its fan and the numbers.
        meaning: description of the distribution or of its numbers, for error messages.
        numbers: how many numbers follow the name.
        above: exclusive lower limit of the last number.
        is_range: whether the first number has to be below the last.
    """

    start: Callable[..., Initialization]
    meaning: str
    numbers: int = 0
    above: float = -math.inf
    is_range: bool = False


INITIAL_DISTRIBUTIONS: Mapping[str, InitialDistribution] = {
    "zeros": InitialDistribution(lambda fan: _constant(0.0), "0"),
    "ones": InitialDistribution(lambda fan: _constant(1.0), "1"),
    "constant": InitialDistribution(lambda fan, value: _constant(value), "a number", numbers=1),
    "normal": InitialDistribution(
        lambda fan, deviation: _normal(deviation), "a standard deviation above 0", numbers=1,
        above=0,
    ),
    "truncated_normal": InitialDistribution(
        lambda fan, deviation: _truncated_normal(deviation), "a standard deviation above 0, after "
        "cutting a normal distribution off at two of its own", numbers=1, above=0,
    ),
    "uniform": InitialDistribution(
        lambda fan, low, high: _uniform(low, high), "a number and a larger one", numbers=2,
        is_range=True,
    ),
    "linear": InitialDistribution(
        lambda fan: _uniform(-(fan.inputs**-0.5), fan.inputs**-0.5),
        "uniform in +- inputs ** -0.5, as torch initializes linear maps"
    ),
    "lecun_normal": InitialDistribution(
        lambda fan: _truncated_normal(fan.inputs**-0.5),
        "truncated_normal of deviation inputs ** -0.5, as flax initializes weights",
    ),
    "fan_out_normal": InitialDistribution(
        lambda fan: _normal(fan.outputs**-0.5), "normal of deviation outputs ** -0.5"
    ),
    "xavier_uniform": InitialDistribution(
        _xavier_uniform,
        "uniform of deviation (2 / (inputs + outputs)) ** 0.5",
    ),
    "xavier_uniform_of": InitialDistribution(
        _xavier_uniform, "the number of maps of equal size in one tensor, each xavier_uniform",
        numbers=1, above=0,
    ),
}  # fmt: skip


def parse_initial_distribution(
    text: str, distributions: Mapping[str, InitialDistribution] = INITIAL_DISTRIBUTIONS
) -> Callable[[Fan], Initialization]:
    """Parse a distribution.

    Returns: a function from the fan of a parameter to its initialization.
    Raises: ValueError for an unknown name, or for numbers that the distribution does not take.
    """
    name, *rest = text.split() or [""]
    if name not in distributions:
        raise ValueError(
            f"unknown distribution {name!r}; expected one of {', '.join(distributions)}"
        )
    distribution = distributions[name]
    try:
        numbers = [float(number) for number in rest]
    except ValueError:
        numbers = [math.nan]
    if len(numbers) != distribution.numbers or not all(map(math.isfinite, numbers)):
        raise ValueError(
            f"distribution {name}: got {' '.join(rest)!r}, expected {distribution.numbers} numbers"
        )
    is_falling = distribution.is_range and numbers[0] >= numbers[-1]
    if numbers and (numbers[-1] <= distribution.above or is_falling):
        raise ValueError(f"distribution {text!r}: expected {distribution.meaning}")
    return lambda fan: distribution.start(fan, *numbers)


def _checked(text: str) -> str:
    parse_initial_distribution(text)
    return text


InitialDistributionText = Annotated[str, AfterValidator(_checked)]
"""A distribution as text: "normal 0.02"."""
