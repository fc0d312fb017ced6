"""Data sets that tensorflow-datasets (TFDS) has prepared, read without TensorFlow."""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lra.common.errors import DataError, nearest
from lra.common.untrusted import explain_errors

CHUNK = 1024
"""Examples that are read at a time."""


def open_prepared(name: str) -> Any:
    """Open a data set in the folder of TFDS, TFDS_DATA_DIR or ~/tensorflow_datasets.

    Returns: its `tfds.core.DatasetBuilder`.
    Raises: DataError for one that is not prepared as array_record.
    """
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core.read_only_builder import builder_from_files
    from tensorflow_datasets.core.registered import DatasetNotFoundError

    if not re.fullmatch(r"\w+(/[\w.+-]+)?(:[\d.]+)?", name):
        raise DataError(f"tfds:{name}: expected tfds:NAME[/CONFIG][:VERSION]")
    root = Path(os.environ.get("TFDS_DATA_DIR", "~/tensorflow_datasets")).expanduser()
    command = f"python -c \"import tensorflow_datasets as tfds; tfds.data_source('{name}')\""
    try:
        with explain_errors(f"tfds:{name} in {root}", "prepare it again"):
            builder = builder_from_files(name, data_dir=root)
    except DataError as error:
        if not isinstance(error.__cause__, DatasetNotFoundError):
            raise
        known = tfds.list_builders(with_community_datasets=False)
        word = re.split("[/:]", name)[0]
        if word in known:
            raise DataError(f"tfds:{name} is not in {root}; prepare it by: {command}") from None
        near = nearest(word, [*known, *(path.name for path in root.glob("*/"))])
        hint = f"; did you mean tfds:{near}?" if near else ""
        raise DataError(
            f"tfds:{name} is neither in {root} nor in "
            f"https://www.tensorflow.org/datasets/catalog{hint}"
        ) from None
    formats = {one.value for one in builder.info.available_file_formats()}
    if "array_record" not in formats:
        raise DataError(
            f"{builder.data_path} has {', '.join(formats)} files, expected array_record, which is "
            f"read without TensorFlow; delete that folder and run: {command}"
        )
    return builder


def is_prepared(folder: Path) -> bool:
    """Whether a folder is that of a data set which TFDS has prepared."""
    return (folder / "dataset_info.json").is_file()


def read_prepared(
    folder: Path, split: str, rows: Sequence[int] | np.ndarray | None = None, *, images: str = ""
) -> Iterator[dict[str, Any]]:
    """Read examples of a split: their features by name, text as UTF-8 bytes.

    Args:
        rows: numbers of the examples; None for all, in the order of TFDS.
        images: a feature of images, which are left as files.
    Raises: DataError for damaged files.
    """
    import tensorflow_datasets as tfds

    with explain_errors(f"{folder}", "delete that folder and prepare it again"):
        skip = {images: tfds.decode.SkipDecoding()} if images else None
        builder: Any = tfds.builder_from_directory(folder)
        source = builder.as_data_source(split, decoders=skip)
        chosen = np.arange(len(source)) if rows is None else np.asarray(rows)
        for start in range(0, len(chosen), CHUNK):
            yield from source.__getitems__(chosen[start : start + CHUNK].tolist())


def order_as_prepared(split: str, keys: Iterable[object]) -> np.ndarray:
    """Order the examples of a split by their keys as TFDS does: (keys,) int64.

    TFDS sorts by the MD5 of the split's name and the key.
    """
    hashes = [hashlib.md5(f"{split}{key}".encode(), usedforsecurity=False).digest() for key in keys]
    return np.array(sorted(range(len(hashes)), key=hashes.__getitem__), dtype=np.int64)
