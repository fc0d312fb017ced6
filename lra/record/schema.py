"""What the records of runs, benchmarks and evaluations have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError

from lra.runtime.errors import UserError
from tasks.base import Dataset
from tasks.files import write_atomically

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
    unofficial_because: str = ""
    """What the data has in another way than the official release, if its source is unofficial."""
    fingerprint: str
    sizes: dict[str, NonNegativeInt]
    notes: dict[str, int] = {}
    """Counts that a user should know of, such as skipped lines and texts in two splits."""

    @classmethod
    def of(cls, dataset: Dataset) -> DataRecord:
        """Describe a data set."""
        return cls(
            source=dataset.source,
            unofficial_because=dataset.unofficial_because,
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


def read_all(
    kind: type[Kind], paths: Iterable[Path], version: int, path_of: Callable[[Kind], Path]
) -> tuple[list[Kind], list[str]]:
    """Read records of a kind; list the faults of files that are unreadable or misplaced.

    Args:
        kind: of all the records.
        paths: files, read in the order of their names.
        version: of the records' schema.
        path_of: returns the file that a record belongs into.
    """
    records: list[Kind] = []
    faults: list[str] = []
    for path in sorted(paths):
        try:
            record = read_record(kind, path, version)
            if (own := path_of(record)) != path:
                raise UserError(f"{path}: a record under the name of another; move it to {own}")
        except UserError as error:
            faults.append(str(error))
        else:
            records.append(record)
    return records, faults
