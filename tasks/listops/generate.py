"""Generation of ListOps splits from groups of trees, without duplicates."""

from __future__ import annotations

import hashlib
import itertools
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing

import numpy as np

from common.cores import core_count
from common.errors import DataError
from common.progress import progress
from tasks.listops.law import Expressions, Law, grow

BARREN_GROUPS = 200
"""After this many groups in a row without a new expression, the law counts as exhausted."""


def example_digest(tokens: bytes) -> bytes:
    """Hash an expression's tokens for the search for duplicates."""
    return hashlib.blake2b(tokens, digest_size=16).digest()


def generate(
    law: Law, seed: int, counts: Mapping[str, int], workers: int | None = None
) -> dict[str, Expressions]:
    """Generate splits without common expressions, which depend only on law, seed and counts.

    Args:
        law: law of the expressions.
        seed: seed of the generator.
        counts: examples by split; the splits are filled in this order.
        workers: threads, by default one per core; the result does not depend on it.
    Raises: DataError if the law has too few distinct expressions.
    """
    total = sum(counts.values())
    seen: set[bytes] = set()
    texts: list[bytes] = []
    labels = bytearray()
    barren = 0
    with (
        progress("generating ListOps", total=total, unit="examples") as bar,
        closing(_groups(law, seed, workers or core_count())) as groups,  # else Ctrl-C can be lost
    ):
        for expressions in groups:
            before = len(texts)
            for text, label in _examples(expressions):
                digest = example_digest(text)
                if digest not in seen and len(texts) < total:
                    seen.add(digest)
                    texts.append(text)
                    labels.append(label)
            bar.update(len(texts) - before)
            if len(texts) == total:
                break
            barren = 0 if len(texts) > before else barren + 1
            if barren == BARREN_GROUPS:
                raise DataError(
                    f"found only {len(texts)} distinct expressions of {total} under {law}; "
                    f"ask for fewer examples or widen the limits on length"
                )
    taken = iter(zip(texts, labels, strict=True))
    return {name: _join(itertools.islice(taken, count)) for name, count in counts.items()}


def _groups(law: Law, seed: int, workers: int) -> Generator[Expressions]:
    """Grow groups 0, 1, 2, ... on threads, a few ahead; NumPy releases the interpreter's lock."""
    with ThreadPoolExecutor(workers) as pool:
        ahead: deque[Future[Expressions]] = deque()
        try:
            for group in itertools.count():
                ahead.append(pool.submit(grow, law, seed, group))
                if len(ahead) > 2 * workers:
                    yield ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()


def _examples(expressions: Expressions) -> Iterator[tuple[bytes, int]]:
    ends = np.cumsum(expressions.lengths).tolist()
    text = expressions.tokens.tobytes()
    start = 0
    for end, label in zip(ends, expressions.labels.tolist(), strict=True):
        yield text[start:end], label
        start = end


def _join(examples: Iterator[tuple[bytes, int]]) -> Expressions:
    texts, labels = zip(*examples, strict=True)
    return Expressions(
        np.frombuffer(b"".join(texts), dtype=np.uint8),
        np.array([len(text) for text in texts], dtype=np.int64),
        np.array(labels, dtype=np.uint8),
    )
