"""ListOps: the value of a nested list of operations on digits.

Nangia and Bowman 2018, at the Long Range Arena's law (Tay et al. 2021, arXiv:2011.04006).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, PositiveInt

from tasks.base import DataError, Dataset, Task, TaskInfo, accuracy_percent
from tasks.cache import (
    Build,
    Cache,
    cache_folder,
    canonical_hash,
    open_or_build,
    origin_facts,
    read_cache,
)
from tasks.listops.format import (
    FILES,
    FOLDERS,
    find_official,
    read_official,
    write_official,
)
from tasks.listops.generate import example_digest, generate
from tasks.listops.law import (
    CLOSE_ID,
    END_ID,
    OPERATOR_ID,
    OPERATORS,
    VOCAB_SIZE,
    Expressions,
    Law,
    evaluate,
)
from tasks.progress import progress
from tasks.sources.exports import mark_origin, origin_of
from tasks.splits import PackedTokens, Sequences

OFFICIAL_LAW = Law(min_length=501, max_length=1999, max_depth=10, max_arguments=10)
OFFICIAL_COUNTS = {"train": 96_000, "val": 2_000, "test": 2_000}
SPLITS = tuple(OFFICIAL_COUNTS)
FRESH_TRAINING = 1000
"""Examples that trivial baselines are fitted to, beside a test set for trained models."""
PARTS = ("tokens", "offsets", "labels")


class ListOps(Task):
    """Ten classes; tokens are digits, four operators and a closing bracket.

    Args:
        source: the official files, generated ones, or auto: official if they are there and
            law, seed and counts are theirs.
        min_length: tokens of the shortest expression, parentheses not counted.
        max_length: tokens of the longest.
        max_depth: levels of the deepest tree, at most.
        max_arguments: arguments of an operator, at most.
        train: examples to train on.
        val: examples to select on.
        test: examples to test on.
        data_seed: of the generator.
        end_token: whether a token marks the end of every sequence.
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
            name=self.name, num_classes=10, max_length=sequence_length, vocab_size=VOCAB_SIZE
        )

    def prepare(self, data_dir: Path) -> Dataset:
        """See `Task.prepare`."""
        official = self._official(data_dir)
        return self._generated(data_dir) if official is None else self._read(data_dir, official)

    def _official(self, data_dir: Path) -> dict[str, Path] | None:
        """Find the official files, if they are wanted and can be what the options ask for."""
        if self.source == "generate":
            return None
        is_official = self.law == OFFICIAL_LAW and self.data_seed == 0
        if self.source == "auto":
            wanted = is_official and self.counts == OFFICIAL_COUNTS
            return find_official(data_dir) if wanted else None
        if not is_official:
            raise DataError(
                "task.source is official, but the official files have a law of their own: leave "
                "min_length, max_length, max_depth, max_arguments and data_seed as they are, or "
                "use task.source=generate"
            )
        found = find_official(data_dir)
        if found is None:
            places = ", ".join(str(data_dir / folder) for folder in FOLDERS)
            raise DataError(
                f"no official ListOps files ({', '.join(FILES.values())}) in any of {places}; "
                f"unpack lra_release.gz there, or use task.source=generate"
            )
        return found

    def _generated(self, data_dir: Path) -> Dataset:
        request = {
            "source": "generated",
            "law": {**vars(self.law), "operator_probability": 0.25, "version": 1},
            "seed": self.data_seed,
            "counts": self.counts,
        }

        def build(made: Build) -> None:
            _save(made, generate(self.law, self.data_seed, self.counts))

        return self._dataset(self._open(data_dir, request, build))

    def _read(self, data_dir: Path, official: Mapping[str, Path]) -> Dataset:
        sizes = {path.name: path.stat().st_size for path in official.values()}
        source = origin_of(official["train"].parent)
        request = {"source": source, "files": sizes, "counts": self.counts}

        def build(made: Build) -> None:
            made.origin = {
                str(path.relative_to(data_dir)): origin_facts(path) for path in official.values()
            }
            splits = {name: read_official(path) for name, path in official.items()}
            for name, split in splits.items():
                count = len(split.labels)
                if count != self.counts[name]:
                    raise DataError(
                        f"{official[name]} has {count} examples, expected {self.counts[name]}: is "
                        f"it complete? If it is meant to be so, use task.{name}={count} and "
                        f"task.source=official"
                    )
            _save(made, splits)

        cache = self._open(data_dir, request, build)
        cache.check_origin(data_dir)
        return self._dataset(cache)

    def _open(
        self, data_dir: Path, request: dict[str, Any], build: Callable[[Build], None]
    ) -> Cache:
        source = request["source"]
        folder = cache_folder(data_dir, self.name, source, request)
        return open_or_build(folder, task=self.name, source=source, request=request, build=build)

    def _dataset(self, cache: Cache) -> Dataset:
        splits: dict[str, PackedTokens] = {}
        for name in SPLITS:
            tokens, offsets, labels = _arrays(cache, name)
            splits[name] = PackedExpressions(Sequences(tokens, offsets, 0, self.end_token), labels)
        longest = max(int(split.lengths.max()) for split in splits.values())
        if longest > self.info.max_length:
            raise DataError(
                f"{cache.folder} holds a sequence of {longest} positions, more than "
                f"task.sequence_length {self.info.max_length}"
            )
        view = {"end_token": self.end_token, "sequence_length": self.info.max_length}
        return Dataset(
            splits=splits,
            source=cache.manifest.source,
            fingerprint=canonical_hash([cache.fingerprint, view]),
            baselines=cache.manifest.baselines,
            folder=cache.folder,
        )

    @classmethod
    def fresh(
        cls, options: Mapping[str, Any], *, length: int | None, examples: int
    ) -> dict[str, Any]:
        """See `Task.fresh`: expressions of three quarters of the length and more, new ones."""
        drawn = {"source": "generate", "data_seed": options["data_seed"] + 1, "test": examples}
        few = {"train": FRESH_TRAINING, "val": 1}
        if length is None:
            return {**drawn, **few}
        limits = {"min_length": max(4, 3 * length // 4), "max_length": length}
        return {**drawn, **few, **limits, "sequence_length": length + options["end_token"]}

    def verify(self, dataset: Dataset) -> list[str]:
        """See `Task.verify`: checksums, lengths, answers, and no example twice."""
        cache = read_cache(dataset.folder)
        cache.check_files(checksums=True)
        seen: set[bytes] = set()
        total = 0
        for name in SPLITS:
            tokens, offsets, labels = _arrays(cache, name)
            for i in progress(f"checking {name}", range(len(labels)), unit="examples"):
                example = tokens[offsets[i] : offsets[i + 1]].tobytes()
                seen.add(example_digest(example))
                self._check(example, int(labels[i]), f"{dataset.folder}: {name} example {i}")
            total += len(labels)
        repeated = total - len(seen)
        if repeated and dataset.source == "generated":
            raise DataError(f"{dataset.folder}: {repeated} examples occur more than once")
        return [
            "sizes and checksums of all files match the manifest",
            f"{total} expressions have {self.law.min_length} to {self.law.max_length} tokens",
            f"{total} answers were evaluated again and are right",
            f"{repeated} examples occur more than once",
        ]

    def _check(self, example: bytes, label: int, where: str) -> None:
        if not self.law.min_length <= len(example) <= self.law.max_length:
            raise DataError(f"{where} has {len(example)} tokens, outside the law's limits")
        try:
            value = evaluate(example)
        except ValueError as error:
            raise DataError(f"{where}: {error}") from None
        if value != label:
            raise DataError(f"{where} is worth {value}, but its label is {label}")

    def export(self, dataset: Dataset, folder: Path) -> list[Path]:
        """See `Task.export`."""
        cache = read_cache(dataset.folder)
        mark_origin(folder, dataset.source, FILES.values())
        for name in SPLITS:
            write_official(folder / FILES[name], *_arrays(cache, name))
        return [folder / FILES[name] for name in SPLITS]

    def split_sizes(self, examples: int) -> dict[str, int]:
        """See `Task.split_sizes`."""
        if examples < len(SPLITS):
            raise DataError(f"got {examples} examples, expected at least {len(SPLITS)}")
        small = max(1, examples // 50)
        return {"train": examples - 2 * small, "val": small, "test": small}


class PackedExpressions(PackedTokens):
    """Expressions, which a result can be broken down by."""

    def metadata(self) -> dict[str, np.ndarray]:
        """See `Split.metadata`: operators that enclose the innermost digits, and the outermost."""
        tokens, starts = np.asarray(self.sequences.tokens), self.sequences.offsets[:-1]
        steps = (tokens >= OPERATOR_ID).astype(np.int32) - 2 * (tokens == CLOSE_ID)
        names = np.array([name.strip("[") for name in OPERATORS])
        return {
            "depth": np.maximum.reduceat(np.cumsum(steps), starts),
            "root operator": names[tokens[starts] - OPERATOR_ID],
        }


def _arrays(cache: Cache, split: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    tokens, offsets, labels = (cache.array(f"{split}_{part}") for part in PARTS)
    return tokens, np.asarray(offsets), np.asarray(labels)


def _save(made: Build, splits: Mapping[str, Expressions]) -> None:
    """Write the arrays and facts of all splits."""
    roots = {}
    for name, split in splits.items():
        offsets = np.concatenate([[0], np.cumsum(split.lengths)])
        roots[name] = split.tokens[offsets[:-1]]
        for part, array in zip(PARTS, (split.tokens, offsets, split.labels), strict=True):
            made.save(f"{name}_{part}", array)
        made.sizes[name] = len(split.labels)
    train, test = splits["train"].labels, splits["test"].labels
    commonest = np.bincount(train, minlength=10).argmax()
    prediction_by_root = np.full(VOCAB_SIZE, commonest)
    for root in np.unique(roots["train"]):
        prediction_by_root[root] = np.bincount(train[roots["train"] == root]).argmax()
    made.baselines = {
        "majority class": accuracy_percent(np.full(len(test), commonest), test),
        "root operator": accuracy_percent(prediction_by_root[roots["test"]], test),
    }
