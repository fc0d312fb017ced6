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


def differences(splits: Mapping[str, Expressions], surveys: Mapping[str, Survey]) -> str:
    """Compare examples with the numbers and the law of the official ones.

    So many expressions reach every limit of the official law, so each must be met exactly; only of
    the lengths the limits are wider.

    Args:
        splits: the examples, by split.
        surveys: what they are made of, by split.
    Returns: the first difference in words; empty if there is none.
    """
    sizes = {name: len(split.labels) for name, split in splits.items()}
    if sizes != OFFICIAL_COUNTS:
        return sizes_differ(sizes, OFFICIAL_COUNTS, "examples")
    lengths = np.concatenate([split.lengths for split in splits.values()])
    labels = np.concatenate([split.labels for split in splits.values()])
    depths = np.concatenate([found.depths for found in surveys.values()])
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
    if depths.max() != law.max_depth - 1:
        return (
            f"its operators are nested up to {depths.max()} deep, those of the release up to "
            f"{law.max_depth - 1}"
        )
    if len(np.unique(labels)) != CLASSES:
        return f"its examples are of {len(np.unique(labels))} classes, those of the release of 10"
    return _generated_by_us(splits["train"])


def _generated_by_us(train: Expressions) -> str:
    """Name the seed with which our generator makes these examples; empty if there is none."""
    for seed in range(SEEDS_TRIED):
        ours = grow(OFFICIAL_LAW, seed, 0)
        first = ours.lengths[0]
        if np.array_equal(ours.tokens[:first], train.tokens[:first]):
            return f"it is what this suite generates with task.data_seed={seed}"
    return ""
