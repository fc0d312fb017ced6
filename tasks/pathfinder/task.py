"""Pathfinder: whether one dashed contour joins two markers, read pixel by pixel.

Linsley et al. 2018 (arXiv:1805.08315) as the Long Range Arena takes it (Tay et al. 2021,
arXiv:2011.04006).
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from lra.common.errors import DataError
from lra.common.options import Added
from lra.tasks.base import SPLITS, DataSeed, Dataset, Task, TaskInfo, accuracy_percent, majority
from lra.tasks.baselines import cross_fitted_trees
from lra.tasks.cache import Cache, read_cache
from lra.tasks.goals import ExampleClass
from lra.tasks.pathfinder.files import (
    IMAGES_INSIDE,
    OFFICIAL_COUNT,
    describe_doubt,
    read_release,
    write_release,
)
from lra.tasks.pathfinder.law import CONTOURS, find_law
from lra.tasks.pixels import Pixels, random_split_order, scale
from lra.tasks.preparation import Build, Preparation
from lra.tasks.sources.exports import determine_source, mark_export
from lra.tasks.sources.releases import NEARLY_ARCHIVE, Release, ReleaseCache, choose_source

IMAGES_REDRAWN = 500
"""Number of images that a verification draws a second time, to compare."""
IMAGES_PER_TEST_IMAGE = 10
"""Images in all splits for each image of the test set."""
SIZES = (32, 64, 128, 256)
SIZE_RELEASED_TWICE = 128
"""Size of the images that the official archive holds in two folders, see `copy_order`."""
MIDDLE_GRAY = (127.5, 127.5)
"""Mean and deviation that scale levels to -1 ... 1, as S4's experiments do."""


class Pathfinder(Task):
    """Tell whether two markers are on one contour or on two; a position is a pixel.

    Args:
        source: official files, generated images, or auto: official files if they are there.
        size: pixels per side; if not given, the task's usual size.
        contour: dashes of the contours: 6 easy, 9 intermediate, 14 hard, which is the task of
            the Long Range Arena.
        law: the distribution of generated images: lra for that of the released images, clean for
            one without the border quirk, which lets contours start in few directions only.
        pixels: linear for levels from -1 to 1, embedding for levels as 256 tokens.
        split: how the images are divided into 80, 10 and 10 %: random, by torch's random_split with
            seed 42; or in-order.
        examples: images in all splits; if not given, all, or 200,000 generated ones.
        data_seed: seed of the generator.
        permutation: seed of a random order of the pixels, the same for all images; if not given,
            pixels are in raster order.
    Raises: ValueError if source is official but law or data_seed differ from the official images'.
    """

    name = "pathfinder"
    draws_data = True
    usual_size: ClassVar[int] = 32

    def __init__(
        self,
        *,
        source: Literal["auto", "official", "generate"] = "auto",
        size: Literal[32, 64, 128, 256] | None = None,
        contour: Literal[6, 9, 14] = 14,
        law: Literal["lra", "clean"] = "lra",
        pixels: Literal["linear", "embedding"] = "linear",
        split: Literal["random", "in-order"] = "random",
        examples: Annotated[int, Field(ge=10)] | None = None,
        data_seed: DataSeed = 0,
        permutation: Annotated[DataSeed | None, Added(None)] = None,
    ) -> None:
        is_official = law == "lra" and data_seed == 0
        self.source = choose_source(source, is_official=is_official, options="law and data_seed")
        self.size = size or self.usual_size
        self.contour = contour
        self.law_name = law
        self.law = find_law(self.size, contour, border_quirk=law == "lra")
        self.split = split
        self.examples = examples
        self.data_seed = data_seed
        self.permutation = permutation
        self.folder_name = f"pathfinder{self.size}/{CONTOURS[contour]}"
        self.scale = scale([MIDDLE_GRAY]) if pixels == "linear" else None
        self.info = TaskInfo(
            name=self.name,
            goal=ExampleClass(2),
            max_length=self.size**2,
            vocab_size=256 if self.scale is None else None,
            channels=None if self.scale is None else 1,
            grid=(self.size, self.size),
        )

    def plan(self, data_dir: Path) -> Preparation:
        """See `Task.plan`: the official images, or images that are to be generated."""
        # Earlier caches of the size that the archive holds twice may hold the wrong copy.
        how = "read, inner copy first" if self.size == SIZE_RELEASED_TWICE else "read"
        release = Release(
            task="pathfinder",
            names={
                self.folder_name: "a folder with imgs/ and metadata/",
                "lra_release*gz": "the whole archive, 7.7 GB",
            },
            nearly=NEARLY_ARCHIVE,
            people_get_it="lra_release.gz, of github.com/google-research/long-range-arena, can no "
            "longer be downloaded: ask a colleague for a copy, or use task.source=generate, which "
            "makes images of the same distribution.",
            accept=lambda path: path if path.is_file() or (path / "metadata").is_dir() else None,
            inside=IMAGES_INSIDE,
        )
        files = ReleaseCache(
            release=release,
            data_dir=data_dir,
            name=f"files-{self.size}-{self.contour}",
            option=self.source,
            request={"size": self.size, "contour": self.contour, "source": how},
            read=self._read,
        )
        if files.is_wanted():
            return files
        count = self.examples or OFFICIAL_COUNT
        source = "generated" if self.law_name == "lra" else f"generated, {self.law_name} law"
        return Preparation(
            data_dir=data_dir,
            task="pathfinder",
            name=f"generated-{self.size}-{self.contour}",
            source=source,
            request={
                "source": source,
                "law": {**vars(self.law), "margins": list(self.law.margins)},
                "seed": self.data_seed,
                "examples": count,
            },
            build=self._generate,
            resumes=True,
            description=f"generate {count:,} images of {self.size} x {self.size} pixels",
            bytes=count * self.size**2,
        )

    def _read(self, made: Build, path: Path) -> None:
        listing = read_release(made, path, self.folder_name, self.size)
        self._predict_by_markers(made)
        labels, predictions = made.array("labels"), made.array("marker_predictions")
        doubt = describe_doubt(listing, labels, predictions, self.size)
        determine_source(made, listing.mark, doubt)

    def _generate(self, made: Build) -> None:
        from lra.tasks.pathfinder.draw import generate

        generate(made, self.law, self.data_seed, self.examples or OFFICIAL_COUNT)
        self._predict_by_markers(made)

    def _predict_by_markers(self, made: Build) -> None:
        """Save the label of each image as predicted from the positions of its markers alone."""
        from lra.tasks.pathfinder.markers import find_markers

        images, labels = map(made.array, ("images", "labels"))
        made.sizes["all"] = len(labels)
        markers = find_markers(images, self.size, self.law.marker_radius)
        made.save("marker_predictions", cross_fitted_trees(markers, np.asarray(labels)))

    def open_dataset(self, cache: Cache) -> Dataset:
        """See `Task.open_dataset`."""
        rows, labels = np.asarray(cache.array("rows")), np.asarray(cache.array("labels"))
        rows = rows[: self.examples]
        if len(rows) < (self.examples or IMAGES_PER_TEST_IMAGE):
            wanted = self.examples or f"at least {IMAGES_PER_TEST_IMAGE}"
            raise DataError(
                f"{cache.folder} has {len(rows)} images, expected {wanted}; use another number of "
                f"task.examples, or complete the data"
            )
        images, predictions = cache.array("images"), np.asarray(cache.array("marker_predictions"))
        order = random_split_order(len(rows)) if self.split == "random" else np.arange(len(rows))
        chosen = dict(zip(SPLITS, np.split(rows[order], _split_bounds(len(rows))), strict=True))
        splits = {
            name: Pixels(images, labels[which], which, self.scale, self.permutation)
            for name, which in chosen.items()
        }
        test = splits["test"]
        pixels = "embedding" if self.scale is None else "linear"
        view = {"split": self.split, "pixels": pixels, "examples": self.examples}
        if self.permutation is not None:
            view["permutation"] = self.permutation
        baselines = {
            "majority class": majority(splits["train"].labels, test.labels),
            "marker positions": accuracy_percent(predictions[test.which], test.labels),
        }
        return Dataset.from_cache(cache, splits, view, baselines=baselines)

    @classmethod
    def fresh(
        cls, options: Mapping[str, Any], *, length: int | None, examples: int
    ) -> dict[str, Any]:
        """See `Task.fresh`: new images, of which a tenth is the test set."""
        drawn = {"source": "generate", "data_seed": options["data_seed"] + 1}
        drawn |= {"examples": examples * IMAGES_PER_TEST_IMAGE}
        if length is None:
            return drawn
        side = math.isqrt(length)
        if side**2 != length or side not in SIZES:
            sizes = ", ".join(str(size**2) for size in SIZES)
            raise DataError(f"there are images of {sizes} pixels")
        trained = options["size"] or cls.usual_size
        if options["permutation"] is not None and side != trained:
            raise DataError(
                f"task.permutation is an order of {trained**2} pixels, and the images would have "
                f"{length}; expected a length of {trained**2}"
            )
        return {**drawn, "size": side}

    def check(self, cache: Cache, dataset: Dataset) -> list[str]:
        """See `Task.check`: images drawn a second time."""
        rows = np.asarray(cache.array("rows"))
        labels = np.asarray(cache.array("labels"))[rows]
        checks = [
            f"{len(rows)} images of {self.size} x {self.size} pixels",
            f"{100 * labels.mean():.2f} % have both markers on one contour",
        ]
        if dataset.source.startswith("generated") and not dataset.notes:
            count = self._draw_again(cache)
            checks.append(f"{count} images were drawn again and are the same")
        return checks

    def _draw_again(self, cache: Cache) -> int:
        """Draw some images again, one by one, and compare them with the stored ones."""
        from lra.tasks.pathfinder.draw import draw_images

        images, labels = cache.array("images"), cache.array("labels")
        chosen = np.unique(np.linspace(0, len(labels) - 1, IMAGES_REDRAWN).astype(int))
        image = np.empty((1, self.size, self.size), dtype=np.uint8)
        label = np.empty(1, dtype=np.uint8)
        for index in chosen.tolist():
            draw_images(self.law, self.data_seed, index, image, label)
            same = np.array_equal(image.ravel(), images[index].ravel())
            if not same or label[0] != labels[index]:
                raise DataError(f"{cache.folder}: image {index} is not what its law draws")
        return len(chosen)

    def export(self, dataset: Dataset, folder: Path) -> list[Path]:
        """See `Task.export`."""
        cache = read_cache(dataset.folder)
        images, labels = cache.array("images"), np.asarray(cache.array("labels"))
        rows = np.asarray(cache.array("rows"))
        target = folder / self.folder_name
        mark_export(target, cache.manifest, ["imgs", "metadata"])
        write_release(target, images, labels, rows, self.law)
        return [target]

    def training_examples(self) -> int:
        """See `Task.training_examples`."""
        return _split_bounds(self.examples or OFFICIAL_COUNT)[0]


class PathX(Pathfinder):
    """Pathfinder on 128 x 128 pixels, a sequence of 16,384; images of one size serve both tasks."""

    name = "pathx"
    usual_size = 128


def _split_bounds(count: int) -> list[int]:
    """Return where the validation and the test split begin: after 80 and about 90 %."""
    held = count // IMAGES_PER_TEST_IMAGE
    return [count - 2 * held, count - held]
