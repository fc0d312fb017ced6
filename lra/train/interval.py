"""What training steps amount to between two lines of metrics."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, FiniteFloat
from typing_extensions import TypedDict

Sum = Annotated[float, Field(ge=0, lt=1e18)]


class IntervalSums(TypedDict):
    """Sums over steps: their losses in nats, right and seen examples, and seconds."""

    loss: FiniteFloat
    correct: Sum
    seen: Sum
    steps: Sum
    seconds: Sum


def _zero() -> IntervalSums:
    return {"loss": 0.0, "correct": 0.0, "seen": 0.0, "steps": 0.0, "seconds": 0.0}


class Interval:
    """Sums over the steps since the last call of `clear`."""

    def __init__(self) -> None:
        self.sums = _zero()
        """What a checkpoint holds."""

    def add(self, loss: float, correct: int, seen: int, seconds: float) -> None:
        """Take in a step: its mean loss, and how many of the examples seen were right."""
        self.sums["loss"] += loss
        self.sums["correct"] += correct
        self.sums["seen"] += seen
        self.sums["steps"] += 1
        self.sums["seconds"] += seconds

    def means(self) -> dict[str, float]:
        """Return mean loss in nats, accuracy in percent, and steps per second."""
        steps = self.sums["steps"]
        return {
            "loss": self.sums["loss"] / steps,
            "accuracy": 100.0 * self.sums["correct"] / max(1.0, self.sums["seen"]),
            "steps_per_second": steps / self.sums["seconds"],
        }

    def clear(self) -> None:
        """Begin a new interval."""
        self.sums = _zero()
