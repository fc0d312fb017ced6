"""Checks and their results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from common.errors import KnownError, message
from lra.config.components import Component

Check = Callable[[], object]
"""A check: it raises an error that says what is wrong, or returns a remark, or anything else."""
Checks = Iterator[tuple[str, Check]]
"""Checks by their names, each a statement that is true if the check passes."""


class CheckResult(NamedTuple):
    """The result of a check."""

    name: str
    fault: str | None = None
    """What is wrong; None if the check passed."""
    note: str = ""
    """A remark on a check that passed."""

    @property
    def line(self) -> str:
        """The result as text: passed or FAILED, the statement, and what is wrong."""
        verdict, said = "passed" if self.fault is None else "FAILED", self.fault or self.note
        return f"{verdict}  {self.name}" + (f": {said}" if said else "")


_UNMADE = "the next check can run"


def carry_out(component: Component, checks: Checks) -> list[CheckResult]:
    """Carry out all checks, each before the next one is made, also those after a failed one.

    Raises: errors that do not come from the code of the component.
    """
    found: list[CheckResult] = []
    while True:
        name = _UNMADE
        try:
            with component.explain_errors("it failed"):
                chosen = next(checks, None)
                if chosen is None:
                    return found
                name, check = chosen
                said = check()
                found.append(CheckResult(name, note=said if isinstance(said, str) else ""))
        except KnownError as error:
            fault = message(error).removeprefix(f"{component.origin}: ")
            # A check that could not be made repeats an earlier fault.
            if name != _UNMADE or fault not in {result.fault for result in found}:
                found.append(CheckResult(name, fault))
