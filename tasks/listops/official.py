"""How files in the official format differ from the official ListOps files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from tasks.listops.generate import example_digest
from tasks.listops.interpreter import ExpressionStatistics
from tasks.listops.law import OFFICIAL_COUNTS, OFFICIAL_LAW, Expressions, grow
from tasks.sources.exports import SEEDS_TRIED
from tasks.sources.releases import describe_size_difference

FEWEST_ARGUMENTS = 2
CLASSES = 10


def describe_other_counts(splits: Mapping[str, Expressions]) -> str:
    """Say that splits have other numbers of examples than the official ones; empty if not."""
    sizes = {name: len(split.labels) for name, split in splits.items()}
    return (
        ""
        if sizes == OFFICIAL_COUNTS
        else describe_size_difference(sizes, OFFICIAL_COUNTS, "examples")
    )


def describe_excess(
    splits: Mapping[str, Expressions], statistics: Mapping[str, ExpressionStatistics]
) -> str:
    """Say which limit of the official law an expression exceeds; empty if none.

    Args:
        splits: the examples, by split.
        statistics: what they are made of, by split.
    """
    lengths = np.concatenate([split.lengths for split in splits.values()])
    depth, fewest, most = _extremes(statistics)
    law = OFFICIAL_LAW
    if lengths.min() < law.min_length or lengths.max() > law.max_length:
        return (
            f"its expressions have {lengths.min():,} to {lengths.max():,} tokens, those of the "
            f"release {law.min_length:,} to {law.max_length:,}"
        )
    if fewest < FEWEST_ARGUMENTS or most > law.max_arguments:
        return _other_arguments(fewest, most)
    return _other_depth(depth) if depth > law.max_depth - 1 else ""


def describe_shortfall(
    splits: Mapping[str, Expressions], statistics: Mapping[str, ExpressionStatistics]
) -> str:
    """Say which limit no expression reaches, as some of the official ones do; empty if none.

    Args:
        splits: as many examples as the official ones, by split.
        statistics: what they are made of, by split.
    """
    depth, fewest, most = _extremes(statistics)
    classes = len(np.unique(np.concatenate([split.labels for split in splits.values()])))
    if fewest > FEWEST_ARGUMENTS or most < OFFICIAL_LAW.max_arguments:
        return _other_arguments(fewest, most)
    if depth < OFFICIAL_LAW.max_depth - 1:
        return _other_depth(depth)
    if classes < CLASSES:
        return f"its examples are of {classes} classes, those of the release of {CLASSES}"
    return ""


def _extremes(statistics: Mapping[str, ExpressionStatistics]) -> tuple[int, int, int]:
    """Find how deep operators are nested, and the fewest and the most arguments of one."""
    found = statistics.values()
    depth = max(int(each.depths.max()) for each in found)
    fewest = min(int(each.fewest.min()) for each in found)
    return depth, fewest, max(int(each.most.max()) for each in found)


def _other_arguments(fewest: int, most: int) -> str:
    return (
        f"its operators have {fewest} to {most} arguments, those of the release "
        f"{FEWEST_ARGUMENTS} to {OFFICIAL_LAW.max_arguments}"
    )


def _other_depth(depth: int) -> str:
    deepest = OFFICIAL_LAW.max_depth - 1
    return f"its operators are nested up to {depth} deep, those of the release up to {deepest}"


def find_own_seed(splits: Mapping[str, Expressions]) -> str:
    """Name the seed with which our generator makes one of these; empty if there is none."""
    known = {digest for split in splits.values() for digest in _digests(split)}
    for seed in range(SEEDS_TRIED):
        if not known.isdisjoint(_digests(grow(OFFICIAL_LAW, seed, 0))):
            return f"it holds what this suite generates with task.data_seed={seed}"
    return ""


def _digests(expressions: Expressions) -> Iterator[bytes]:
    ends = np.cumsum(expressions.lengths)
    for start, end in zip((ends - expressions.lengths).tolist(), ends.tolist(), strict=True):
        yield example_digest(expressions.tokens[start:end].tobytes())
