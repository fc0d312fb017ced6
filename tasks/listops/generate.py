"""Generation of ListOps splits from groups of trees, without duplicates."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np

from common.errors import DataError
from common.progress import progress
from common.threads import core_count
from tasks.listops.law import Expressions, Law, grow

BARREN_GROUPS = 200
"""After this many groups in a row without a new expression, the law counts as exhausted."""


def example_digest(tokens: bytes) -> bytes:
    """Hash an expression's tokens for the search for duplicates."""
    return hashlib.blake2b(tokens, digest_size=16).digest()


def generate(
    law: Law, seed: int, counts: Mapping[str, int], workers: int | None = None
) -> dict[str, Expressions]:
    """Generate splits without common expressions, filled in the order of the counts.

    They depend on law, seed and counts alone, not on the number of threads (by default the cores).

    Raises: DataError if the law has too few distinct expressions.
    """
    total = sum(counts.values())
    found: dict[bytes, tuple[bytes, int]] = {}
    barren = 0
    with (
        progress("generating ListOps", total=total, unit="examples") as bar,
        closing(_grow_groups(law, seed, workers or core_count())) as groups,  # else Ctrl-C is lost
    ):
        for group in groups:
            before = len(found)
            for text, label in zip(group.list_texts(), group.labels.tolist(), strict=True):
                found.setdefault(example_digest(text), (text, label))
            bar.update(min(len(found), total) - before)
            if len(found) >= total:
                break
            barren = 0 if len(found) > before else barren + 1
            if barren == BARREN_GROUPS:
                raise DataError(
                    f"found only {len(found)} distinct expressions of {total} under {law}; "
                    f"ask for fewer examples or widen the limits on length"
                )
    examples = iter(found.values())
    return {name: _join(itertools.islice(examples, count)) for name, count in counts.items()}


def _grow_groups(law: Law, seed: int, workers: int) -> Generator[Expressions]:
    """Grow groups 0, 1, 2, ... on threads; NumPy releases the interpreter's lock."""
    at_once = 4 * workers
    with ThreadPoolExecutor(workers) as pool:
        for first in itertools.count(0, at_once):
            numbers = range(first, first + at_once)
            yield from pool.map(lambda group: grow(law, seed, group), numbers)


def _join(examples: itertools.islice[tuple[bytes, int]]) -> Expressions:
    texts, labels = zip(*examples, strict=True)
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    tokens = np.frombuffer(b"".join(texts), dtype=np.uint8)
    return Expressions(tokens, lengths, np.array(labels, dtype=np.uint8))
