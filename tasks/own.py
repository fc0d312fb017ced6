"""Tasks of a user's own: a class that makes examples, with all that the suite adds to it."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from common.errors import DataError
from tasks.base import SPLITS, Dataset, TaskInfo, majority
from tasks.cache import Cache
from tasks.preparation import Build, Preparation, PreparedTask
from tasks.returned import DeclaredInfo, Examples, pack_examples

logger = logging.getLogger(__name__)

DATA_SEED = "data_seed"
LENGTHS = ("length", "max_length", "sequence_length")
"""Options that other lengths of a task may be asked for by, the first one that it has."""
IN_TEST = "val examples that are in the test split, too"
"""Note on a data set: how many validation examples its test split has."""


class OwnTask(PreparedTask):
    """A classification task whose examples a user's class makes.

    Args:
        own: an instance of that class; its method `examples(split, rng)` returns what
            `pack_examples` takes.
        name: what tables call the task.
        code: digest of the class's file.
        options: its options, data_seed included.
        data_seed: seed of the generators that it is given.
        explain_errors: turns what the class raises into an error that names it and the operation.
    Raises: DataError naming an attribute with another value than expected.
    """

    def __init__(
        self,
        own: Any,
        *,
        name: str,
        code: str,
        options: Mapping[str, Any],
        data_seed: int,
        explain_errors: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        self.own = own
        self.task_name = name
        self.request: dict[str, Any] = {"task": name, "code": code, "options": dict(options)}
        self.data_seed = data_seed
        self.explain_errors = explain_errors
        self.was_prepared = False
        self.declared = DeclaredInfo.of(own, name)

    @functools.cached_property
    def info(self) -> TaskInfo:  # pyright: ignore[reportIncompatibleVariableOverride]
        """What the class states of its examples, and what they show."""
        known = self.declared.model_dump(exclude_none=True, exclude={"data_files"})
        kinds = {"vocab_size", "channels"} & known.keys()
        if not ({"num_classes", "max_length"} <= known.keys() and kinds):
            known = {**self._shown(), **known}
        info = TaskInfo(name=self.task_name, **known)
        if info.grid is not None and info.grid[0] * info.grid[1] != info.max_length:
            raise DataError(
                f"{info.name}: a grid of {info.grid[0]} by {info.grid[1]} has other than "
                f"{info.max_length} positions"
            )
        if len(kinds) > 1:
            raise DataError(f"{info.name}: it has vocab_size and channels, expected one of both")
        return info

    def _shown(self) -> dict[str, Any]:
        """Describe the examples: as many classes and tokens as they have."""
        every, first = self.drawn.values(), self.drawn["train"]
        num_classes = 1 + max(int(one.classes.max()) for one in every)
        if num_classes == 1:
            raise DataError(f"{self.task_name}: all labels are 0, expected at least two classes")
        tokens = first.channels is None
        return {
            "num_classes": num_classes,
            "max_length": max(int(one.lengths.max()) for one in every),
            "vocab_size": 1 + max(int(one.values.max()) for one in every) if tokens else None,
            "channels": first.channels,
            "towers": first.towers,
            "targets": first.targets,
        }

    def draw(self, split: str, data_seed: int | None = None) -> Examples:
        """Make the examples of a split, with a generator of this or the options' seed.

        Raises: DataError for what is not examples; what the class raises as `explain_errors` does.
        """
        seed = self.data_seed if data_seed is None else data_seed
        rng = np.random.default_rng([seed, SPLITS.index(split)])
        with self.explain_errors(f"examples({split!r}, rng)"):
            returned = self.own.examples(split, rng)
        try:
            with self.explain_errors("what it returned"):
                return pack_examples(returned, reals=self.declared.channels is not None)
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
            if found[split].digest() == found["train"].digest():
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
            if one.digest() != self.draw(split).digest():
                raise DataError(
                    f"{self.task_name}: drawn twice by the same seed, its {split} split differs; "
                    f"draw by rng alone"
                )
        other = self.draw("test", self.data_seed + 1)
        return self.drawn["test"].digest() != other.digest()

    def count_known(self, split: str, other: str) -> int:
        """Count the examples of a split whose sequences are in another split, too."""
        known = set(self.drawn[other].keys())
        return sum(key in known for key in self.drawn[split].keys())  # noqa: SIM118 (no mapping)

    def plan(self, data_dir: Path) -> Preparation:
        """See `PreparedTask.plan`; the request holds digests of the data files."""
        digests = self.declared.file_digests(self.task_name)
        more = {} if digests is None else {"data_files": digests}
        return self._plan(data_dir, {**self.request, **more})

    def _plan(self, data_dir: Path, request: dict[str, Any]) -> Preparation:
        return Preparation(
            data_dir=data_dir,
            task=self.task_name,
            name="examples",
            source="own",
            request=request,
            build=self._build,
            description="make its examples",
        )

    def prepare(self, data_dir: Path) -> Dataset:
        """See `Task.prepare`.

        A class that does not name its data files draws its examples each time. If they differ from
        those in the cache, they get a cache of their own.
        """
        if self.was_prepared:
            vars(self).pop("drawn", None)
            vars(self).pop("info", None)
        self.was_prepared = True
        plan = self.plan(data_dir)
        cache = plan.open_or_build()
        if self.declared.data_files is None and not self._holds_drawn(cache):
            logger.info(
                f"{self.task_name}: its examples differ from those in {cache.folder}, so a file "
                f"has changed that it reads; they get a cache of their own"
            )
            digests = {split: one.digest() for split, one in self.drawn.items()}
            plan = self._plan(data_dir, {**plan.request, "examples": digests})
        return self.open_data(plan)

    def _holds_drawn(self, cache: Cache) -> bool:
        """Whether a cache holds the drawn examples."""
        with cache.explain_errors():
            return all(self._cached(cache, split).matches(one) for split, one in self.drawn.items())

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
            self._check_stated(split, one)
            made.sizes[split] = len(one)
            made.save(f"{split}_values", one.values)
            made.save(f"{split}_lengths", one.lengths)
            made.save(f"{split}_labels", one.labels)
            for number, column in enumerate(one.metadata.values()):
                made.save(f"{split}_metadata{number}", column)
        made.save("metadata", np.array(list(self.drawn["train"].metadata), dtype="U"))
        for split in ("val", "test"):
            if count := self.count_known(split, "train"):
                made.notes[f"{split} examples that are in the training split, too"] = count
        if count := self.count_known("val", "test"):
            made.notes[IN_TEST] = count
        labels = {split: one.classes for split, one in self.drawn.items()}
        made.baselines["majority class"] = majority(labels["train"], labels["test"])

    def _check_stated(self, split: str, examples: Examples) -> None:
        """Check that examples are as the class states."""
        try:
            for name in ("targets", "towers", "channels"):
                shown, stated = getattr(examples, name), getattr(self.info, name)
                if shown != stated:
                    raise ValueError(f"{name} is {shown!r}, not {stated!r}")
            examples.split().check(self.info)
        except ValueError as error:
            raise DataError(
                f"{self.task_name}: its {split} examples are not as its class states: {error}"
            ) from None

    def open_dataset(self, cache: Cache) -> Dataset:
        """See `PreparedTask.open_dataset`."""
        splits = {split: self._cached(cache, split).split() for split in SPLITS}
        all_in_test = cache.manifest.notes.get(IN_TEST) == len(splits["val"])
        return cache.dataset(splits, selected_on="test" if all_in_test else "val")

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

    def check(self, cache: Cache, dataset: Dataset) -> list[str]:
        """See `PreparedTask.check`: draws all examples again."""
        for split in SPLITS:
            if self._cached(cache, split).digest() != self.draw(split).digest():
                raise DataError(
                    f"{dataset.folder}: the {split} examples drawn again are others; delete that "
                    f"folder to make it anew, and draw by rng alone"
                )
        return [f"{sum(dataset.sizes.values())} examples were drawn again and are the same"]

    def training_examples(self) -> int | None:
        """See `Task.training_examples`: None for a class that states all, until it has drawn."""
        _ = self.info  # draws the examples that it needs
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
