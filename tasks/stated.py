"""What the class of a user's own task states of its examples, and whether they are so."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from common.errors import DataError
from tasks.base import MOST_CLASSES, TaskInfo
from tasks.examples import Examples
from tasks.manifest import file_facts


class DeclaredInfo(BaseModel):
    """What such a class may state of its examples, as attributes; else it is read off them."""

    model_config = ConfigDict(strict=True)

    num_classes: Annotated[int, Field(ge=2, le=MOST_CLASSES)] | None = None
    max_length: PositiveInt | None = None
    vocab_size: PositiveInt | None = None
    channels: PositiveInt | None = None
    towers: Annotated[int, Field(ge=1, le=2)] | None = None
    grid: tuple[PositiveInt, PositiveInt] | None = None
    targets: Literal["example", "token"] | None = None


def declared_info(own: object, name: str) -> DeclaredInfo:
    """Read the attributes of a class that describe its examples.

    Args:
        own: an instance of the class.
        name: of the task, for errors.
    Raises: DataError naming an attribute with another value than expected.
    """
    given = {key: getattr(own, key, None) for key in DeclaredInfo.model_fields}
    try:
        return DeclaredInfo.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        raise DataError(
            f"{name}: its attribute {first['loc'][0]} is {first['input']!r}: {first['msg']}"
        ) from None


def data_file_digests(own: object, name: str) -> list[str] | None:
    """Hash the files that a class names in its attribute data_files; None if it has none.

    Raises: DataError for what is no list of paths of files.
    """
    files = getattr(own, "data_files", None)
    if files is None:
        return None
    paths = [files] if isinstance(files, (str, Path)) else files
    if not isinstance(paths, (list, tuple)) or not all(isinstance(p, (str, Path)) for p in paths):
        raise DataError(
            f"{name}: its attribute data_files is a {type(files).__name__}, expected a list of "
            f"paths of files"
        )
    for path in map(Path, paths):
        if not path.is_file():
            raise DataError(
                f"{name}: its attribute data_files names {path}, but there is no such file (looked "
                f"for in {Path.cwd()})"
            )
    return [file_facts(Path(path)).sha256 for path in paths]


def check_info(info: TaskInfo) -> TaskInfo:
    """Return what a task states and shows, after checking that its parts fit together.

    Raises: DataError.
    """
    if info.grid is not None and info.grid[0] * info.grid[1] != info.max_length:
        raise DataError(
            f"{info.name}: a grid of {info.grid[0]} by {info.grid[1]} has other than "
            f"{info.max_length} positions"
        )
    if info.vocab_size is not None and info.channels is not None:
        raise DataError(
            f"{info.name}: it has vocab_size {info.vocab_size}, which is for tokens, and channels "
            f"{info.channels}, which is for real numbers; expected one of both"
        )
    return info


def check_kind(examples: Examples, info: TaskInfo) -> None:
    """Check that examples are of the kind that a task has.

    Raises: ValueError that says what is different.
    """
    for name in ("targets", "towers"):
        shown, stated = getattr(examples, name), getattr(info, name)
        if shown != stated:
            raise ValueError(f"{name} is {shown!r}, not {stated!r}")
    if info.channels is None and examples.channels is not None:
        raise ValueError("they hold real numbers, and vocab_size is for tokens")
    if examples.channels != info.channels:
        raise ValueError(
            f"a position has {examples.channels} numbers, expected {info.channels} channels; "
            f"transpose arrays of shape (channels, length)"
        )


def describe_long_positions(info: TaskInfo) -> str:
    """Say that sequences may be transposed, if a position has more numbers than there are."""
    if info.channels is None or info.channels <= info.max_length:
        return ""
    return (
        f"sequences have up to {info.max_length:,} positions of {info.channels:,} numbers; if "
        f"arrays are (channels, length), transpose them"
    )
