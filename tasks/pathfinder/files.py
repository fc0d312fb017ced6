"""Pathfinder's images in the official file structure, that of the Long Range Arena release.

`pathfinder<size>/<level>/imgs/<batch>/sample_<i>.png` in 8-bit gray, and
`.../metadata/<batch>.npy` with eleven fields an image, of which the first, second and fourth
say where it is and its label. These are text in spite of their name.
"""

import contextlib
import logging
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import numpy as np

from lra.common.errors import DataError
from lra.common.files import name_file_in_errors, reserve
from lra.common.progress import progress
from lra.common.untrusted import decode_png, read_regular
from lra.tasks.pathfinder.law import Law
from lra.tasks.preparation import Build
from lra.tasks.sources.archives import walk
from lra.tasks.sources.exports import MARK
from lra.tasks.sources.releases import copy_order, note_copies

logger = logging.getLogger(__name__)

OFFICIAL_COUNT = 200_000
"""Images of a size and a level."""
IMAGES_A_BATCH = 1000
MOST_SKIPPED = 0.01
"""Share of the images that may be unreadable; with more, the release is refused."""
LEAST_GAIN = 0.02
"""Share of labels by which predictions from the places of the markers must be better than always
answering the commonest label. On 200,000 generated images the gain is .17 at 32 pixels and .07 at
128 (14 dashes); without any dependence it is 0, give or take .003."""
LARGEST_CHECKED = 128
"""Largest size at which labels are compared with markers; at 256 the gain was never measured."""
LARGEST_FILE = 16 * 2**20
"""Bytes that a file of an archive may have."""
METADATA_INSIDE, IMAGES_INSIDE = "metadata/*.npy", "imgs/*/*.png"

_METADATA = rf"metadata/\d+\.npy|{MARK}"
_IMAGE = r"imgs/\d+/sample_\d+\.png"
_LABELS = {"0": 0, "0.0": 0, "1": 1, "1.0": 1}
_FIELDS_READ = 4


def map_in_place(folder: Path, name: str, shape: tuple[int, ...], dtype: type) -> np.memmap:
    """Map an array of a fixed size, to be written in place; its space on the disk is taken.

    What an interrupted preparation left of it is used again; a new array holds zeros.

    Raises: OSError naming the file where the disk lacks that space.
    """
    path = folder / f"{name}.npy"
    if path.is_file():
        with contextlib.suppress(ValueError):  # the file is incomplete
            existing = np.lib.format.open_memmap(path, mode="r+")
            if (existing.shape, existing.dtype) == (shape, np.dtype(dtype)):
                reserve(path)
                return existing
    with name_file_in_errors(path):
        array = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
    reserve(path)
    return array


@dataclass
class Listing:
    """The images that the metadata lists."""

    folder: str
    """Where they are in the archive, with the slash at its end."""
    mark: bytes | None
    """Content of the mark of an export of ours; None without one."""
    labels: dict[str, int] = field(default_factory=dict)
    """Labels by the names of the images, imgs/<batch>/sample_<i>.png."""
    skipped: list[str] = field(default_factory=list)
    """Malformed lines, each with its place."""


def read_release(made: Build, path: Path, prefix: str, size: int) -> Listing:
    """Read a folder of the release, or that folder in an archive, into a cache.

    Saves images (listed, size * size, 1) uint8, labels (listed,) uint8, and the rows of the
    images that could be read, (readable,) int64.

    Returns: what the metadata says.
    Raises: DataError if there is no metadata, for images of another size, and if more than
        MOST_SKIPPED of the images or lines cannot be read.
    """
    listing = _read_metadata(made, path, prefix)
    row_of = {name: row for row, name in enumerate(listing.labels)}
    images = map_in_place(made.folder, "images", (len(row_of), size * size, 1), np.uint8)
    is_read = np.zeros(len(images), dtype=bool)
    for shown, _, name, content in _walk(path, re.escape(listing.folder), IMAGES_INSIDE, _IMAGE):
        row = row_of.get(name)
        if row is not None and content:
            images[row] = decode_png(content, shown, size, "L")
            is_read[row] = True
    lost = [name for name, row in row_of.items() if not is_read[row]]
    made.notes |= {"images skipped": len(lost), "lines of metadata skipped": len(listing.skipped)}
    skipped = [*listing.skipped, *(f"{path}: {name[:99]!r} is missing or empty" for name in lost)]
    if len(skipped) > max(1, MOST_SKIPPED * len(images)):
        raise DataError(
            f"{path}: {len(lost)} of {len(images)} images and {len(listing.skipped)} lines of "
            f"metadata cannot be read, the first: {skipped[0]}; is it complete?"
        )
    for fault in skipped:
        logger.info(f"skipped {fault}")
    made.skipped += skipped
    made.save("labels", np.array([*listing.labels.values()], dtype=np.uint8))
    made.save("rows", np.flatnonzero(is_read))
    return listing


def _walk(
    path: Path, folder: str, inside: str, names: str
) -> Iterator[tuple[str, str, str, bytes]]:
    """Read the files whose folder and name fit patterns: their place, folder, name and content."""
    wanted = re.compile(rf"^({folder})({names})\Z")
    for match, file in walk(path, wanted, inside=inside, largest=LARGEST_FILE):
        yield f"{path}/{match.string}", match[1], match[2], file.read()


def _read_metadata(made: Build, path: Path, prefix: str) -> Listing:
    """Read what the metadata says, of the copy to read, and note the other copies."""
    copies: dict[str, dict[str, bytes]] = {}
    pattern = "" if path.is_dir() else f"(?:.*/)?{re.escape(prefix)}/"
    for _, folder, name, content in _walk(path, pattern, METADATA_INSIDE, _METADATA):
        copies.setdefault(folder, {})[name] = content
    if (path / MARK).is_file():
        copies.setdefault("", {})[MARK] = read_regular(path / MARK)
    with_metadata = [folder for folder, files in copies.items() if files.keys() - {MARK}]
    folder, *others = sorted(with_metadata, key=copy_order) or [""]
    note_copies(made, path / folder, [path / other for other in others])
    files = copies.get(folder, {})
    listing = Listing(folder, files.pop(MARK, None))
    for name in sorted(files, key=lambda name: (int(PurePosixPath(name).stem), name)):
        shown = f"{path}/{folder}{name}"
        for number, line in enumerate(files[name].decode(errors="replace").splitlines(), start=1):
            fields = line.split()
            image = "/".join(fields[:2])
            is_sound = len(fields) >= _FIELDS_READ and fields[3] in _LABELS
            if not is_sound or image in listing.labels:
                listing.skipped.append(
                    f"{shown}:{number}: got {' '.join(fields)[:60]!r}, expected folder, file, "
                    f"number, label 0 or 1, each image once"
                )
                continue
            listing.labels[image] = _LABELS[fields[3]]
    if not listing.labels:
        raise DataError(f"{path}: no metadata lists an image of {prefix}; is it complete?")
    return listing


def write_release(
    folder: Path, images: np.ndarray, labels: np.ndarray, rows: np.ndarray, law: Law
) -> None:
    """Write some rows, (count,), of images and labels in the official file structure."""
    from PIL import Image

    facts = (
        f"{law.continuity} {law.contour_dashes} {law.distractor_dashes} {law.dash_length} "
        f"{law.thickness} {law.margins[0]} 1"
    )
    (folder / "metadata").mkdir(parents=True, exist_ok=True)
    batches = range(0, len(rows), IMAGES_A_BATCH)
    for batch, first in enumerate(progress(f"writing {folder}", batches, unit="thousand")):
        batch_folder = folder / "imgs" / str(batch)
        batch_folder.mkdir(parents=True, exist_ok=True)
        lines: list[str] = []
        for i, row in enumerate(rows[first : first + IMAGES_A_BATCH].tolist()):
            pixels = images[row].reshape(law.size, law.size)
            path = batch_folder / f"sample_{i}.png"
            with name_file_in_errors(path):
                Image.fromarray(pixels).save(path, compress_level=1)
            lines.append(f"imgs/{batch} sample_{i}.png {i} {labels[row]} {facts}\n")
        path = folder / "metadata" / f"{batch}.npy"
        with name_file_in_errors(path):
            path.write_text("".join(lines), encoding="utf-8")


def describe_doubt(listing: Listing, labels: np.ndarray, predictions: np.ndarray, size: int) -> str:
    """Say what speaks against images being the official ones; empty if nothing.

    Predictions, (n,), are the labels as predicted from the places of the markers alone.
    """
    if (count := len(listing.labels) + len(listing.skipped)) != OFFICIAL_COUNT:
        return f"it lists {count:,} images, the release {OFFICIAL_COUNT:,}"
    return describe_unrelated_labels(labels, predictions, size)


def describe_unrelated_labels(labels: np.ndarray, predictions: np.ndarray, size: int) -> str:
    """Say that labels (n,) do not depend on where the markers are; empty if they do.

    On the official images they do: the two tips of one contour lie otherwise than those of two. A
    set whose labels belong to other images is known by that. Four standard deviations of chance
    are allowed for, so that few images raise no alarm.
    """
    right, positive = float(np.mean(labels == predictions)), float(np.mean(labels))
    commonest = max(positive, 1 - positive)
    is_better = right - commonest > LEAST_GAIN - 2 / math.sqrt(len(labels))
    if is_better or size > LARGEST_CHECKED:
        return ""
    return (
        f"its labels do not belong to its images: from the places of the markers {right:.1%} of "
        f"them are predicted, by always answering the commonest one {commonest:.1%}"
    )
