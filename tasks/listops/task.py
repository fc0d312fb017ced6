"""ListOps: the value of a nested list of operations on digits.

The task is that of Nangia and Bowman 2018, with expressions of the law of the Long Range Arena
(Tay et al. 2021, arXiv:2011.04006).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, PositiveInt

from lra.common.errors import DataError
from lra.common.options import Added
from lra.common.progress import progress
from lra.common.untrusted import read_regular
from lra.tasks.base import SPLITS, DataSeed, Dataset, TaskInfo, accuracy_percent, majority
from lra.tasks.cache import Cache, read_cache
from lra.tasks.generated import GeneratedTask
from lra.tasks.goals import ExampleClass
from lra.tasks.listops.files import (
    FILES,
    INSIDE,
    check_answers,
    describe_doubt,
    read_official,
    write_official,
)
from lra.tasks.listops.law import (
    CLOSE_ID,
    END_ID,
    OFFICIAL_COUNTS,
    OFFICIAL_LAW,
    OPERATOR_ID,
    OPERATORS,
    VOCAB_SIZE,
    Expressions,
    Law,
    example_digest,
    generate,
)
from lra.tasks.preparation import Build, Preparation
from lra.tasks.sources.exports import MARK, determine_source, mark_export
from lra.tasks.sources.releases import NEARLY_ARCHIVE, Release, ReleaseCache, choose_source
from lra.tasks.splits import PackedSequences, Sequences

ARRAYS = ("tokens", "offsets", "labels")
"""The arrays of each split in a cache."""
RELEASE = Release(
    task="listops",
    names={
        FILES["train"]: f"with {FILES['val']} and {FILES['test']} in the same folder",
        "lra_release*gz": "the whole archive, 7.7 GB",
    },
    nearly=rf"basic.?(train|val|test)\b.*(tsv|csv|txt|xls|gz|zip)|{NEARLY_ARCHIVE}",
    people_get_it="lra_release.gz, of github.com/google-research/long-range-arena, can no longer "
    "be downloaded: ask a colleague for a copy, or use task.source=generate, which makes "
    "expressions of the same distribution.",
    accept=lambda path: path.parent if path.suffix == ".tsv" else path if path.is_file() else None,
    inside=INSIDE,
)


class ListOps(GeneratedTask):
    """Evaluate an expression, to a digit; tokens are digits, four operators and a closing bracket.

    Args:
        source: official files, generated expressions, or auto: files in the official format if they
            are there, and the official law and numbers of examples are asked for.
        min_length: tokens of the shortest expression, parentheses not counted.
        max_length: tokens of the longest expression.
        max_depth: most levels of a tree.
        max_arguments: most arguments of an operator.
        train: examples to train on.
        val: examples to select on.
        test: examples to test on.
        data_seed: seed of the generator.
        end_token: whether a token marks the end of every sequence.
        unknown_token: whether the vocabulary has a token, which no expression holds, for what is
            in no training example: S4's has.
        sequence_length: positions that models are built for, end token included.
    Raises: ValueError if expressions do not fit sequence_length, the limits are empty, or source
        is official but options differ from what the official files are.
    """

    name = "listops"
    default_counts = OFFICIAL_COUNTS

    def __init__(
        self,
        *,
        source: Literal["auto", "official", "generate"] = "auto",
        min_length: Annotated[int, Field(ge=4)] = OFFICIAL_LAW.min_length,
        max_length: PositiveInt = OFFICIAL_LAW.max_length,
        max_depth: Annotated[int, Field(ge=2)] = OFFICIAL_LAW.max_depth,
        max_arguments: Annotated[int, Field(ge=2, le=32)] = OFFICIAL_LAW.max_arguments,
        train: PositiveInt = OFFICIAL_COUNTS["train"],
        val: PositiveInt = OFFICIAL_COUNTS["val"],
        test: PositiveInt = OFFICIAL_COUNTS["test"],
        data_seed: DataSeed = 0,
        end_token: bool = True,
        unknown_token: Annotated[bool, Added(False)] = False,
        sequence_length: PositiveInt = 2048,
    ) -> None:
        if min_length > max_length:
            raise ValueError(f"min_length {min_length} is above max_length {max_length}")
        if sequence_length < max_length + end_token:
            raise ValueError(
                f"sequence_length {sequence_length} is too short for max_length {max_length}"
                f"{' and an end token' if end_token else ''}"
            )
        self.law = Law(
            min_length=min_length,
            max_length=max_length,
            max_depth=max_depth,
            max_arguments=max_arguments,
        )
        self.counts = {"train": train, "val": val, "test": test}
        self.data_seed = data_seed
        self.source = choose_source(
            source,
            is_official=(self.law, self.counts, data_seed) == (OFFICIAL_LAW, OFFICIAL_COUNTS, 0),
            options="min_length, max_length, max_depth, max_arguments, train, val, test and "
            "data_seed",
        )
        self.end_token = END_ID if end_token else None
        self.info = TaskInfo(
            name=self.name,
            goal=ExampleClass(10),
            max_length=sequence_length,
            vocab_size=VOCAB_SIZE + unknown_token,
        )

    def describe_law(self) -> dict[str, Any]:
        """See `GeneratedTask.describe_law`."""
        return {**vars(self.law), "operator_probability": 0.25, "version": 1}

    def request(self) -> dict[str, Any]:
        """See `GeneratedTask.request`."""
        return {"source": "generated", **super().request()}

    def draw(self) -> dict[str, np.ndarray]:
        """See `GeneratedTask.draw`."""
        return _list_arrays(generate(self.law, self.data_seed, self.counts))

    def measure_baselines(self, arrays: Mapping[str, np.ndarray]) -> dict[str, float]:
        """See `GeneratedTask.measure_baselines`."""
        train, test = arrays["train_labels"], arrays["test_labels"]
        roots = {
            split: arrays[f"{split}_tokens"][arrays[f"{split}_offsets"][:-1]]
            for split in ("train", "test")
        }
        prediction_by_root = np.full(VOCAB_SIZE, np.bincount(train, minlength=10).argmax())
        for root in np.unique(roots["train"]):
            prediction_by_root[root] = np.bincount(train[roots["train"] == root]).argmax()
        return {
            "majority class": majority(train, test),
            "root operator": accuracy_percent(prediction_by_root[roots["test"]], test),
        }

    def plan(self, data_dir: Path) -> Preparation:
        """See `Task.plan`: reads the official files, if they are to be used."""
        files = ReleaseCache(
            release=RELEASE,
            data_dir=data_dir,
            name="files",
            option=self.source,
            request={"source": "official"},
            read=self._read,
        )
        return files if files.is_wanted() else super().plan(data_dir)

    def _read(self, made: Build, path: Path) -> None:
        """Read the files of a folder or an archive in the official format into a cache."""
        splits = read_official(path)
        self.save(made, _list_arrays(splits))
        made.sizes = {name: len(split.labels) for name, split in splits.items()}
        mark = path / MARK
        said = read_regular(mark) if mark.is_file() else None
        determine_source(made, said, describe_doubt(splits))

    def open_dataset(self, cache: Cache) -> Dataset:
        """See `GeneratedTask.open_dataset`."""
        splits = {split: self.open_split(cache, split) for split in SPLITS}
        longest = max(int(split.lengths.max()) for split in splits.values())
        if longest > self.info.max_length:
            raise DataError(
                f"{cache.folder}: an expression has {longest:,} positions, more than "
                f"task.sequence_length={self.info.max_length}; use task.sequence_length={longest}"
            )
        view = {"end_token": self.end_token, "sequence_length": self.info.max_length}
        return Dataset.from_cache(cache, splits, view)

    def open_split(self, cache: Cache, split: str) -> PackedExpressions:
        """See `GeneratedTask.open_split`."""
        tokens, offsets, labels = (cache.array(f"{split}_{name}") for name in ARRAYS)
        sequences = Sequences(tokens, np.asarray(offsets), 0, self.end_token)
        return PackedExpressions(sequences, np.asarray(labels))

    @classmethod
    def fresh(
        cls, options: Mapping[str, Any], *, length: int | None, examples: int
    ) -> dict[str, Any]:
        """See `Task.fresh`: expressions are generated."""
        return {"source": "generate", **super().fresh(options, length=length, examples=examples)}

    @classmethod
    def change_length(cls, options: Mapping[str, Any], length: int) -> dict[str, Any]:
        """See `GeneratedTask.change_length`: at least three quarters of the length."""
        limits = {"min_length": max(4, 3 * length // 4), "max_length": length}
        return {**limits, "sequence_length": length + options["end_token"]}

    def check(self, cache: Cache, dataset: Dataset) -> list[str]:
        """See `Task.check`: answers, and that no example recurs."""
        seen: set[bytes] = set()
        total = 0
        for name in progress("checking", SPLITS, unit="splits"):
            examples = _open_expressions(cache, name)
            check_answers(examples, lambda i, name=name: f"{dataset.folder}: {name} example {i}")
            seen.update(map(example_digest, examples.list_texts()))
            total += len(examples.labels)
        repeated = total - len(seen)
        if repeated and dataset.source == "generated":
            raise DataError(f"{dataset.folder}: {repeated} examples occur more than once")
        return [
            f"{total} answers were evaluated again and are right",
            f"{repeated} examples occur more than once",
        ]

    def export(self, dataset: Dataset, folder: Path) -> list[Path]:
        """See `Task.export`."""
        cache = read_cache(dataset.folder)
        is_official = self.law == OFFICIAL_LAW
        doubt = "" if is_official else "its expressions follow another law than the release"
        mark_export(folder, cache.manifest, FILES.values(), doubt)
        for name in SPLITS:
            write_official(folder / FILES[name], _open_expressions(cache, name))
        return [folder / FILES[name] for name in SPLITS]


def _list_arrays(splits: Mapping[str, Expressions]) -> dict[str, np.ndarray]:
    """List the arrays of a cache."""
    return {
        f"{name}_{kind}": getattr(split, kind) for name, split in splits.items() for kind in ARRAYS
    }


def _open_expressions(cache: Cache, split: str) -> Expressions:
    tokens, offsets, labels = (np.asarray(cache.array(f"{split}_{name}")) for name in ARRAYS)
    return Expressions(tokens, np.diff(offsets), labels)


class PackedExpressions(PackedSequences):
    """Expressions, with the metadata that results are broken down by."""

    def metadata(self) -> dict[str, np.ndarray]:
        """See `Split.metadata`: how deep operators are nested, and the outermost operator."""
        tokens, starts = np.asarray(self.sequences.tokens), self.sequences.offsets[:-1]
        steps = (tokens >= OPERATOR_ID).astype(np.int32) - 2 * (tokens == CLOSE_ID)
        names = np.array([name.strip("[") for name in OPERATORS])
        return {
            "depth": np.maximum.reduceat(np.cumsum(steps), starts),
            "root operator": names[tokens[starts] - OPERATOR_ID],
        }
