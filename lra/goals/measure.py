"""Numbers of results, as tables, axes and screens show them."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lra.runtime.tables import MISSING, rounded


@dataclass(frozen=True)
class Measure:
    """A number of a result."""

    name: str
    """What the number is, with its unit, for a column or an axis."""
    of: Callable[[Any], float | None]
    """Returns the number of a result of the goal; None where there is none."""
    digits: int = 2
    lowest_is_best: bool = False
    highest: float = math.inf
    """The most that can be measured; what reaches it may be more."""
    interval: Callable[[Any], tuple[float, float] | None] | None = None
    """Returns the 95 % interval of the number, for another test set; None where it is not known.
    Only what results are ranked by has one, and may be at chance."""
    beneath: Callable[[Any], Mapping[str, float]] = lambda _: {}
    """Returns numbers that stand beneath a table: those of trivial baselines, and bounds."""

    def text(self, value: float | None, deviation: float | None = None) -> str:
        """Write a value, with ± its standard deviation if it has one; a dash for None."""
        texts = [rounded(x, self.digits) for x in (value, deviation) if x is not None]
        return " ± ".join(texts) or MISSING

    def rows_beneath(self, results: Iterable[Any]) -> dict[str, float]:
        """Join what stands beneath a column of results; of several numbers the last counts."""
        return {name: value for result in results for name, value in self.beneath(result).items()}


ACCURACY = Measure(
    "test accuracy in percent",
    lambda result: result.test_accuracy,
    interval=lambda result: result.interval,
    beneath=lambda result: {f"trivial baseline: {n}": v for n, v in result.baselines.items()},
)
