"""Marks of options in their types, which decide what the hash of a run holds."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Added:
    """Marks, in its type, an option that was added later: Annotated[int, Added(1)].

    An option with this value does the same as the code before the option existed, and does not
    change the hash of a run.
    """

    default: Any
