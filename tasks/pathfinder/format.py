"""Pathfinder's images in the official file structure, that of the Long Range Arena release.

`pathfinder<size>/<level>/imgs/<batch>/sample_<i>.png` in 8-bit gray, and
`.../metadata/<batch>.npy` with eleven fields an image, of which the first, second and fourth
say where it is and its label. In the release these are text in spite of their name; the
generator itself writes NumPy arrays of strings. Both are read.
"""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from common.errors import DataError
from common.files import name_file_in_errors
from common.progress import progress
from common.untrusted import decode_png, read_regular
from tasks.cache import Build
from tasks.pathfinder.law import Law
from tasks.sources.archives import walk
from tasks.sources.copies import copy_order, note_copies
from tasks.sources.exports import MARK

logger = logging.getLogger(__name__)

IMAGES_A_BATCH = 1000
MOST_SKIPPED = 0.01
"""Share of the images that may be unreadable; with more, the release is refused."""

LARGEST_FILE = 16 * 2**20
"""Bytes that a file of an archive may have."""

METADATA_INSIDE, IMAGES_INSIDE = "metadata/*.npy", "imgs/*/*.png"

_METADATA = rf"metadata/\d+\.npy|{MARK}"
"""Names of the files that are read before the images."""
_IMAGE = r"imgs/\d+/sample_\d+\.png"
_LABELS = {"0": 0, "0.0": 0, "1": 1, "1.0": 1}
_FIELDS_READ = 4
_CONTOUR = 5
"""Field that says how many dashes a target contour has."""


@dataclass(frozen=True)
class Listing:
    """The images that the metadata lists, in the order of batches and lines."""

    names: list[str]
    """Names of the images: imgs/<batch>/sample_<i>.png."""
    labels: np.ndarray
    skipped: list[str]
    """Malformed lines, each with its place and fault."""
    contours: set[str]
    """How many dashes target contours have, as the metadata says, where it does."""
    mark: bytes | None
    """Content of the mark of an export of ours; None without one."""

    def __len__(self) -> int:
        """Count the images, with those whose line is malformed."""
        return len(self.names) + len(self.skipped)


def read_release(made: Build, path: Path, prefix: str, size: int) -> Listing:
    """Read a folder of the release, or that folder in an archive, into a cache.

    Saves images (listed, size * size, 1) uint8, labels (listed,) uint8, and the rows of the
    images that could be read, (readable,) int64.

    Args:
        made: the cache to write to.
        path: the folder, or an archive.
        prefix: end of the folder's name in an archive.
        size: rows and columns of an image.
    Returns: what the metadata says.
    Raises: DataError if there is no metadata, for images of another size, and if more than
        MOST_SKIPPED of the images or lines cannot be read.
    """
    folder, listing = _read_metadata(made, path, prefix)
    images = made.mapped("images", (len(listing.names), size * size, 1), np.uint8)
    row_of = {name: row for row, name in enumerate(listing.names)}
    is_found, is_read = np.zeros((2, len(images)), dtype=bool)
    skipped = list(listing.skipped)
    unlisted = 0
    for place, name, content in _files(path, re.escape(folder), IMAGES_INSIDE, _IMAGE):
        row = row_of.get(name)
        if row is None:
            unlisted += 1
            continue
        if is_found[row]:
            raise _occurs_twice(place)
        is_found[row] = True
        if content:
            images[row] = decode_png(content, place, size, "L")
            is_read[row] = True
        else:
            skipped.append(f"{place}: the file is empty")
    lost = int((~is_found).sum())
    skipped += [f"{path}: {lost} images are listed but not there"] if lost else []
    for fault in skipped:
        logger.info(f"skipped {fault}")
    if (~is_read).sum() + len(listing.skipped) > max(1, MOST_SKIPPED * len(images)):
        raise DataError(
            f"{path}: {(~is_read).sum()} of {len(images)} images and {len(listing.skipped)} "
            f"lines of metadata cannot be read, the first: {skipped[0]}; is it complete?"
        )
    made.save("labels", listing.labels)
    made.save("rows", np.flatnonzero(is_read))
    made.skipped += skipped
    made.notes |= {
        "images skipped": int((~is_read).sum()),
        "lines of metadata skipped": len(listing.skipped),
        "images that no metadata lists": unlisted,
    }
    return listing


def _files(path: Path, folder: str, inside: str, names: str) -> Iterator[tuple[str, str, bytes]]:
    """Read the files whose names fit a pattern: each one's place, name and content.

    Args:
        path: a folder or an archive.
        folder: pattern of the folder of the names in an archive, with the slash at its end.
        inside: pattern of the names for a folder, as `walk` takes it.
        names: pattern of the names.
    """
    wanted = re.compile(rf"^{folder}({names})\Z")
    for match, file in walk(path, wanted, inside=inside, largest=LARGEST_FILE):
        yield f"{path}/{match.string}", match[1], file.read()


def _occurs_twice(place: str) -> DataError:
    return DataError(
        f"{place} occurs more than once; unpack the archive, and keep one folder of these images"
    )


def _metadata_files(path: Path, prefix: str) -> dict[str, dict[str, tuple[str, bytes]]]:
    """Read the metadata of every copy: place and content by name, by the folder in the archive.

    Raises: DataError for a file that is in a folder twice.
    """
    found: dict[str, dict[str, tuple[str, bytes]]] = {}
    folder = "" if path.is_dir() else f"(?:.*/)?{re.escape(prefix)}/"
    for place, name, content in _files(path, folder, METADATA_INSIDE, _METADATA):
        files = found.setdefault(place.removeprefix(f"{path}/").removesuffix(name), {})
        if name in files:
            raise _occurs_twice(place)
        files[name] = (place, content)
    if (path / MARK).is_file():
        found.setdefault("", {})[MARK] = (f"{path / MARK}", read_regular(path / MARK))
    return {folder: files for folder, files in found.items() if files.keys() - {MARK}}


def _read_metadata(made: Build, path: Path, prefix: str) -> tuple[str, Listing]:
    """Read what the metadata says, of the copy to read, and note the other copies.

    Returns: the folder of the copy in an archive, with the slash at its end, and the listing.
    """
    copies = _metadata_files(path, prefix)
    folder, *others = sorted(copies, key=copy_order) or [""]
    note_copies(made, path / folder, [path / other for other in others])
    files = copies.get(folder, {})
    _, mark = files.pop(MARK, ("", None))
    in_order = sorted(files, key=lambda name: (int(PurePosixPath(name).stem), name))
    names: list[str] = []
    contours: set[str] = set()
    labels = bytearray()
    skipped: list[str] = []
    for place, content in (files[name] for name in in_order):
        for number, fields in enumerate(_rows(content, place), start=1):
            if len(fields) < _FIELDS_READ or fields[3] not in _LABELS:
                skipped.append(f"{place}:{number}: got {' '.join(fields)[:60]!r}, expected folder, "
                               f"file, number, label 0 or 1")  # fmt: skip
                continue
            names.append(f"{fields[0]}/{fields[1]}")
            labels.append(_LABELS[fields[3]])
            contours |= {field.removesuffix(".0") for field in fields[_CONTOUR : _CONTOUR + 1]}
    if not names:
        raise DataError(f"{path}: no metadata lists an image of {prefix}; is it complete?")
    if len(set(names)) < len(names):
        raise DataError(f"{path}: the metadata of {prefix} lists an image twice")
    found = np.frombuffer(bytes(labels), dtype=np.uint8)
    return folder, Listing(names, found, skipped, contours, mark)


def _rows(content: bytes, place: str) -> list[list[str]]:
    """Read the fields of a metadata file, which is text or a NumPy array."""
    if content.startswith(b"\x93NUMPY"):
        try:
            table = np.load(io.BytesIO(content), allow_pickle=False)
        except Exception as error:
            raise DataError(f"{place} is damaged ({type(error).__name__}: {error})") from None
        return [[str(value) for value in row] for row in np.atleast_2d(table)]
    return [line.split() for line in content.decode(errors="replace").splitlines() if line.strip()]


def write_release(
    folder: Path, images: np.ndarray, labels: np.ndarray, rows: np.ndarray, law: Law
) -> None:
    """Write images and their labels in the official file structure.

    Args:
        folder: folder for images of this size and contour.
        images: (n, size * size, 1) uint8.
        labels: (n,) 0 or 1.
        rows: (count,) indices of the images to write.
        law: law of the images; the metadata repeats some of its numbers.
    """
    from PIL import Image

    facts = (
        f"{law.continuity} {law.contour_dashes} {law.distractor_dashes} {law.dash_length} "
        f"{law.thickness} {law.margins[0]} 1"
    )
    (folder / "metadata").mkdir(parents=True, exist_ok=True)
    batches = range(0, len(rows), IMAGES_A_BATCH)
    for batch, first in enumerate(progress(f"writing {folder}", batches, unit="thousand")):
        place = folder / "imgs" / str(batch)
        place.mkdir(parents=True, exist_ok=True)
        lines: list[str] = []
        for i, row in enumerate(rows[first : first + IMAGES_A_BATCH].tolist()):
            pixels = images[row].reshape(law.size, law.size)
            path = place / f"sample_{i}.png"
            with name_file_in_errors(path):
                Image.fromarray(pixels).save(path, compress_level=1)
            lines.append(f"imgs/{batch} sample_{i}.png {i} {labels[row]} {facts}\n")
        path = folder / "metadata" / f"{batch}.npy"
        with name_file_in_errors(path):
            path.write_text("".join(lines), encoding="utf-8")
