"""Tasks of a user's own: a class that makes examples, with all that the suite adds to it."""

import functools
import hashlib
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FilePath,
    InstanceOf,
    NonNegativeInt,
    PositiveInt,
    ValidationError,
)

from lra.common.errors import DataError, format_value
from lra.tasks.base import MOST_CLASSES, SPLITS, Dataset, Task, TaskInfo, majority
from lra.tasks.cache import Cache, file_facts
from lra.tasks.goals import ExampleClass, ExampleNumbers, PositionLabels
from lra.tasks.preparation import Build, Preparation
from lra.tasks.returned import build_split, describe_kind, is_same, list_arrays, pack_examples
from lra.tasks.splits import PackedSequences

logger = logging.getLogger(__name__)

DATA_SEED = "data_seed"
LENGTHS = ("length", "max_length", "sequence_length")
"""Options that other lengths of a task may be asked for by, the first one that it has."""
IN_TEST = "val examples that are in the test split, too"
"""Note on a data set: how many validation examples its test split has."""
OwnGoal = InstanceOf[ExampleClass] | InstanceOf[PositionLabels] | InstanceOf[ExampleNumbers]
"""Type of the goals whose labels `examples` can return."""


def _list_paths(files: Any) -> list[Path] | None:
    paths = [files] if isinstance(files, (str, Path)) else files
    return None if paths is None else [Path(path) for path in paths]


class DeclaredInfo(BaseModel):
    """What a class may state of its examples, as attributes; else it is read off them."""

    model_config = ConfigDict(strict=True, from_attributes=True)

    num_classes: Annotated[int, Field(ge=2, le=MOST_CLASSES)] | None = None
    max_length: PositiveInt | None = None
    vocab_size: PositiveInt | None = None
    channels: PositiveInt | None = None
    towers: Annotated[int, Field(ge=1, le=2)] | None = None
    grid: tuple[PositiveInt, PositiveInt] | None = None
    goal: OwnGoal | None = None
    data_files: Annotated[list[FilePath] | None, BeforeValidator(_list_paths)] = None
    """Files that `examples` reads."""
    data_bytes: NonNegativeInt = 0
    """Size of the examples, about, where it is known before they are made."""


class OwnTask(Task):
    """A classification task whose examples a user's class makes.

    Args:
        instance: of that class; its method `examples(split, rng)` returns what `pack_examples`
            takes.
        name: what tables call the task.
        code: digest of the class's file.
        options: its options, and the seed of the generators that it is given, data_seed.
        explain_errors: turns what the class raises into an error that names it and the operation.
    Raises: DataError naming an attribute with another value than expected.
    """

    def __init__(
        self,
        instance: Any,
        *,
        name: str,
        code: str,
        options: Mapping[str, Any],
        explain_errors: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        self.instance = instance
        self.task_name = name
        self.request: dict[str, Any] = {"task": name, "code": code, "options": dict(options)}
        self.data_seed: int = options[DATA_SEED]
        self.explain_errors = explain_errors
        self.was_prepared = False
        try:
            self.declared = DeclaredInfo.model_validate(instance)
        except ValidationError as error:
            first = error.errors()[0]
            value = str(first["input"]) if isinstance(first["input"], Path) else first["input"]
            raise DataError(
                f"{name}: its attribute {first['loc'][0]} is {format_value(value)}: {first['msg']}"
            ) from None

    @functools.cached_property
    def info(self) -> TaskInfo:  # pyright: ignore[reportIncompatibleVariableOverride]
        """What the class states of its examples, and what they show."""
        known = {name: value for name, value in self.declared if value is not None}
        known = {name: value for name, value in known.items() if not name.startswith("data_")}
        classes = known.pop("num_classes", None)
        kinds = {"vocab_size", "channels"} & known.keys()
        if len(kinds) > 1:
            raise DataError(
                f"{self.task_name}: it has vocab_size and channels, expected one of both"
            )
        if not ("max_length" in known and kinds and (classes or "goal" in known)):
            splits, kind = self.drawn.values(), describe_kind(self.drawn["train"])
            if kind["channels"] is None:
                kind["vocab_size"] = 1 + max(int(split.sequences.tokens.max()) for split in splits)
            labels = [split.labels for split in splits]
            kind["goal"] = kind["goal"](classes) if classes else kind["goal"].infer(labels)
            kind["max_length"] = max(int(split.lengths.max()) for split in splits)
            known = {**kind, **known}
        info = TaskInfo(name=self.task_name, **{"goal": ExampleClass(classes or 1), **known})
        if info.goal.outputs < info.goal.least_outputs:
            raise DataError(f"{self.task_name}: all labels are 0, expected at least two classes")
        if info.grid is not None and info.grid[0] * info.grid[1] != info.max_length:
            raise DataError(
                f"{info.name}: a grid of {info.grid[0]} by {info.grid[1]} has other than "
                f"{info.max_length} positions"
            )
        return info

    def draw(self, split: str) -> PackedSequences:
        """Make the examples of a split.

        Raises: DataError for what is not examples; what the class raises as `explain_errors` does.
        """
        rng = np.random.default_rng([self.data_seed, SPLITS.index(split)])
        call = f"examples({split!r}, rng)"
        try:
            with self.explain_errors(call):
                return pack_examples(
                    self.instance.examples(split, rng),
                    reals=self.declared.channels is not None,
                    goal=self.declared.goal and type(self.declared.goal),
                )
        except DataError as error:
            raise DataError(f"{self.task_name}: {call}: {error}") from None

    @functools.cached_property
    def drawn(self) -> dict[str, PackedSequences]:
        """The examples of all splits."""
        return {split: self.draw(split) for split in SPLITS}

    def check_drawn(self) -> None:
        """Check that examples are as stated, draw by the seed alone, and are not those of training.

        Raises: DataError naming the split.
        """
        train = self.drawn["train"]
        for name, split in self.drawn.items():
            origin = f"{self.task_name}: its {name} split"
            info, kind, fields = self.info, describe_kind(split), [*split.fields]
            stated = {"channels": info.channels, "towers": info.towers, "goal": type(info.goal)}
            if kind != stated or fields != [*train.fields]:
                raise DataError(
                    f"{origin} has {_write_kind(kind)} and metadata {fields}, expected "
                    f"{_write_kind(stated)} and {[*train.fields]}, as its class or the training "
                    f"split has"
                )
            try:
                split.check(info)
            except ValueError as error:
                raise DataError(f"{origin} is not as its class states: {error}") from None
            if not is_same(split, self.draw(name)):
                raise DataError(f"{origin} differs if drawn again by that seed; draw by rng alone")
            if split is not train and is_same(split, train):
                raise DataError(
                    f"{origin} is its training split; examples(split, rng) must draw by rng, or "
                    f"heed split"
                )
        try:
            self.info.goal.fitted(train)
        except ValueError as error:
            raise DataError(f"{self.task_name}: {error}, so there is nothing to learn") from None

    def count_known(self, split: str, other: str) -> int:
        """Count the examples of a split whose sequences are in another split, too."""
        known = set(self.drawn[other].list_keys())
        return sum(key in known for key in self.drawn[split].list_keys())

    def plan(self, data_dir: Path, **more: Any) -> Preparation:
        """See `Task.plan`; the request holds digests of the data files, and whatever else."""
        files = self.declared.data_files
        if files is not None:
            more["data_files"] = [file_facts(path).sha256 for path in files]
        return Preparation(
            data_dir=data_dir,
            task=self.task_name,
            name="examples",
            source="own",
            request={**self.request, **more},
            build=self._build,
            description="make its examples",
            bytes=self.declared.data_bytes,
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
            digests = [
                hashlib.sha256(array.tobytes()).hexdigest()
                for split in self.drawn.values()
                for array in list_arrays(split).values()
            ]
            plan = self.plan(data_dir, examples=digests)
        return self.open_plan(plan)

    def _holds_drawn(self, cache: Cache) -> bool:
        with cache.explain_errors():
            return all(
                is_same(self._open(cache, name), split) for name, split in self.drawn.items()
            )

    def _build(self, made: Build) -> None:
        self.check_drawn()
        for name, split in self.drawn.items():
            made.sizes[name] = len(split)
            for content, array in list_arrays(split).items():
                made.save(f"{name}_{content}", array)
        made.save("metadata", np.array(list(self.drawn["train"].fields), dtype="U"))
        for name in ("val", "test"):
            if count := self.count_known(name, "train"):
                made.notes[f"{name} examples that are in the training split, too"] = count
        if count := self.count_known("val", "test"):
            made.notes[IN_TEST] = count
        goal, train = self.info.goal, self.drawn["train"].labels
        if not isinstance(goal, ExampleNumbers):
            made.baselines["majority class"] = majority(train, self.drawn["test"].labels)
        elif unseen := goal.list_unseen(train):
            made.notes["labels that no training example has"] = len(unseen)

    def open_dataset(self, cache: Cache) -> Dataset:
        """See `Task.open_dataset`."""
        splits = {split: self._open(cache, split) for split in SPLITS}
        all_in_test = cache.manifest.notes.get(IN_TEST) == len(splits["val"])
        return Dataset.from_cache(cache, splits, selected_on="test" if all_in_test else "val")

    def _open(self, cache: Cache, split: str) -> PackedSequences:
        names = cache.array("metadata").tolist()
        return build_split(
            cache.array(f"{split}_values"),
            cache.array(f"{split}_lengths"),
            cache.array(f"{split}_labels"),
            {name: cache.array(f"{split}_metadata{i}") for i, name in enumerate(names)},
            towers=self.info.towers,
            goal=type(self.info.goal),
        )

    def check(self, cache: Cache, dataset: Dataset) -> list[str]:
        """See `Task.check`: draws all examples again."""
        vars(self).pop("drawn", None)
        if not self._holds_drawn(cache):
            raise DataError(
                f"{dataset.folder}: examples drawn again are others; delete that folder to make it "
                f"anew, and draw by rng alone"
            )
        return [f"{sum(dataset.sizes.values())} examples were drawn again and are the same"]

    def training_examples(self) -> int | None:
        """See `Task.training_examples`: None for a class that states all, until it has drawn."""
        _ = self.info  # draws the examples that it needs
        return len(self.drawn["train"]) if "drawn" in vars(self) else None

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


def _write_kind(kind: Mapping[str, Any]) -> str:
    return str({**kind, "goal": kind["goal"].__name__})
