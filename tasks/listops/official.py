"""How files in the official format differ from the official ListOps files."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tasks.listops.evaluate import Survey
from tasks.listops.law import OFFICIAL_COUNTS, OFFICIAL_LAW, Expressions, grow
from tasks.sources.releases import sizes_differ

FEWEST_ARGUMENTS = 2
CLASSES = 10
SEEDS_TRIED = 100
"""Seeds of our generator, from 0 on, whose first expression is compared with that of the files."""


def other_numbers(splits: Mapping[str, Expressions]) -> str:
    """Say that splits have other numbers of examples than the official ones; empty if not."""
    sizes = {name: len(split.labels) for name, split in splits.items()}
    return "" if sizes == OFFICIAL_COUNTS else sizes_differ(sizes, OFFICIAL_COUNTS, "examples")


def other_law(splits: Mapping[str, Expressions], surveys: Mapping[str, Survey]) -> str:
    """Compare expressions with the official law.

    So many expressions reach every limit of the official law, so each must be met exactly; only of
    the lengths the limits are wider.

    Args:
        splits: the examples, by split.
        surveys: what they are made of, by split.
    Returns: the first difference in words; empty if there is none.
    """
    lengths = np.concatenate([split.lengths for split in splits.values()])
    classes = len(np.unique(np.concatenate([split.labels for split in splits.values()])))
    depth = max(int(found.depths.max()) for found in surveys.values())
    fewest = min(int(found.fewest.min()) for found in surveys.values())
    most = max(int(found.most.max()) for found in surveys.values())
    law = OFFICIAL_LAW
    if lengths.min() < law.min_length or lengths.max() > law.max_length:
        return (
            f"its expressions have {lengths.min():,} to {lengths.max():,} tokens, those of the "
            f"release {law.min_length:,} to {law.max_length:,}"
        )
    if (fewest, most) != (FEWEST_ARGUMENTS, law.max_arguments):
        return (
            f"its operators have {fewest} to {most} arguments, those of the release "
            f"{FEWEST_ARGUMENTS} to {law.max_arguments}"
        )
    if depth != law.max_depth - 1:
        return (
            f"its operators are nested up to {depth} deep, those of the release up to "
            f"{law.max_depth - 1}"
        )
    if classes != CLASSES:
        return f"its examples are of {classes} classes, those of the release of {CLASSES}"
    return ""


def generated_by_us(train: Expressions) -> str:
    """Name the seed with which our generator makes these examples; empty if there is none."""
    for seed in range(SEEDS_TRIED):
        ours = grow(OFFICIAL_LAW, seed, 0)
        first = ours.lengths[0]
        if np.array_equal(ours.tokens[:first], train.tokens[:first]):
            return f"it is what this suite generates with task.data_seed={seed}"
    return ""
