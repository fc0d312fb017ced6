"""Tables of examples in Parquet files, as Hugging Face serves data sets."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from common.errors import DataError
from common.progress import progress
from common.untrusted import explain_errors, open_regular

logger = logging.getLogger(__name__)

NAME = "train*.parquet"
"""Pattern of the files of the training set; those of the test set lie beside them."""
SPLITS = ("train", "test")

LARGEST_TOTAL = 2**28
"""Most bytes of a file once it is unpacked."""
LARGEST_CONTENT = 2**20
"""Most bytes of a text or an image."""
MOST_ROWS = 200_000
"""Most rows of a file."""


def table_files(path: Path) -> list[Path]:
    """List the files of both splits beside a training set in Parquet; none for other files."""
    if path.suffix != ".parquet":
        return []
    return [file for split in SPLITS for file in _files(path, split)]


def accept_table(path: Path, column: str) -> Path | None:
    """Return the first file of a training set that has a column and labels, None for others.

    A damaged file is returned, too: whoever reads it is told what is wrong with it.
    """
    if path != _files(path, "train")[0]:
        return None
    try:
        with _open(path) as table:
            _check(path, table, column)
    except DataError as error:
        if isinstance(error, _OtherColumns):
            logger.info(f"{error}; not read")
            return None
    return path


def read_table(path: Path, split: str, column: str, classes: int) -> Iterator[tuple[bytes, int]]:
    """Read the examples of a split, in the order of its files and rows.

    Args:
        path: the first file of the training set.
        split: train or test.
        column: name of the column of texts, or of images as files.
        classes: number of classes; labels count from 0.
    Yields: a text in UTF-8 or the content of an image file, and its label.
    Raises: DataError for a missing or damaged file, and for a row that has no such content.
    """
    files = _files(path, split)
    if not files:
        raise DataError(f"{path.parent} lacks {split}*.parquet; put it beside {path.name}")
    for file in files:
        with _open(file) as table:
            _check(file, table, column)
            rows = progress(
                f"reading {file.name}",
                _rows(table, column),
                total=table.metadata.num_rows,
                unit="rows",
            )
            for number, (content, label) in enumerate(rows):
                if type(label) is not int or not 0 <= label < classes:
                    raise DataError(
                        f"{file}: row {number} has label {label}, expected 0 to {classes - 1}"
                    )
                if not isinstance(content, bytes) or len(content) > LARGEST_CONTENT:
                    raise DataError(
                        f"{file}: row {number} has no {column} of at most {LARGEST_CONTENT:,} bytes"
                    )
                yield content, label


class _OtherColumns(DataError):
    """A table of something else."""


def _files(path: Path, split: str) -> list[Path]:
    return sorted(path.parent.glob(f"{split}*.parquet"))


@contextlib.contextmanager
def _open(path: Path) -> Iterator[Any]:
    import pyarrow.parquet

    advice = "get it anew, or move it out of the data folder"
    with open_regular(path) as file, explain_errors(f"{path}", advice):
        yield pyarrow.parquet.ParquetFile(file)


def _check(path: Path, table: Any, column: str) -> None:
    """Check the columns, and the numbers of bytes and rows that a file states."""
    names = table.schema_arrow.names
    if not {column, "label"} <= set(names):
        raise _OtherColumns(
            f"{path} has the columns {', '.join(names)[:200]}; expected {column} and label"
        )
    facts = table.metadata
    total = sum(facts.row_group(i).total_byte_size for i in range(facts.num_row_groups))
    if total > LARGEST_TOTAL or facts.num_rows > MOST_ROWS:
        raise DataError(
            f"{path} holds {total:,} bytes and {facts.num_rows:,} rows, more than expected; refused"
        )


def _rows(table: Any, column: str) -> Iterator[tuple[Any, Any]]:
    """Read rows one by one, as thousands may repeat a text that a file holds once."""
    for row in table.iter_batches(1, columns=[column, "label"], use_threads=False):
        content, label = row[column][0].as_py(), row["label"][0].as_py()
        inner = content.get("bytes") if isinstance(content, dict) else content
        yield (inner.encode() if isinstance(inner, str) else inner), label
