"""Tables of examples in Parquet files, as Hugging Face serves data sets."""

import logging
from collections.abc import Iterator
from pathlib import Path

from lra.common.errors import DataError
from lra.common.tables import read_table
from lra.common.untrusted import explain_errors, open_regular

logger = logging.getLogger(__name__)

NAME = "train*.parquet"
"""Pattern of the files of the training set; those of the test set lie beside them."""
SPLITS = ("train", "test")


def list_tables(path: Path, *splits: str) -> list[Path]:
    """List the files of splits beside a training set in Parquet; none for other files."""
    if path.suffix != ".parquet":
        return []
    return [file for split in splits for file in sorted(path.parent.glob(f"{split}*.parquet"))]


def accept_table(path: Path, column: str) -> Path | None:
    """Return the first file of a training set that has a column and labels, None for others.

    A damaged file is returned, too: whoever reads it is told what is wrong with it.
    """
    import pyarrow.parquet

    if path != list_tables(path, "train")[0]:
        return None
    try:
        with open_regular(path) as file:
            names = pyarrow.parquet.read_schema(file).names
    except Exception:
        return path
    if {column, "label"} <= set(names):
        return path
    logger.info(f"{path} has no columns {column} and label; not read")
    return None


def read_examples(path: Path, split: str, column: str, classes: int) -> Iterator[tuple[bytes, int]]:
    """Read the examples of a split, in the order of its files and rows.

    Args:
        path: the first file of the training set.
        split: train or test.
        column: name of the column of texts, or of images as files.
        classes: number of classes; labels count from 0.
    Yields: the text in UTF-8 or the file of an image, and its label.
    Raises: DataError for files that are missing, damaged or of another kind.
    """
    files = list_tables(path, split)
    if not files:
        raise DataError(f"{path.parent} lacks {split}*.parquet; put it beside {path.name}")
    for name in files:
        with explain_errors(f"{name}", "get it anew, or move it out of the data folder"):
            for number, (content, label) in enumerate(read_table(name, [column, "label"])):
                if type(label) is not int or not 0 <= label < classes:
                    raise DataError(
                        f"{name}: row {number} has label {label}, expected 0 to {classes - 1}"
                    )
                if not isinstance(content, (bytes, str)):
                    raise DataError(f"{name}: row {number} has no {column}")
                yield (content.encode() if isinstance(content, str) else content), label
