"""Distributions from which initial values of parameters are drawn, by name.

A distribution is written as its name and its numbers: "normal 0.02". Some depend on the number of
inputs and outputs of a linear map, its fan.
"""

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Annotated, NamedTuple

from pydantic import AfterValidator
from torch import Tensor, nn


class Fan(NamedTuple):
    """Number of inputs and outputs of a linear map. An embedding table has tokens as inputs."""

    inputs: int
    outputs: int


Distribution = Callable[..., Tensor]
"""Fills a tensor: it gets the tensor, the fan of the parameter and the distribution's numbers."""

TRUNCATED_DEVIATION = 0.87962566103423978
"""Standard deviation of a normal distribution of deviation 1 that is cut off at -2 and 2."""


def draw_truncated_normal(tensor: Tensor, deviation: float) -> Tensor:
    """Fill a tensor as flax does: normal numbers, those beyond two scales drawn again."""
    scale = deviation / TRUNCATED_DEVIATION
    return nn.init.trunc_normal_(tensor, std=scale, a=-2 * scale, b=2 * scale)


def _draw_up_to(tensor: Tensor, bound: float) -> Tensor:
    return nn.init.uniform_(tensor, -bound, bound)


def _draw_xavier_uniform(tensor: Tensor, fan: Fan, maps: float) -> Tensor:
    return _draw_up_to(tensor, math.sqrt(6 / (fan.inputs + fan.outputs / maps)))


INITIAL_DISTRIBUTIONS: Mapping[str, Distribution] = {
    "zeros": lambda x, fan: nn.init.zeros_(x),
    "ones": lambda x, fan: nn.init.ones_(x),
    "constant": lambda x, fan, value: nn.init.constant_(x, value),
    "normal": lambda x, fan, deviation: nn.init.normal_(x, std=deviation),
    # Cut off at two of its own standard deviations; the given one is that of the result.
    "truncated_normal": lambda x, fan, deviation: draw_truncated_normal(x, deviation),
    "uniform": lambda x, fan, low, high: nn.init.uniform_(x, low, high),
    # As torch initializes linear maps.
    "linear": lambda x, fan: _draw_up_to(x, fan.inputs**-0.5),
    # As flax initializes weights.
    "lecun_normal": lambda x, fan: draw_truncated_normal(x, fan.inputs**-0.5),
    "fan_out_normal": lambda x, fan: nn.init.normal_(x, std=fan.outputs**-0.5),
    "xavier_uniform": lambda x, fan: _draw_xavier_uniform(x, fan, 1),
    # Several maps of equal size in one tensor, each xavier_uniform.
    "xavier_uniform_of": _draw_xavier_uniform,
}


def parse_initial_distribution(
    text: str, distributions: Mapping[str, Distribution] = INITIAL_DISTRIBUTIONS
) -> Callable[[Tensor, Fan], Tensor]:
    """Parse a distribution, and return a function that fills a parameter of a fan.

    Raises: ValueError for an unknown name, or for numbers that the distribution does not take.
    """
    name, *rest = text.split() or [""]
    if name not in distributions:
        known = ", ".join(distributions)
        raise ValueError(f"unknown distribution {name!r}; expected one of {known}")
    distribution = distributions[name]
    _, _, *expected = inspect.signature(distribution).parameters
    try:
        numbers = dict(zip(expected, map(float, rest), strict=True))
    except ValueError:
        numbers = {"": math.nan}
    if not all(map(math.isfinite, numbers.values())):
        raise ValueError(
            f"distribution {name}: got {' '.join(rest)!r}, expected {len(expected)} numbers"
        )
    width = numbers.get("high", 1) - numbers.get("low", 0)
    if min(numbers.get("deviation", 1), numbers.get("maps", 1), width) <= 0:
        raise ValueError(
            f"distribution {text!r}: expected a deviation, a number of maps or a range above 0"
        )
    return lambda tensor, fan: distribution(tensor, fan, *numbers.values())


def _checked(text: str) -> str:
    parse_initial_distribution(text)
    return text


InitialDistributionText = Annotated[str, AfterValidator(_checked)]
"""A distribution as text: "normal 0.02"."""
