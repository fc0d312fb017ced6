"""What the records of runs, benchmarks and evaluations have in common."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import ConfigDict, Field, ValidationError, model_validator

from lra.common.errors import KnownError, UserError
from lra.common.strict_yaml import plain
from lra.record.packed import list_files, pack_faults, read_file
from lra.schema import Count, Facts, PrintableText, Record, ShortText, fault_of

logger = logging.getLogger(__name__)

Status = Literal["done", "stopped", "diverged", "oom"]
"""How a run ended."""
SHIPPED = "shipped"
"""Folder, in a results folder, of results that came with the repository. They are reported beside
one's own and never keep one from making the same run oneself."""
SHIPPED_RESULTS = Path(__file__).resolve().parents[1] / "results" / SHIPPED
"""The results that came with this code."""


def shipped_dir(results_dir: Path) -> Path:
    """Return the folder of the shipped results that are shown with those of a results folder.

    It is the folder shipped/ within or, without one, that of the results that came with this code.
    """
    within = results_dir / SHIPPED
    return within if within.is_dir() or results_dir.name == SHIPPED else SHIPPED_RESULTS


def warn_of_packs(results_dir: Path) -> None:
    """Log what is wrong with the packed files that are shown with a results folder."""
    for folder in {shipped_dir(results_dir), results_dir}:
        for fault in pack_faults(folder):
            logger.warning(f"left out: {fault}")


def is_shipped(path: Path, results_dir: Path) -> bool:
    """Whether a file or folder belongs to the shipped results shown with a results folder."""
    return results_dir.name == SHIPPED or path.is_relative_to(shipped_dir(results_dir))


AnyRecord = TypeVar("AnyRecord", bound=Record)


class DataRecord(Record):
    """The data a run used, read from a `Dataset` as well."""

    model_config = ConfigDict(from_attributes=True)

    source: ShortText
    unofficial_because: PrintableText = ""
    """What the data has in another way than the official release, if its source is unofficial."""
    fingerprint: ShortText
    sizes: dict[ShortText, Count]
    notes: dict[ShortText, Count] = Field(default_factory=dict)
    """Counts that a user should know of, such as skipped lines and texts in two splits."""


class MeasuredRecord(Record):
    """A record of something that was computed."""

    schema_version: Literal[3] = 3
    device: ShortText
    threads: Facts | None = None
    """Number of threads, how they wait (see `lra.common.threads`) and cores, when last worked on;
    null on a GPU, and in older records."""
    gpu_shared: bool | None = None
    """Whether other processes held memory of the GPU meanwhile, so that speeds are low; null on a
    CPU, and in older records."""
    precision: ShortText
    versions: dict[ShortText, ShortText]
    git: Facts
    """The commit of the code, whether files differ from it, and all commits of a run."""

    @model_validator(mode="before")
    @classmethod
    def _read_older(cls, content: Any) -> Any:
        is_older = isinstance(content, dict) and content.get("schema_version") == 2  # noqa: PLR2004
        return cls.upgrade(content) if is_older else content

    @classmethod
    def upgrade(cls, content: Mapping[str, Any]) -> dict[str, Any]:
        """Convert the content of a record of schema 2."""
        return {**content, "schema_version": 3}


def select_sections(changes: Mapping[str, Any], *sections: str) -> dict[str, Any]:
    """Select the settings of some sections: "task", "mixer", "model", "train"."""
    return {name: value for name, value in changes.items() if name.partition(".")[0] in sections}


def write_changes(changes: Mapping[str, Any]) -> tuple[str, ...]:
    """Write settings as `--set` takes them: "train.lr=0.001"."""
    return tuple(f"{name}={plain(value)}" for name, value in changes.items())


def read_record(kind: type[AnyRecord], path: Path) -> AnyRecord:
    """Read and check a record of a kind.

    Raises: UserError naming the file and what is wrong with it.
    """
    try:
        return kind.model_validate_json(read_file(path))
    except (KnownError, OSError, ValueError) as error:
        what = fault_of(error) if isinstance(error, ValidationError) else str(error)
        raise UserError(
            f"{path}: not a record of schema 3: {what}; move it away if it is of no more use"
        ) from None


def read_all(
    kind: type[AnyRecord], folder: Path, pattern: str, path_of: Callable[[AnyRecord], Path]
) -> tuple[list[AnyRecord], list[str]]:
    """Read the records of a kind in a folder; list the faults of files that are unreadable, or not
    where `path_of` says that their record belongs.
    """
    records: list[AnyRecord] = []
    faults: list[str] = []
    for path in list_files(folder, pattern):
        try:
            record = read_record(kind, path)
            if (expected := folder / path_of(record)) != path:
                raise UserError(
                    f"{path}: a record under the name of another; move it to {expected}"
                )
        except UserError as error:
            faults.append(str(error))
        else:
            records.append(record)
    return records, faults
