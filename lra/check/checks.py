"""Checks and their results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from common.errors import KnownError, message
from lra.config.components import Component


class NotChecked(KnownError):
    """A check does not apply; the message says why."""


@dataclass(frozen=True)
class CheckResult:
    """The result of a check."""

    name: str
    """A statement that is true if the check passed."""
    fault: str | None = None
    """What is wrong; None if the check passed."""
    note: str = ""
    """A remark on a check that passed, or the reason why it does not apply."""

    @property
    def line(self) -> str:
        """The result as text: passed or FAILED, the statement, and what is wrong."""
        said = self.fault or self.note
        return f"{'passed' if self.fault is None else 'FAILED'}  {self.name}" + (
            f": {said}" if said else ""
        )


_UNMADE = "the next check can run"

Check = Callable[[], "str | None"]
"""A check: it raises an error that says what is wrong, or returns a remark, or None."""


def carry_out(component: Component, checks: Iterable[tuple[str, Check]]) -> list[CheckResult]:
    """Carry out all checks, also those after a failed one.

    Args:
        component: the mixer or task; whatever its code raises is its fault.
        checks: checks by name; each is carried out before the next one is made.
    Raises: errors that do not come from the code of the component.
    """
    found: list[CheckResult] = []
    queue = iter(checks)
    while (result := _next(component, queue)) is not None:
        if result.name != _UNMADE or result.fault not in {one.fault for one in found}:
            found.append(result)  # a check that could not be made repeats an earlier fault
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
        return CheckResult(name, note=f"does not apply, as {reason}")
    except KnownError as error:
        return CheckResult(name, message(error).removeprefix(f"{component.origin}: "))
