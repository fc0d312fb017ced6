"""Checks: what is checked, and how it ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from lra.config.component import Component
from tasks.errors import KnownError, message


class NotChecked(KnownError):
    """Why a check does not concern what is checked."""


@dataclass(frozen=True)
class CheckResult:
    """How a check ended."""

    name: str
    """What holds if it passed."""
    fault: str | None = None
    """What was found instead; None if it passed."""
    note: str = ""
    """What a user should know of one that passed, or why it was not checked."""

    @property
    def line(self) -> str:
        """One line on it."""
        said = self.fault or self.note
        return f"{'passed' if self.fault is None else 'FAILED'}  {self.name}" + (
            f": {said}" if said else ""
        )


_UNMADE = "the next check can be made"

Check = Callable[[], "str | None"]
"""Checks something: raises what it finds wrong, or returns what a user should know, if anything."""


def carry_out(component: Component, checks: Iterable[tuple[str, Check]]) -> list[CheckResult]:
    """Carry checks out, the ones after one that failed, too.

    Args:
        component: whose fault it is whatever they raise.
        checks: by name; one is carried out before the next is asked for.
    Raises: whatever is no fault of what is checked.
    """
    found: list[CheckResult] = []
    queue = iter(checks)
    while (result := _next(component, queue)) is not None:
        if result.name != _UNMADE or result.fault not in {one.fault for one in found}:
            found.append(result)  # what a failed check needed is not there for those after it
    return found


def _next(component: Component, queue: Iterator[tuple[str, Check]]) -> CheckResult | None:
    """Carry out the next check; None if there is none left."""
    name = _UNMADE
    try:
        with component.explain_errors("it failed"):
            chosen = next(queue, None)
            if chosen is None:
                return None
            name, check = chosen
            return CheckResult(name, note=check() or "")
    except NotChecked as reason:
        return CheckResult(name, note=f"not tried, as {reason}")
    except KnownError as error:
        return CheckResult(name, message(error).removeprefix(f"{component.origin}: "))
