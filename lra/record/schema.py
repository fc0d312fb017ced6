"""What the records of runs, benchmarks and evaluations have in common."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from common.errors import KnownError, UserError
from common.files import write_atomically
from common.strict_yaml import plain
from lra.record.packed import read_file
from tasks.base import Dataset

BUSY = 1.25
"""Times the cores that a process and others may want together before the machine is busy."""
LONGEST_LABEL = 60
LONGEST_FACTS = 100_000
"""Most letters of all that git says, and of all settings."""

Status = Literal["done", "stopped", "diverged", "oom"]
"""How a run ended."""
Percent = Annotated[float, Field(ge=0, le=100)]
Count = Annotated[int, Field(ge=0, lt=2**63)]
PositiveCount = Annotated[int, Field(ge=1, lt=2**63)]
Amount = Annotated[float, Field(ge=0, lt=1e18)]
Positive = Annotated[float, Field(gt=0, lt=1e18)]


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("holds control characters")
    return text


FileName = Annotated[str, Field(pattern=r"^[\w-][\w.-]{0,99}$")]
"""Name of a file or folder, which cannot lead to a place outside the folder that it is in."""
PrintableText = Annotated[str, Field(max_length=2000), AfterValidator(_printable)]
"""Text that can be shown on a terminal, in a figure and on a page."""
ShortText = Annotated[PrintableText, Field(max_length=200)]
"""A short text, such as the name of a device."""
RowLabel = Annotated[PrintableText, Field(max_length=LONGEST_LABEL, pattern=r"^(?s:\S(.*\S)?)$")]
"""What a user calls a row of a table; no spaces at its ends."""


def refuse_control_characters(facts: dict[str, Any]) -> dict[str, Any]:
    """Check all texts in what JSON holds, names of fields among them.

    Raises: ValueError for control characters, and for too many letters.
    """
    text = json.dumps(facts, ensure_ascii=False).replace(r"\\", "").replace(r"\"", "")
    if "\\" in text:  # the start of an escaped control character
        raise ValueError("holds control characters")
    if len(_printable(text)) > LONGEST_FACTS:
        raise ValueError(f"holds {len(text):,} letters, expected at most {LONGEST_FACTS:,}")
    return facts


SettingName = Annotated[str, Field(max_length=200, pattern=r"^[a-z]+\.[A-Za-z_]\w*$")]
Settings = Annotated[
    dict[SettingName, Any], Field(max_length=1000), AfterValidator(refuse_control_characters)
]
Origins = Annotated[dict[SettingName, PrintableText], Field(max_length=1000)]
"""Where each value that is not a default comes from: a file, or a flag."""

GitFacts = Annotated[dict[str, Any], AfterValidator(refuse_control_characters)]
"""What git says of the code: the commit, whether files differ from it, all commits of a run."""

SHIPPED = "shipped"
"""Folder, in a results folder, of results that came with the repository. They are reported beside
one's own and never keep one from making the same run oneself."""
SHIPPED_RESULTS = Path(__file__).resolve().parents[2] / "results" / SHIPPED
"""The results that came with this code."""


def shipped_dir(results_dir: Path) -> Path:
    """Return the folder of the shipped results that are shown with those of a results folder.

    It is the folder shipped/ within or, without one, that of the results that came with this code.
    """
    within = results_dir / SHIPPED
    return within if within.is_dir() or results_dir.name == SHIPPED else SHIPPED_RESULTS


def is_shipped(path: Path, results_dir: Path) -> bool:
    """Whether a file or folder belongs to the shipped results shown with a results folder."""
    return results_dir.name == SHIPPED or path.is_relative_to(shipped_dir(results_dir))


class Record(BaseModel):
    """A record, written once and never changed; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    def write(self, path: Path) -> Path:
        """Write the record as JSON; return the path."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, (self.model_dump_json(indent=2) + "\n").encode())
        return path


AnyRecord = TypeVar("AnyRecord", bound=Record)


class ThreadsRecord(Record):
    """What a command computed with on a CPU, and what it shared that with as it started."""

    count: PositiveCount
    waiting: ShortText | None = None
    """How threads waited for each other; only in earlier records."""
    cores: PositiveCount
    """Cores that the process might run on."""
    load: Amount | None = None
    """Cores that other processes kept busy as the command started; only in earlier records."""

    @property
    def busy(self) -> bool:
        """Whether other processes left too few cores for these threads, so that speeds are low."""
        return self.load is not None and self.count + self.load > BUSY * self.cores


def is_cpu(device: str) -> bool:
    """Whether the name of a device is a processor's."""
    return "CPU" in device


def was_busy(threads: ThreadsRecord | None, gpu_shared: bool | None) -> bool:
    """Say of a record's fields whether other processes slowed down what it measured."""
    return bool(gpu_shared) or (threads is not None and threads.busy)


class DataRecord(Record):
    """The data a run used."""

    source: ShortText
    unofficial_because: PrintableText = ""
    """What the data has in another way than the official release, if its source is unofficial."""
    fingerprint: ShortText
    sizes: dict[ShortText, Count]
    notes: dict[ShortText, Count] = {}
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


class MeasuredRecord(Record):
    """A record of something that was computed."""

    schema_version: Literal[2] = 2
    device: ShortText
    threads: ThreadsRecord | None = None
    """What it was computed with, when last worked on; null on a GPU, and in older records."""
    gpu_shared: bool | None = None
    """Whether other processes held memory of the GPU meanwhile, so that speeds are low; null on a
    CPU, and in older records."""
    precision: ShortText
    versions: dict[ShortText, ShortText]
    git: GitFacts


def select_sections(changes: Mapping[str, Any], *sections: str) -> dict[str, Any]:
    """Select the settings of some sections: "task", "mixer", "model", "train"."""
    return {name: value for name, value in changes.items() if section_of(name) in sections}


def section_of(name: str) -> str:
    """Return the section of a setting: "train" for "train.lr"."""
    return name.partition(".")[0]


def write_changes(changes: Mapping[str, Any]) -> tuple[str, ...]:
    """Write settings as `--set` takes them: "train.lr=0.001"."""
    return tuple(f"{name}={plain(value)}" for name, value in changes.items())


def fault_of(error: ValidationError) -> str:
    """Name the first field that is wrong, and what is wrong with it."""
    first = error.errors()[0]
    return ": ".join([*map(str, first["loc"]), first["msg"]])


def row_label(text: str, flag: str) -> str:
    """Check the name of a row that a flag gave.

    Raises: UserError if no record could hold it.
    """
    try:
        return TypeAdapter(RowLabel).validate_python(text)
    except ValidationError as error:
        raise UserError(
            f"{flag} {text!r}: no name of a row in tables: {fault_of(error)}; expected 1 to "
            f"{LONGEST_LABEL} letters, without spaces at the ends"
        ) from None


def read_record(kind: type[AnyRecord], path: Path) -> AnyRecord:
    """Read and check a record of a kind.

    Raises: UserError naming the file and what is wrong with it.
    """
    try:
        return kind.model_validate_json(read_file(path))
    except (KnownError, OSError, ValueError) as error:
        what = fault_of(error) if isinstance(error, ValidationError) else str(error)
        raise UserError(
            f"{path}: not a record of schema 2: {what}; move it away if it is of no more use"
        ) from None


def read_all(
    kind: type[AnyRecord], paths: Iterable[Path], path_of: Callable[[AnyRecord], Path]
) -> tuple[list[AnyRecord], list[str]]:
    """Read records of a kind; list the faults of files that are unreadable, or not where `path_of`
    says that their record belongs.
    """
    records: list[AnyRecord] = []
    faults: list[str] = []
    for path in sorted(paths):
        try:
            record = read_record(kind, path)
            if (own := path_of(record)) != path:
                raise UserError(f"{path}: a record under the name of another; move it to {own}")
        except UserError as error:
            faults.append(str(error))
        else:
            records.append(record)
    return records, faults
