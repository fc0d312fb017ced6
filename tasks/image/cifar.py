"""The files of CIFAR-10, pickles of arrays or tables of PNG files, and gray from colour."""

import hashlib
import io
import pickle
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from lra.common.errors import DataError
from lra.common.untrusted import decode_png, explain_errors
from lra.tasks.sources.archives import walk
from lra.tasks.sources.parquet import SPLITS, read_examples
from lra.tasks.sources.prepared import is_prepared, order_as_prepared, read_prepared

TRAIN_FILES = 5
SIDE = 32
POSITIONS = SIDE * SIDE
NUM_CLASSES = 10

BATCH = 10_000
"""Images in a batch of the release."""
OFFICIAL_BATCHES = {
    "train": [
        "e05b0e581f04ec2a445e6fdec018bd54",
        "482a89113bbd4710f06b628525d44424",
        "5723fdd1d54f5851a328237f616f123d",
        "06dc13dcde5432b1e9eaf0c2068ee906",
        "de1090bd34a535d3131ceda25ebc7676",
    ],
    "test": ["899683d46c3a8c66fd56e1af12202e69"],
}
"""What `batch_digests` computes for the release."""

LARGEST_BATCH = 64 * 2**20
"""Most bytes that a batch may have."""
INSIDE = "*_batch*"
"""Pattern of the names of batches in a folder."""
FILE = re.compile(r"(?:^|/)(?:data_batch_([1-9])|test_batch)$")


def read_batches(path: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Read all batches of a folder, an archive or tables, in the order of their numbers.

    Returns: images (n, 1024, 3) uint8 and labels (n,) uint8, by the names train and test.
    Raises: DataError if a batch is missing, is damaged, or occurs twice.
    """
    if path.suffix == ".parquet" or is_prepared(path):
        return _read_examples_of_splits(path)
    batches: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for match, file in walk(path, FILE, inside=INSIDE, largest=LARGEST_BATCH):
        batches[int(match[1] or 0)] = _read_batch(file, f"{path}/{match.string}")
    numbers = {"train": range(1, TRAIN_FILES + 1), "test": range(1)}
    missing = [i for those in numbers.values() for i in those if i not in batches]
    if missing:
        names = ", ".join(f"data_batch_{i}" if i else "test_batch" for i in missing)
        raise DataError(f"{path} lacks {names}; is it complete?")
    return {
        name: (
            np.concatenate([batches[i][0] for i in those]),
            np.concatenate([batches[i][1] for i in those]),
        )
        for name, those in numbers.items()
    }


def _read_examples_of_splits(path: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Read Parquet files, or what TFDS has prepared.

    Hugging Face has the training batches in the order of the official archive, with the fourth
    first. Batches of the release are put in the order of their numbers. TFDS sorts all images of a
    split by their numbers.
    """
    splits: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for split in SPLITS:
        pixels: list[np.ndarray] = []
        classes: list[int] = []
        if is_prepared(path):
            prepared = read_prepared(path, split, images="image")
            examples = ((example["image"], example["label"]) for example in prepared)
        else:
            examples = read_examples(path, split, "img", NUM_CLASSES)
        for content, label in examples:
            shown = f"{path.parent}: image {len(pixels)} of {split}"
            pixels.append(decode_png(content, shown, SIDE, "RGB"))
            classes.append(label)
        images = np.array(pixels, dtype=np.uint8).reshape(-1, POSITIONS, 3)
        splits[split] = images, np.array(classes, dtype=np.uint8)
        if is_prepared(path):
            rows = np.argsort(order_as_prepared(split, range(len(images))))
            splits[split] = images[rows], splits[split][1][rows]
    images, labels = splits["train"]
    digests, official = batch_digests(images, labels), OFFICIAL_BATCHES["train"]
    if sorted(digests) == sorted(official):
        order = [digests.index(digest) for digest in official]
        rows = np.concatenate([np.arange(i * BATCH, (i + 1) * BATCH) for i in order])
        splits["train"] = images[rows], labels[rows]
    return splits


class _ArrayUnpickler(pickle.Unpickler):
    """Unpickles arrays, and refuses a pickle that asks for anything else: no code of it runs."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        """Look up one of the few names that arrays need."""
        if (module_name, global_name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module_name}.{global_name}; refused")
        return _ALLOWED[module_name, global_name]


_RECONSTRUCT = np.zeros(0).__reduce__()[0]
_ALLOWED: Mapping[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("_codecs", "encode"): str.encode,  # of bytes that newer versions of Python write as text
}


def _read_batch(file: IO[bytes], shown: str) -> tuple[np.ndarray, np.ndarray]:
    """Read images (n, 1024, 3) uint8, whose pixels the file has plane by plane, and labels (n,)."""
    with explain_errors(shown, "is it a complete batch of CIFAR-10?"):
        batch = _ArrayUnpickler(io.BytesIO(file.read()), encoding="bytes").load()
        data, labels = np.asarray(batch[b"data"]), np.asarray(batch[b"labels"])
        if data.dtype != np.uint8 or data.shape != (len(labels), 3 * POSITIONS):
            raise ValueError(f"{data.dtype} data of shape {data.shape}, {len(labels)} labels")
        if labels.dtype.kind not in "iu" or labels.ndim != 1:
            raise ValueError(f"labels are {labels.dtype} of shape {labels.shape}")
    wrong = np.flatnonzero((labels < 0) | (labels >= NUM_CLASSES))
    if len(wrong):
        raise DataError(
            f"{shown}: image {wrong[0]} has label {labels[wrong[0]]}, expected 0 to "
            f"{NUM_CLASSES - 1}"
        )
    images = np.ascontiguousarray(data.reshape(-1, 3, POSITIONS).transpose(0, 2, 1))
    return images, labels.astype(np.uint8)


def batch_digests(images: np.ndarray, labels: np.ndarray) -> list[str]:
    """Compute a digest of each batch of images that does not depend on their order in it."""
    digests = [
        hashlib.sha256(bytes([label]) + image.tobytes()).digest()
        for image, label in zip(images, labels.tolist(), strict=True)
    ]
    batches = (digests[start : start + BATCH] for start in range(0, len(digests), BATCH))
    return [hashlib.sha256(b"".join(sorted(batch))).hexdigest()[:32] for batch in batches]


def pillow_gray(images: np.ndarray) -> np.ndarray:
    """Compute gray as Pillow's mode L does: (..., 3) uint8 -> (..., 1) uint8.

    Gray is then the ITU-R 601-2 luma in 16-bit fixed point, rounded.
    """
    weighted = images.astype(np.uint32) @ np.array([19595, 38470, 7471], dtype=np.uint32)
    return ((weighted + 0x8000) >> 16).astype(np.uint8)[..., None]


def tensorflow_gray(images: np.ndarray) -> np.ndarray:
    """Compute gray as TensorFlow's rgb_to_grayscale does: (..., 3) uint8 -> (..., 1) uint8.

    Levels become single-precision numbers up to 1, are weighted, multiplied by 255.5 and truncated.
    """
    scaled = images.astype(np.float32) * np.float32(1 / 255)
    weighted = scaled @ np.array([0.2989, 0.5870, 0.1140], dtype=np.float32)
    return (weighted * np.float32(255.5)).astype(np.uint8)[..., None]


CHANNELS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "pillow": pillow_gray,
    "tensorflow": tensorflow_gray,
    "colour": lambda images: images,
}
"""What each value of the option `channels` does to images in colour."""
