"""The law of group word problems: random elements of a group, and their running product.

Merrill, Petty and Sabharwal, "The Illusion of State in State-Space Models", ICML 2024
(arXiv:2404.08819), and jopetty/word-problem, src/generate_data.py. Inputs that are only swaps are
those of Grazzi et al. 2025 (arXiv:2411.12537), section E.2.

Elements are permutations, numbered in lexicographic order; 0 is the identity. The product of x and
y is "first x, then y". The label of a position is the product of all elements up to it, from left
to right.
"""

from __future__ import annotations

import functools
import itertools

import numpy as np

from tasks.generated import GROUP
from tasks.random_words import RandomWords


def symmetric_group(points: int) -> np.ndarray:
    """List all permutations of some points: (order, points)."""
    return np.array(list(itertools.permutations(range(points))))


def alternating_group(points: int) -> np.ndarray:
    """List the even permutations of some points: (order, points)."""
    every = symmetric_group(points)
    first, second = np.triu_indices(points, 1)
    inversions = (every[:, first] > every[:, second]).sum(axis=1)
    return every[inversions % 2 == 0]


def cyclic_group(order: int) -> np.ndarray:
    """List the rotations of a circle: (order, order)."""
    return (np.arange(order) + np.arange(order)[:, None]) % order


GROUPS = {
    "S3": symmetric_group(3),
    "A4": alternating_group(4),
    "A5": alternating_group(5),
    "S5": symmetric_group(5),
    "Z60": cyclic_group(60),
}
"""The elements of each group as permutations, (order, points), in lexicographic order."""


@functools.cache
def multiplication_table(group: str) -> np.ndarray:
    """Tabulate products, (order, order) int64: row x and column y have "first x, then y"."""
    elements = GROUPS[group]
    order, points = elements.shape
    products = elements[:, elements].swapaxes(0, 1).reshape(-1, points)
    # A group is closed, so the distinct products are its elements, in the same order.
    _, table = np.unique(products, axis=0, return_inverse=True)
    return table.reshape(order, order)


def list_swaps(group: str) -> np.ndarray:
    """List the elements that exchange two points, and the identity."""
    elements = GROUPS[group]
    moved = (elements != elements[0]).sum(axis=1)
    return np.flatnonzero((moved == 0) | (moved == 2))  # noqa: PLR2004


def draw(inputs: np.ndarray, length: int, seed: int, stream: int) -> np.ndarray:
    """Draw GROUP sequences of independent, uniform elements: a function of its arguments.

    Args:
        inputs: the elements to draw from.
        length: positions of a sequence.
        seed: seed of all splits.
        stream: number of the group of sequences, different for all splits and groups.
    Returns: (GROUP, length) uint8.
    """
    choices = RandomWords(seed, stream).draw_below(len(inputs), GROUP, length)
    return inputs.astype(np.uint8)[choices]


def running_products(group: str, tokens: np.ndarray) -> np.ndarray:
    """Multiply the elements of each sequence up to each position: (sequences, length) int8."""
    table = multiplication_table(group)
    products = np.empty(tokens.shape, dtype=np.int8)
    state = np.zeros(len(tokens), dtype=np.int64)
    for place in range(tokens.shape[1]):
        state = table[state, tokens[:, place]]
        products[:, place] = state
    return products


def hash_sequences(tokens: np.ndarray) -> np.ndarray:
    """Hash sequences (sequences, length) to (sequences,) uint64.

    Equal sequences have equal hashes. Two others have equal ones with probability 2**-61 or so.
    """
    factors = RandomWords(0, 0).draw(2 * tokens.shape[1]).view("<u8")
    hashes = np.zeros(len(tokens), dtype=np.uint64)
    for place, factor in enumerate(factors):
        hashes += tokens[:, place] * factor
    return hashes
