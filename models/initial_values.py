"""Distributions from which initial values of parameters are drawn, by name.

A distribution is written as its name and its numbers: "normal 0.02". Some depend on the number of
inputs and outputs of a linear map, its fan.
"""

from __future__ import annotations

import inspect
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


Distribution = Callable[..., Initialization]
"""Returns the initialization of a parameter from its fan and the numbers of the distribution.

It raises ValueError with what is expected for numbers that it does not take.
"""

TRUNCATED_DEVIATION = 0.87962566103423978
"""Standard deviation of a normal distribution of deviation 1 that is cut off at -2 and 2."""


def draw_truncated_normal(tensor: Tensor, deviation: float) -> Tensor:
    """Fill a tensor as flax does: normal numbers, those beyond two scales drawn again."""
    scale = deviation / TRUNCATED_DEVIATION
    return nn.init.trunc_normal_(tensor, std=scale, a=-2 * scale, b=2 * scale)


def _normal(deviation: float, draw: Callable[[Tensor, float], Tensor]) -> Initialization:
    if deviation <= 0:
        raise ValueError("a standard deviation above 0")
    return Initialization(0.0, deviation, lambda tensor: draw(tensor, deviation))


def _draw_normal(tensor: Tensor, deviation: float) -> Tensor:
    return nn.init.normal_(tensor, std=deviation)


def _uniform(low: float, high: float) -> Initialization:
    if low >= high:
        raise ValueError("a number and a larger one")
    deviation = (high - low) / math.sqrt(12)
    return Initialization(
        (low + high) / 2, deviation, lambda tensor: nn.init.uniform_(tensor, low, high)
    )


def _constant(value: float) -> Initialization:
    return Initialization(value, 0.0, lambda tensor: nn.init.constant_(tensor, value))


def _xavier_uniform(fan: Fan, maps: float) -> Initialization:
    if maps <= 0:
        raise ValueError("a number of maps above 0")
    bound = math.sqrt(6 / (fan.inputs + fan.outputs / maps))
    return _uniform(-bound, bound)


INITIAL_DISTRIBUTIONS: Mapping[str, Distribution] = {
    "zeros": lambda fan: _constant(0.0),
    "ones": lambda fan: _constant(1.0),
    "constant": lambda fan, value: _constant(value),
    "normal": lambda fan, deviation: _normal(deviation, _draw_normal),
    # Cut off at two of its own standard deviations; the given one is that of the result.
    "truncated_normal": lambda fan, deviation: _normal(deviation, draw_truncated_normal),
    "uniform": lambda fan, low, high: _uniform(low, high),
    # As torch initializes linear maps.
    "linear": lambda fan: _uniform(-(fan.inputs**-0.5), fan.inputs**-0.5),
    # As flax initializes weights.
    "lecun_normal": lambda fan: _normal(fan.inputs**-0.5, draw_truncated_normal),
    "fan_out_normal": lambda fan: _normal(fan.outputs**-0.5, _draw_normal),
    "xavier_uniform": lambda fan: _xavier_uniform(fan, 1),
    # Several maps of equal size in one tensor, each xavier_uniform.
    "xavier_uniform_of": _xavier_uniform,
}


def parse_initial_distribution(
    text: str, distributions: Mapping[str, Distribution] = INITIAL_DISTRIBUTIONS
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
    count = len(inspect.signature(distribution).parameters) - 1
    try:
        numbers = [float(number) for number in rest]
    except ValueError:
        numbers = [math.nan]
    if len(numbers) != count or not all(map(math.isfinite, numbers)):
        raise ValueError(f"distribution {name}: got {' '.join(rest)!r}, expected {count} numbers")
    try:
        distribution(Fan(1, 1), *numbers)
    except ValueError as error:
        raise ValueError(f"distribution {text!r}: expected {error}") from None
    return lambda fan: distribution(fan, *numbers)


def _checked(text: str) -> str:
    parse_initial_distribution(text)
    return text


InitialDistributionText = Annotated[str, AfterValidator(_checked)]
"""A distribution as text: "normal 0.02"."""
