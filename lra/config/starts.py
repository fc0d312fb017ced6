"""Laws by which parameters start, by name.

A law is written as its name and its numbers: "normal 0.02". Those that depend on the size of a map
take its inputs and outputs, its fan.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from pydantic import AfterValidator
from torch import Tensor, nn

from models.ops.truncated_normal import draw_truncated_normal


class Fan(NamedTuple):
    """The size of a linear map; a table of tokens is one of tokens in, channels out."""

    inputs: int
    outputs: int


@dataclass(frozen=True)
class Start:
    """How a parameter starts: mean and standard deviation, and what draws it in place."""

    mean: float
    deviation: float
    draw: Callable[[Tensor], Tensor]
    measures_size: bool = False
    """Whether the deviation is the root of the mean square, of a mean that is not stated."""


def _constant(value: float) -> Start:
    return Start(value, 0.0, lambda tensor: nn.init.constant_(tensor, value))


def _normal(deviation: float) -> Start:
    return Start(0.0, deviation, lambda tensor: nn.init.normal_(tensor, std=deviation))


def _truncated_normal(deviation: float) -> Start:
    return Start(0.0, deviation, lambda tensor: draw_truncated_normal(tensor, deviation))


def _uniform(low: float, high: float) -> Start:
    deviation = (high - low) / math.sqrt(12)
    return Start((low + high) / 2, deviation, lambda tensor: nn.init.uniform_(tensor, low, high))


def _xavier_uniform(fan: Fan, maps: float) -> Start:
    bound = math.sqrt(6 / (fan.inputs + fan.outputs / maps))
    return _uniform(-bound, bound)


def _linear(fan: Fan) -> Start:
    bound = fan.inputs**-0.5
    return _uniform(-bound, bound)


@dataclass(frozen=True)
class Law:
    """A named law.

    Args:
        start: makes how a parameter of a fan starts, from the numbers that follow the name.
        meaning: what it is, in words.
        numbers: how many there are.
        above: what the last one exceeds.
        is_range: whether the first is below the last.
    """

    start: Callable[..., Start]
    meaning: str
    numbers: int = 0
    above: float = -math.inf
    is_range: bool = False


LAWS: Mapping[str, Law] = {
    "zeros": Law(lambda fan: _constant(0.0), "0"),
    "ones": Law(lambda fan: _constant(1.0), "1"),
    "constant": Law(lambda fan, value: _constant(value), "a number", numbers=1),
    "normal": Law(
        lambda fan, deviation: _normal(deviation), "a deviation above 0", numbers=1, above=0
    ),
    "truncated_normal": Law(
        lambda fan, deviation: _truncated_normal(deviation), "a deviation above 0, of what is left "
        "of a normal law within twice its own", numbers=1, above=0,
    ),
    "uniform": Law(
        lambda fan, low, high: _uniform(low, high), "a number, and one above it", numbers=2,
        is_range=True,
    ),
    "linear": Law(_linear, "uniform within inputs ** -0.5, as torch starts linear maps"),
    "lecun_normal": Law(
        lambda fan: _truncated_normal(fan.inputs**-0.5),
        "truncated_normal of deviation inputs ** -0.5, as flax starts weights",
    ),
    "fan_out_normal": Law(
        lambda fan: _normal(fan.outputs**-0.5), "normal of deviation outputs ** -0.5"
    ),
    "xavier_uniform": Law(
        lambda fan: _xavier_uniform(fan, 1),
        "uniform of deviation (2 / (inputs + outputs)) ** 0.5",
    ),
    "xavier_uniform_of": Law(
        _xavier_uniform, "how many maps of equal size one tensor holds, each xavier_uniform",
        numbers=1, above=0,
    ),
}  # fmt: skip


def read_law(text: str, laws: Mapping[str, Law] = LAWS) -> Callable[[Fan], Start]:
    """Read a law.

    Returns: how a parameter starts, by its fan.
    Raises: ValueError for one that is not there, or for other numbers than it takes.
    """
    name, *rest = text.split() or [""]
    if name not in laws:
        raise ValueError(f"there is no law {name!r}; expected one of {', '.join(laws)}")
    law = laws[name]
    try:
        numbers = [float(number) for number in rest]
    except ValueError:
        numbers = [math.nan]
    if len(numbers) != law.numbers or not all(map(math.isfinite, numbers)):
        raise ValueError(f"law {name} takes {law.numbers} numbers, and got {' '.join(rest)!r}")
    if numbers and (numbers[-1] <= law.above or (law.is_range and numbers[0] >= numbers[-1])):
        raise ValueError(f"law {text!r}: expected {law.meaning}")
    return lambda fan: law.start(fan, *numbers)


def _checked(text: str) -> str:
    read_law(text)
    return text


LawText = Annotated[str, AfterValidator(_checked)]
"""A law, written; "normal 0.02"."""
