"""What the class of a user's own task states of its examples, and whether they are so."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from common.errors import DataError, format_value
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
    data_files: Path | str | tuple[Path | str, ...] | list[Path | str] | None = None
    """Files that `examples` reads."""

    def file_digests(self, name: str) -> list[str] | None:
        """Hash the data files; None if the class does not name them.

        Raises: DataError for a path of no file.
        """
        if self.data_files is None:
            return None
        files = self.data_files
        paths = [Path(path) for path in ([files] if isinstance(files, (str, Path)) else files)]
        for path in paths:
            if not path.is_file():
                raise DataError(
                    f"{name}: its attribute data_files names {path}, but there is no such file "
                    f"(looked for in {Path.cwd()})"
                )
        return [file_facts(path).sha256 for path in paths]


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
            f"{name}: its attribute {first['loc'][0]} is {format_value(first['input'])}: "
            f"{first['msg']}"
        ) from None


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
    for name in ("targets", "towers", "channels"):
        shown, stated = getattr(examples, name), getattr(info, name)
        if shown != stated:
            raise ValueError(f"{name} is {shown!r}, not {stated!r}")
