"""The few shapes that the batches of a training run are padded to, chosen by their cost.

A captured training step (`lra.train.step_graph`) repeats its kernels on the same memory, so it
serves batches of one shape. Lengths differ from batch to batch, but sorted by length, the batches
of a data set resemble each other. Similar ones share a layout.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

MOST_LAYOUTS = 12
"""Layouts of a training run."""
SAMPLED_BATCHES = 512
"""Batches that layouts are chosen from."""
GROUP_COST = 1024
"""Cost of another group, in positions of padding. In a captured step, a kernel for fewer positions
takes hardly less time."""
LENGTH_STEP = 16
"""Lengths of groups are multiples of it, as the kernels of a GPU prefer."""
RARE = 0.02
"""Share of the batches that may have no layout."""
MARGIN = 0.05
"""Share by which the largest layout exceeds the sampled batches, so that others fit, too."""


@dataclass(frozen=True)
class Layout:
    """Shapes that batches are padded to: for mixers in groups, elsewhere at the end."""

    groups: tuple[tuple[int, int], ...]
    """Sequences and padded length of each group, the longest first."""
    least: int
    """Fewest real positions of a batch."""
    capacity: int
    """Rows of the packed form. A batch has fewer real positions, unless all batches are equal."""

    @property
    def is_full(self) -> bool:
        """Whether all batches are the same: sequences of one length, without padding."""
        return self.least == self.capacity

    @property
    def padded(self) -> int:
        """Positions of all groups, with padding."""
        return sum(rows * length for rows, length in self.groups)

    @property
    def cost(self) -> int:
        """Positions of both forms, and the cost of the groups in positions."""
        return self.padded + self.capacity + GROUP_COST * len(self.groups)

    @functools.cached_property
    def row_lengths(self) -> np.ndarray:
        """(sequences,) padded length of each sequence, in falling order."""
        rows, lengths = zip(*self.groups, strict=True)
        return np.repeat(lengths, rows)

    def holds(self, lengths: np.ndarray) -> bool:
        """Whether a batch fits: lengths (sequences,) in falling order."""
        total = int(lengths.sum())
        if self.is_full:
            return total == self.capacity and bool((lengths == lengths[0]).all())
        return self.least <= total < self.capacity and bool((lengths <= self.row_lengths).all())


def find_layout(layouts: Sequence[Layout], parts: np.ndarray) -> Layout | None:
    """Return the cheapest layout that holds all parts of a batch; None if there is none.

    Args:
        parts: (parts, sequences) lengths, in falling order, of the parts of a batch that are
            computed one after another.
    """
    fitting = [layout for layout in layouts if all(layout.holds(part) for part in parts)]
    return min(fitting, key=lambda layout: layout.cost, default=None)


def choose_layouts(batches: np.ndarray, longest: int) -> list[Layout]:
    """Choose at most `MOST_LAYOUTS` layouts for batches like the given ones.

    From one layout for each batch on, the two whose union costs the least more are united, until
    few are left. One more has room for batches that are larger than these. Batches whose
    sequences all have one length have a layout of their own if they are most.

    Args:
        batches: (batches, parts, sequences) lengths, in falling order.
        longest: length of the longest sequence of the data set.
    """
    length, rows = int(np.median(batches)), batches.shape[2]
    is_full = (batches == length).all(axis=(1, 2))
    if is_full.mean() > 0.5:  # noqa: PLR2004
        full = Layout(((rows, length),), rows * length, rows * length)
        others = batches[~is_full]
        is_rare = len(others) < RARE * len(batches)
        return [full] if is_rare else [full, *_choose_padded(others, longest, MOST_LAYOUTS - 1)]
    return _choose_padded(batches, longest, MOST_LAYOUTS)


def _choose_padded(batches: np.ndarray, longest: int, most_layouts: int) -> list[Layout]:
    """See `choose_layouts`."""
    totals = batches.sum(axis=2)
    lengths = _round_up(batches.max(axis=1), longest)
    corners = np.column_stack([lengths, totals.max(axis=1), -totals.min(axis=1)])
    united = _unite(corners, most_layouts - 1)
    layouts = [_build_layout(*corner, share=MARGIN / 5) for corner in _split(united)]
    greatest, most, least = next(_split(corners.max(axis=0)[None]))
    greatest = _round_up((1 + MARGIN) * greatest, longest)
    return [*layouts, _build_layout(greatest, most, least, share=MARGIN)]


def describe_padding(layouts: Sequence[Layout], batches: np.ndarray) -> str:
    """Say what was chosen for batches (batches, parts, sequences), and what it costs."""
    chosen = [(find_layout(layouts, parts), parts.sum()) for parts in batches]
    fitting = [(layout, real) for layout, real in chosen if layout is not None]
    parts, real = batches.shape[1], sum(real for _, real in fitting)
    if not fitting or all(layout.is_full for layout, _ in fitting):
        return "1 shape of batches, without padding"
    padded = sum(parts * layout.padded for layout, _ in fitting)
    packed = sum(parts * layout.capacity for layout, _ in fitting)
    groups = [len(layout.groups) for layout in layouts]
    return (
        f"{len(layouts)} shapes of batches, in {min(groups)} to {max(groups)} groups of lengths "
        f"with the least cost: padding is {1 - real / padded:.0%} of the positions in mixers and "
        f"{1 - real / packed:.0%} elsewhere; {len(fitting) / len(chosen):.1%} of the batches fit"
    )


def _round_up(lengths: np.ndarray, longest: int) -> np.ndarray:
    return np.minimum(-(-lengths // LENGTH_STEP) * LENGTH_STEP, longest).astype(np.int64)


def _split(corners: np.ndarray) -> Iterator[tuple[np.ndarray, int, int]]:
    """Take corners of `_unite` apart: lengths, most and fewest real positions."""
    for row in corners:
        yield row[:-2], int(row[-2]), -int(row[-1])


def _unite(corners: np.ndarray, count: int) -> np.ndarray:
    """Unite rows by their elementwise maxima until at most `count` are left.

    Args:
        corners: (batches, sequences + 2) padded lengths, most real positions, and minus the
            fewest; the cost of a row is the sum of all but the last, times its number of batches.
    """
    corners, weights = corners.copy(), np.ones(len(corners))
    costs = corners[:, :-1].sum(axis=1).astype(np.float64)

    def compare(i: int) -> np.ndarray:
        """Compute how much more the union of i with each other row costs than both alone."""
        together = np.maximum(corners[:, :-1], corners[i, :-1]).sum(axis=1)
        more = together * (weights + weights[i]) - costs * weights - costs[i] * weights[i]
        more[i] = np.inf
        more[weights == 0] = np.inf
        return more

    table = np.stack([compare(i) for i in range(len(corners))])
    for _ in range(len(corners) - count):
        i, j = np.unravel_index(table.argmin(), table.shape)
        corners[i] = np.maximum(corners[i], corners[j])
        weights[i], weights[j] = weights[i] + weights[j], 0
        costs[i] = corners[i, :-1].sum()
        table[j] = table[:, j] = np.inf
        table[i] = table[:, i] = compare(int(i))
    return corners[weights > 0]


def _build_layout(lengths: np.ndarray, most: int, least: int, *, share: float) -> Layout:
    """Build the layout of the lowest cost, with a share of more room.

    Args:
        lengths: (sequences,) in falling order, that each sequence needs at most.
    """
    count = len(lengths)
    lowest, cuts = np.full(count + 1, np.inf), np.zeros(count + 1, dtype=np.int64)
    lowest[0] = 0
    for end in range(1, count + 1):  # the last group of the first `end` sequences begins at a cut
        costs = lowest[:end] + (end - np.arange(end)) * lengths[:end] + GROUP_COST
        cuts[end], lowest[end] = costs.argmin(), costs.min()
    groups, end = [], count
    while end:
        first = int(cuts[end])
        groups.insert(0, (end - first, int(lengths[first])))
        end = first
    padded = sum(rows * length for rows, length in groups)
    capacity = min(padded, int((1 + share) * most) + 1)
    return Layout(tuple(groups), max(count, int((1 - 2 * share) * least)), capacity)
