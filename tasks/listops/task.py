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

from common.errors import DataError
from common.files import format_bytes
from common.options import Added
from common.progress import progress
from tasks.base import Dataset, Task, TaskInfo, check_dataset
from tasks.cache import Cache, read_cache
from tasks.listops.data import (
    content_of,
    generated_folder,
    open_generated,
    read_files,
    request_generated,
    split_arrays,
)
from tasks.listops.format import FILES, INSIDE, count_examples, write_official
from tasks.listops.generate import example_digest
from tasks.listops.law import (
    CLOSE_ID,
    END_ID,
    OFFICIAL_COUNTS,
    OFFICIAL_LAW,
    OPERATOR_ID,
    OPERATORS,
    VOCAB_SIZE,
    Expressions,
    Law,
)
from tasks.manifest import canonical_hash
from tasks.sources.exports import mark_export
from tasks.sources.releases import NEARLY_ARCHIVE, Release, ReleaseCache
from tasks.splits import PackedTokens, Sequences

SPLITS = tuple(OFFICIAL_COUNTS)
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
FRESH_TRAINING = 1000
"""Training examples that come with new test examples, for the trivial baselines to be fitted to."""


class ListOps(Task):
    """Evaluate an expression, to a digit; tokens are digits, four operators and a closing bracket.

    Args:
        source: official files, generated expressions, or auto: files in the official format if they
            are there, and the official law is asked for, with the official numbers of examples
            or those that the files have.
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
    Raises: ValueError if expressions do not fit sequence_length or the limits are empty.
    """

    name = "listops"
    draws_data = True

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
        data_seed: Annotated[int, Field(ge=0, lt=2**63)] = 0,
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
        self.source = source
        self.law = Law(
            min_length=min_length,
            max_length=max_length,
            max_depth=max_depth,
            max_arguments=max_arguments,
        )
        self.counts = {"train": train, "val": val, "test": test}
        self.data_seed = data_seed
        self.end_token = END_ID if end_token else None
        self.info = TaskInfo(
            name=self.name,
            num_classes=10,
            max_length=sequence_length,
            vocab_size=VOCAB_SIZE + unknown_token,
        )

    def describe_preparation(self, data_dir: Path) -> str:
        """See `Task.describe_preparation`."""
        official = self._official(data_dir)
        if official is not None:
            return official.describe_preparation()
        request = request_generated(self.law, self.data_seed, self.counts)
        if generated_folder(data_dir, request).exists():
            return ""
        total = sum(self.counts.values())
        size = format_bytes(total * (self.law.min_length + self.law.max_length) / 2)
        return f"generate {total:,} expressions (about {size})"

    def prepare(self, data_dir: Path) -> Dataset:
        """See `Task.prepare`."""
        official = self._official(data_dir)
        if official is None:
            cache = open_generated(data_dir, self.law, self.data_seed, self.counts)
        else:
            cache = official.open_or_read(read_files)
        with cache.explain_errors():
            return check_dataset(self._dataset(cache), self.info)

    def _official(self, data_dir: Path) -> ReleaseCache | None:
        """Describe the cache of the official files; None if expressions are generated instead."""
        is_official = self.law == OFFICIAL_LAW and self.data_seed == 0
        if self.source == "generate" or (self.source == "auto" and not is_official):
            return None
        if self.source == "official" and not (is_official and self.counts == OFFICIAL_COUNTS):
            raise DataError(
                "task.source is official, but the official files have a law and numbers of "
                "examples of their own: leave min_length, max_length, max_depth, max_arguments, "
                "train, val, test and data_seed as they are, or use task.source=generate"
            )
        files = ReleaseCache(
            release=RELEASE,
            data_dir=data_dir,
            name="files",
            source=self.source,
            request={"source": "official"},
        )
        return files if self.source == "official" or self._are_asked_for(files) else None

    def _are_asked_for(self, files: ReleaseCache) -> bool:
        """Whether there are files, and hold as many examples as are asked for.

        The official numbers ask for files of any numbers. An archive that was not read yet is taken
        to hold the official numbers.
        """
        if files.folder.exists():
            return self.counts in (OFFICIAL_COUNTS, read_cache(files.folder).manifest.sizes)
        found = RELEASE.find(files.data_dir)
        if not found or self.counts == OFFICIAL_COUNTS:
            return bool(found or RELEASE.find_nearly(files.data_dir))
        paths = {name: found[0] / FILES[name] for name in reversed(SPLITS)}  # the small ones first
        return found[0].is_dir() and all(
            not path.is_file() or count_examples(path) == self.counts[name]
            for name, path in paths.items()
        )

    def _dataset(self, cache: Cache) -> Dataset:
        splits: dict[str, PackedTokens] = {}
        for name in SPLITS:
            tokens, offsets, labels = split_arrays(cache, name)
            splits[name] = PackedExpressions(Sequences(tokens, offsets, 0, self.end_token), labels)
        self._check_longest(cache, splits)
        view = {"end_token": self.end_token, "sequence_length": self.info.max_length}
        return Dataset(
            splits=splits,
            source=cache.manifest.source,
            unofficial_because=cache.unofficial_because,
            fingerprint=canonical_hash([cache.fingerprint, view]),
            baselines=cache.manifest.baselines,
            folder=cache.folder,
        )

    def _check_longest(self, cache: Cache, splits: Mapping[str, PackedTokens]) -> None:
        name = max(splits, key=lambda name: splits[name].lengths.max())
        example = int(splits[name].lengths.argmax())
        longest = int(splits[name].lengths[example])
        if longest <= self.info.max_length:
            return
        origin = [cache.folder.parent.parent / file for file in cache.manifest.origin]
        file = next((path for path in origin if path.name == FILES[name]), None)
        raise DataError(
            f"{file or f'{origin[0]}: {FILES[name]}'}:{example + 2}: the expression has "
            f"{longest:,} positions{', end token included' if self.end_token else ''}, more than "
            f"task.sequence_length={self.info.max_length}; use task.sequence_length={longest}, or "
            f"delete the line"
        )

    @classmethod
    def fresh(
        cls, options: Mapping[str, Any], *, length: int | None, examples: int
    ) -> dict[str, Any]:
        """See `Task.fresh`: draws new expressions of at least three quarters of the length."""
        drawn = {"source": "generate", "data_seed": options["data_seed"] + 1, "test": examples}
        few = {"train": FRESH_TRAINING, "val": 1}
        if length is None:
            return {**drawn, **few}
        limits = {"min_length": max(4, 3 * length // 4), "max_length": length}
        return {**drawn, **few, **limits, "sequence_length": length + options["end_token"]}

    def verify(self, dataset: Dataset) -> list[str]:
        """See `Task.verify`: checks checksums, lengths and answers, and that no example recurs."""
        from tasks.listops.interpreter import check_answers, compute_statistics

        cache = read_cache(dataset.folder)
        cache.check_files(checksums=True)
        seen: set[bytes] = set()
        total = 0
        for name in SPLITS:
            tokens, offsets, labels = split_arrays(cache, name)
            examples = Expressions(np.asarray(tokens), np.diff(offsets), labels)
            where = f"{dataset.folder}: {name} example"
            check_answers(
                examples, compute_statistics(examples), lambda i, where=where: f"{where} {i}"
            )
            for i in progress(f"checking {name}", range(len(labels)), unit="examples"):
                seen.add(example_digest(tokens[offsets[i] : offsets[i + 1]].tobytes()))
            total += len(labels)
            if cache.manifest.request["source"] == "generated":
                self._check_lengths(examples.lengths, where)
        repeated = total - len(seen)
        if repeated and dataset.source == "generated":
            raise DataError(f"{dataset.folder}: {repeated} examples occur more than once")
        lengths = np.concatenate([split.lengths for split in dataset.splits.values()])
        end = int(self.end_token is not None)
        return [
            "sizes and checksums of all files match the manifest",
            f"{total} expressions have {lengths.min() - end} to {lengths.max() - end} tokens",
            f"{total} answers were evaluated again and are right",
            f"{repeated} examples occur more than once",
        ]

    def _check_lengths(self, lengths: np.ndarray, where: str) -> None:
        outside = np.flatnonzero((lengths < self.law.min_length) | (lengths > self.law.max_length))
        if len(outside):
            found = f"{where} {outside[0]} has {lengths[outside[0]]} tokens"
            raise DataError(f"{found}, outside the law's limits")

    def export(self, dataset: Dataset, folder: Path) -> list[Path]:
        """See `Task.export`."""
        cache = read_cache(dataset.folder)
        mark_export(folder, cache, content_of(cache.folder), FILES.values())
        for name in SPLITS:
            write_official(folder / FILES[name], *split_arrays(cache, name))
        return [folder / FILES[name] for name in SPLITS]

    def training_examples(self) -> int:
        """See `Task.training_examples`."""
        return self.counts["train"]

    def split_sizes(self, examples: int) -> dict[str, int]:
        """See `Task.split_sizes`."""
        if examples < len(SPLITS):
            raise DataError(f"got {examples} examples, expected at least {len(SPLITS)}")
        small = max(1, examples // 50)
        return {"train": examples - 2 * small, "val": small, "test": small}


class PackedExpressions(PackedTokens):
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
