"""What the processes of a run decide together, in one exchange a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from lra.runtime.distributed import ProcessGroup

Wish = Literal["stop", "checkpoint"]


class Agreement:
    """Adds up the numbers of a step over all processes, together with what they wish for.

    An exchange for each wish would let all processes wait for one another several times a step.

    Args:
        group: the processes, all of which call each method at the same points of their loops.
    """

    def __init__(self, group: ProcessGroup) -> None:
        self.group = group
        self._wanted: dict[Wish, bool] = {"stop": False, "checkpoint": False}
        self._agreed: dict[Wish, bool] = {}

    def exchange(self, numbers: Sequence[float]) -> list[float]:
        """Return the sums of the processes' numbers, and learn what any of them wishes for."""
        sums = self.group.sums_of([*numbers, *self._wanted.values()])
        wishes = sums[len(numbers) :]
        self._agreed = {name: wish > 0 for name, wish in zip(self._wanted, wishes, strict=True)}
        return sums[: len(numbers)]

    def ask(self, name: Wish, wanted: bool) -> bool:
        """Return whether to do now what a process wishes for, the same to all processes.

        One process does it at once, several after the next exchange.
        """
        if self.group.world_size == 1:
            return wanted
        agreed = self._agreed.pop(name, False)
        self._wanted[name] = wanted and not agreed
        return agreed
