"""Tasks of a user's own: a class that makes examples, with all that the suite adds to it."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from tasks.base import MOST_CLASSES, Dataset, Task, TaskInfo, check_dataset
from tasks.baselines import majority
from tasks.cache import Build, Cache, cache_folder, open_or_build, read_cache
from tasks.errors import DataError
from tasks.examples import Examples, pack_examples

logger = logging.getLogger(__name__)

SPLITS = ("train", "val", "test")
DATA_SEED = "data_seed"
DataSeed = Annotated[int, Field(ge=0, lt=2**63)]
LENGTHS = ("length", "max_length", "sequence_length")
"""Options that other lengths of a task may be asked for by, the first one that it has."""


class ExampleMaker(Protocol):
    """What a task of a user's own is."""

    def examples(self, split: str, rng: np.random.Generator) -> object:
        """Make the examples of a split: train, val or test.

        Returns: (sequences, labels) or (sequences, labels, metadata); see `pack_examples`.
        """
        ...


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


class OwnTask(Task):
    """A classification task whose examples a user's class makes.

    Args:
        own: an instance of that class.
        name: what tables call the task.
        code: digest of the class's file.
        options: its options, data_seed included.
        data_seed: seed of the generators that it is given.
        explain_errors: turns what the class raises into an error that names it and the operation.
    """

    def __init__(
        self,
        own: ExampleMaker,
        *,
        name: str,
        code: str,
        options: Mapping[str, Any],
        data_seed: int,
        explain_errors: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        self.own = own
        self.task_name = name
        self.request = {"task": name, "code": code, "options": dict(options)}
        self.data_seed = data_seed
        self.explain_errors = explain_errors
        self.info = self._info()

    def _info(self) -> TaskInfo:
        """What the class states of its examples, and what they show."""
        declared = self._declared()
        known = declared.model_dump(exclude_none=True)
        has_inputs = declared.vocab_size is not None or declared.channels is not None
        if declared.num_classes is None or declared.max_length is None or not has_inputs:
            known = {**self._shown(), **known}
        info = TaskInfo(name=self.task_name, **known)
        if info.grid is not None and info.grid[0] * info.grid[1] != info.max_length:
            raise DataError(
                f"{self.task_name}: a grid of {info.grid[0]} by {info.grid[1]} has other than "
                f"{info.max_length} positions"
            )
        return info

    def _declared(self) -> DeclaredInfo:
        given = {name: getattr(self.own, name, None) for name in DeclaredInfo.model_fields}
        try:
            return DeclaredInfo.model_validate(given)
        except ValidationError as error:
            first = error.errors()[0]
            raise DataError(
                f"{self.task_name}: its attribute {first['loc'][0]} is {first['input']!r}: "
                f"{first['msg']}"
            ) from None

    def _shown(self) -> dict[str, Any]:
        """Describe the examples: as many classes and tokens as they have."""
        every = self.drawn.values()
        found: dict[str, Any] = {
            "num_classes": 1 + max(int(one.classes.max()) for one in every),
            "max_length": max(int(one.lengths.max()) for one in every),
        }
        if found["num_classes"] == 1:
            raise DataError(f"{self.task_name}: all labels are 0, expected at least two classes")
        first = self.drawn["train"]
        if first.channels is None:
            found["vocab_size"] = 1 + max(int(one.values.max()) for one in every)
        kind = {"channels": first.channels, "towers": first.towers, "targets": first.targets}
        return found | kind

    def draw(self, split: str, data_seed: int | None = None) -> Examples:
        """Make the examples of a split, with a generator of its own.

        Args:
            data_seed: of the generator; None: that of the options.
        Raises: DataError for what is not examples; what the class raises as `explain_errors` does.
        """
        seed = self.data_seed if data_seed is None else data_seed
        rng = np.random.default_rng([seed, SPLITS.index(split)])
        with self.explain_errors(f"examples({split!r}, rng)"):
            returned = self.own.examples(split, rng)
        try:
            with self.explain_errors("what it returned"):
                return pack_examples(returned)
        except DataError as error:
            raise DataError(f"{self.task_name}: examples({split!r}, rng): {error}") from None

    @functools.cached_property
    def drawn(self) -> dict[str, Examples]:
        """The examples of all splits.

        Raises: DataError also for splits that differ in kind or are the same.
        """
        found = {split: self.draw(split) for split in SPLITS}
        kinds = {
            (one.channels, one.towers, one.targets, tuple(one.metadata)) for one in found.values()
        }
        if len(kinds) > 1:
            raise DataError(
                f"{self.task_name}: its splits differ in channels, towers, targets or metadata: "
                f"{sorted(map(str, kinds))}"
            )
        for split in ("val", "test"):
            if found[split].same(found["train"]):
                raise DataError(
                    f"{self.task_name}: its {split} split is its training split; examples(split, "
                    f"rng) must draw by rng, or heed split"
                )
        return found

    def seed_has_effect(self) -> bool:
        """Whether another seed gives other test examples.

        Raises: DataError if the same seed gives other examples of any split.
        """
        for split, one in self.drawn.items():
            if not one.identical(self.draw(split)):
                raise DataError(
                    f"{self.task_name}: drawn twice by the same seed, its {split} split differs; "
                    f"draw by rng alone"
                )
        return not self.drawn["test"].same(self.draw("test", self.data_seed + 1))

    def count_known_in_training(self, split: str) -> int:
        """Count the examples of a split whose sequences are in the training split, too."""
        training = set(self.drawn["train"].keys())
        return sum(key in training for key in self.drawn[split].keys())  # noqa: SIM118 (no mapping)

    def _folder(self, data_dir: Path) -> Path:
        return cache_folder(data_dir, self.task_name, "examples", self.request)

    def describe_preparation(self, data_dir: Path) -> str:
        """See `Task.describe_preparation`."""
        return "" if self._folder(data_dir).exists() else "make its examples"

    def prepare(self, data_dir: Path) -> Dataset:
        """See `Task.prepare`."""
        cache = open_or_build(
            self._folder(data_dir),
            task=self.task_name,
            source="own",
            request=self.request,
            build=self._build,
        )
        with cache.explain_errors():
            return check_dataset(self._dataset(cache), self.info)

    def _build(self, made: Build) -> None:
        if not self.seed_has_effect():
            fixed = (
                f"{self.task_name}: task.data_seed has no effect: examples(split, rng) does not "
                f"draw by rng"
            )
            if self.data_seed != 0:
                raise DataError(f"{fixed}; leave it out")
            logger.info(fixed)
        for split, one in self.drawn.items():
            try:
                if one.targets != self.info.targets:
                    raise ValueError(f"targets is {one.targets!r}, not {self.info.targets!r}")
                one.split().check(self.info)
            except ValueError as error:
                raise DataError(
                    f"{self.task_name}: its {split} examples are not as its class states: {error}"
                ) from None
            made.sizes[split] = len(one)
            made.save(f"{split}_values", one.values)
            made.save(f"{split}_lengths", one.lengths)
            made.save(f"{split}_labels", one.labels)
            for number, column in enumerate(one.metadata.values()):
                made.save(f"{split}_metadata{number}", column)
        made.save("metadata", np.array(list(self.drawn["train"].metadata), dtype="U"))
        for split in ("val", "test"):
            if count := self.count_known_in_training(split):
                made.notes[f"{split} examples that are in the training split, too"] = count
        labels = {split: one.classes for split, one in self.drawn.items()}
        made.baselines["majority class"] = majority(labels["train"], labels["test"])

    def _dataset(self, cache: Cache) -> Dataset:
        return Dataset(
            splits={split: self._cached(cache, split).split() for split in SPLITS},
            source=cache.manifest.source,
            fingerprint=cache.fingerprint,
            baselines=cache.manifest.baselines,
            folder=cache.folder,
            notes=cache.manifest.notes,
        )

    def _cached(self, cache: Cache, split: str) -> Examples:
        names = cache.array("metadata").tolist()
        columns = [cache.array(f"{split}_metadata{number}") for number in range(len(names))]
        return Examples(
            values=cache.array(f"{split}_values"),
            lengths=cache.array(f"{split}_lengths"),
            labels=cache.array(f"{split}_labels"),
            targets="token" if self.info.targets == "token" else "example",
            towers=self.info.towers,
            metadata=dict(zip(names, columns, strict=True)),
        )

    def verify(self, dataset: Dataset) -> list[str]:
        """See `Task.verify`: checks checksums, and draws all examples again."""
        cache = read_cache(dataset.folder)
        cache.check_files(checksums=True)
        total = 0
        for split in SPLITS:
            if not self._cached(cache, split).identical(self.draw(split)):
                raise DataError(
                    f"{dataset.folder}: the {split} examples drawn again are others; delete that "
                    f"folder to make it anew, and draw by rng alone"
                )
            total += len(dataset.splits[split])
        return [
            "sizes and checksums of all files match the manifest",
            f"{total} examples were drawn again and are the same",
        ]

    def export(self, dataset: Dataset, folder: Path) -> list[Path]:
        """See `Task.export`: there is no official file structure."""
        raise DataError(
            f"{folder}: {self.task_name} has no official file structure; its arrays are in "
            f"{dataset.folder}"
        )

    def training_examples(self) -> int | None:
        """See `Task.training_examples`: None unless they have been drawn already."""
        drawn: dict[str, Examples] | None = vars(self).get("drawn")
        return None if drawn is None else len(drawn["train"])

    @classmethod
    def fresh(
        cls, options: Mapping[str, Any], *, length: int | None, examples: int
    ) -> dict[str, Any]:
        """See `Task.fresh`: asks by the task's own option of a length."""
        if length is None:
            return {}
        for name in LENGTHS:
            if name in options:
                return {name: length}
        raise DataError(f"the task has no option {', '.join(LENGTHS)} to ask for other lengths by")

    def split_sizes(self, examples: int) -> dict[str, int]:
        """See `Task.split_sizes`: its class decides."""
        raise DataError(f"{self.task_name} itself says how many examples it has; see its options")
