"""Trials: what is tried, and how it ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from lra.config.source import Source
from tasks.errors import KnownError, message


class NotTried(KnownError):
    """Why a trial does not concern what is tried."""


@dataclass(frozen=True)
class Outcome:
    """How a trial ended."""

    name: str
    """What holds if it passed."""
    fault: str | None = None
    """What was found instead; None if it passed."""
    note: str = ""
    """What a user should know of one that passed, or why it was not tried."""

    @property
    def line(self) -> str:
        """One line on it."""
        said = self.fault or self.note
        return f"{'passed' if self.fault is None else 'FAILED'}  {self.name}" + (
            f": {said}" if said else ""
        )


_UNMADE = "the next trial can be made"

Attempt = Callable[[], "str | None"]
"""Tries something: raises what it finds wrong, or returns what a user should know, if anything."""


def carry_out(source: Source, attempts: Iterable[tuple[str, Attempt]]) -> list[Outcome]:
    """Carry trials out, the ones after one that failed, too.

    Args:
        source: whose fault it is whatever they raise.
        attempts: trials by name; one is carried out before the next is asked for.
    Raises: whatever is no fault of what is tried.
    """
    found: list[Outcome] = []
    queue = iter(attempts)
    while (outcome := _next(source, queue)) is not None:
        if outcome.name != _UNMADE or outcome.fault not in {one.fault for one in found}:
            found.append(outcome)  # what a failed trial needed is not there for those after it
    return found


def _next(source: Source, queue: Iterator[tuple[str, Attempt]]) -> Outcome | None:
    """Carry out the next trial; None if there is none left."""
    name = _UNMADE
    try:
        with source.faults_named("it failed"):
            chosen = next(queue, None)
            if chosen is None:
                return None
            name, attempt = chosen
            return Outcome(name, note=attempt() or "")
    except NotTried as reason:
        return Outcome(name, note=f"not tried, as {reason}")
    except KnownError as error:
        return Outcome(name, message(error).removeprefix(f"{source.origin}: "))
