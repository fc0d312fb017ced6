"""What can be measured: a computation, and the settings that it is set up by."""

from __future__ import annotations

import abc
import dataclasses
from dataclasses import dataclass
from typing import Any


class Subject(abc.ABC):
    """A computation that is set up and ready to be timed."""

    repetitions = 1
    """Number of counted units, such as steps or batches, that one `run` computes."""

    @abc.abstractmethod
    def run(self) -> None:
        """Run the computation once."""

    def facts(self) -> dict[str, Any]:
        """Return fields of the record that are known only once all rounds are timed."""
        return {"params": None, "flops_per_step": None}


@dataclass(frozen=True, kw_only=True)
class Case(abc.ABC):
    """The settings of a computation that is to be timed."""

    mixer: str
    device: str
    is_reference: bool = False
    """Whether this is the reference: written as published code is, with the default allocator."""

    @property
    def varies(self) -> bool:
        """Whether the amount of work differs from one run to the next."""
        return False

    @abc.abstractmethod
    def build(self) -> Subject:
        """Set up the computation."""

    @abc.abstractmethod
    def settings(self) -> dict[str, Any]:
        """Return the fields of the record that identify this case."""

    def keeps_memory(self) -> bool:
        """Whether the allocator keeps what is freed, as it does in a run of these settings."""
        return not self.is_reference

    def reference(self) -> Case:
        """Return the reference of this case."""
        return dataclasses.replace(self, is_reference=True)
