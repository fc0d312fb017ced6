"""What the records of runs, benchmarks and evaluations have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError

from lra.runtime.errors import UserError
from lra.runtime.files import write_atomically
from tasks.base import Dataset

ROUNDING = 1e-6
"""Percentage points by which an accuracy may differ from the one that its counts give."""

Name = Annotated[str, Field(pattern=r"^[\w-][\w.-]{0,99}$")]
"""Name of a file or folder, which cannot lead to a place outside the folder that it is in."""
Status = Literal["done", "stopped", "diverged", "oom"]
"""How a run ended."""
Percent = Annotated[float, Field(ge=0, le=100)]
Amount = Annotated[float, Field(ge=0, lt=1e18)]
Positive = Annotated[float, Field(gt=0, lt=1e18)]

SHIPPED = "shipped"
"""Folder, in a results folder, of results that came with the repository. They are reported beside
one's own and never keep one from making the same run oneself."""


class Record(BaseModel):
    """A record, written once and never changed; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    def write(self, path: Path) -> Path:
        """Write the record as JSON; return the path."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, (self.model_dump_json(indent=2) + "\n").encode())
        return path


Kind = TypeVar("Kind", bound=Record)


class DataRecord(Record):
    """The data a run used."""

    source: str
    fingerprint: str
    sizes: dict[str, NonNegativeInt]
    notes: dict[str, int] = {}
    """Counts that a user should know of, such as skipped lines and texts in two splits."""

    @classmethod
    def of(cls, dataset: Dataset) -> DataRecord:
        """Describe a data set."""
        return cls(
            source=dataset.source,
            fingerprint=dataset.fingerprint,
            sizes=dataset.sizes,
            notes=dict(dataset.notes),
        )


def read_record(kind: type[Kind], path: Path, version: int) -> Kind:
    """Read and check a record of a kind and a version of its schema.

    Raises: UserError naming the file and what is wrong with it.
    """
    try:
        return kind.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        what = str(error)
        if isinstance(error, ValidationError):
            first = error.errors()[0]
            what = ": ".join([*map(str, first["loc"]), first["msg"]])
        raise UserError(
            f"{path}: not a record of schema {version}: {what}; move it away if it is of "
            f"no more use"
        ) from None
