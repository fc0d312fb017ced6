"""Groups: keep track of a running product, over longer sequences than in training.

These are the word problems of Merrill, Petty and Sabharwal, "The Illusion of State in State-Space
Models", ICML 2024 (arXiv:2404.08819), and jopetty/word-problem, src/generate_data.py. Inputs that
are only swaps are those of Grazzi et al. 2025 (arXiv:2411.12537), section E.2. Two generators as
inputs are those of (A5, 2) in Table 3 of PD-SSM (Terzic et al., NeurIPS 2025, arXiv:2509.22284).

Elements are permutations, numbered in lexicographic order; 0 is the identity. The product of x and
y is "first x, then y". The label of a position is the product of all elements up to it, from left
to right.
"""

import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, PositiveInt

from lra.common.progress import progress
from lra.tasks.base import SPLITS, DataSeed, TaskInfo
from lra.tasks.cache import Cache
from lra.tasks.generated import GROUP, Drawn, GeneratedTask
from lra.tasks.goals import PositionLabels
from lra.tasks.random_words import RandomWords
from lra.tasks.splits import LabelledTokens, Sequences

COUNTS = {"train": 1_600_000, "val": 2_000, "test": 40_000}
Length = Annotated[int, Field(ge=1, le=2**16)]


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
GENERATORS = {
    "S3": ([1, 0, 2], [1, 2, 0]),
    "A4": ([1, 2, 0, 3], [0, 2, 3, 1]),
    "A5": ([1, 2, 0, 3, 4], [1, 2, 3, 4, 0]),
    "S5": ([1, 0, 2, 3, 4], [1, 2, 3, 4, 0]),
    "Z60": ([*range(60)], [*range(1, 60), 0]),
}
"""Two elements of each group whose products are all elements."""


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


def list_generators(group: str) -> np.ndarray:
    """List the two elements of `GENERATORS`."""
    elements = GROUPS[group].tolist()
    return np.array([elements.index(generator) for generator in GENERATORS[group]])


INPUTS: dict[str, Callable[[str], np.ndarray]] = {
    "all": lambda group: np.arange(len(GROUPS[group])),
    "swaps": list_swaps,
    "generators": list_generators,
}
"""Which elements of a group are inputs, by the name of the choice."""


def draw_elements(inputs: np.ndarray, length: int, seed: int, stream: int) -> np.ndarray:
    """Draw independent, uniform elements from some: (GROUP, length) uint8.

    They depend on the arguments alone. Streams are different for all splits and groups.
    """
    choices = RandomWords(seed, stream).draw_below(len(inputs), GROUP, length)
    return inputs.astype(np.uint8)[choices]


def running_products(group: str, tokens: np.ndarray) -> np.ndarray:
    """Multiply the elements of each sequence up to each position: (sequences, length) int8."""
    table = multiplication_table(group)
    products = np.empty(tokens.shape, dtype=np.int8)
    state = np.zeros(len(tokens), dtype=np.int64)
    for position in range(tokens.shape[1]):
        state = table[state, tokens[:, position]]
        products[:, position] = state
    return products


def hash_sequences(tokens: np.ndarray) -> np.ndarray:
    """Hash sequences (sequences, length) to (sequences,) uint64.

    Equal sequences have equal hashes. Two others have equal ones with probability 2**-61 or so.
    """
    factors = RandomWords(0, 0).draw(2 * tokens.shape[1]).view("<u8")
    hashes = np.zeros(len(tokens), dtype=np.uint64)
    for position, factor in enumerate(factors):
        hashes += tokens[:, position] * factor
    return hashes


class Groups(GeneratedTask):
    """Say at every position what the product of all group elements up to it is.

    No two sequences of one length are equal, within a split or between splits. Validation sequences
    have the length of the test: models are selected for how well they generalise to it, as in the
    published experiments on lengths of up to 256 (PD-SSM). Word-problem validates on the length of
    training, and Grazzi et al. name no validation set.

    Args:
        group: S3 or S5 (permutations of 3 or 5 points), A4 or A5 (the even ones of 4 or 5), or Z60
            (rotations of a circle of 60 places).
        inputs: all elements of the group; swaps: only the identity and the exchanges of two points,
            of S3 or S5; or generators: only two elements, of our choosing, whose products are all
            elements. Tokens and labels are numbered in the same way in all cases.
        train_length: positions of a sequence of the training set.
        test_length: positions of a sequence of the validation set and the test set.
        train: sequences to train on.
        val: sequences to select on.
        test: sequences to test on.
        data_seed: seed of the generator.
    Raises: ValueError for swaps in a group without any, and for more than half of all sequences of
        a length.
    """

    name = "groups"
    default_counts = COUNTS

    def __init__(
        self,
        *,
        group: Literal["S3", "A4", "A5", "S5", "Z60"] = "S5",
        inputs: Literal["all", "swaps", "generators"] = "all",
        train_length: Length = 32,
        test_length: Length = 500,
        train: PositiveInt = COUNTS["train"],
        val: PositiveInt = COUNTS["val"],
        test: PositiveInt = COUNTS["test"],
        data_seed: DataSeed = 0,
    ) -> None:
        order = len(GROUPS[group])
        self.group = group
        self.inputs = INPUTS[inputs](group)
        if len(self.inputs) == 1:
            raise ValueError(
                f"inputs is swaps, but {group} has no element that exchanges two points; use "
                f"inputs=all, or group=S3 or S5"
            )
        self.positions = {"train": train_length, "val": test_length, "test": test_length}
        self.counts = {"train": train, "val": val, "test": test}
        for length in set(self.positions.values()):
            wanted = sum(self.counts[split] for split in SPLITS if self.positions[split] == length)
            if 2 * wanted > len(self.inputs) ** length:
                raise ValueError(
                    f"{wanted} different sequences of length {length} are asked for, but "
                    f"{len(self.inputs)} elements have {len(self.inputs) ** length}, of which at "
                    f"most half are drawn; use longer sequences, or fewer"
                )
        self.data_seed = data_seed
        self.info = TaskInfo(
            name=self.name,
            goal=PositionLabels(order),
            max_length=max(train_length, test_length),
            vocab_size=order,
        )

    def describe_law(self) -> dict[str, Any]:
        """See `GeneratedTask.describe_law`."""
        return {
            "group": self.group,
            "inputs": self.inputs.tolist(),
            "lengths": self.positions,
            "version": 1,
        }

    def mean_length(self, split: str) -> float:
        """See `GeneratedTask.mean_length`."""
        return self.positions[split]

    def draw(self) -> dict[str, np.ndarray]:
        """See `GeneratedTask.draw`."""
        seen = dict.fromkeys(self.positions.values(), np.zeros(0, dtype=np.uint64))
        arrays: dict[str, np.ndarray] = {}
        for split, length in self.positions.items():
            tokens = self._draw_different(split, seen[length])
            seen[length] = np.concatenate([seen[length], hash_sequences(tokens)])
            labels = running_products(self.group, tokens)
            lengths = np.full(len(tokens), length, dtype=np.int32)
            arrays |= Drawn(tokens.ravel(), lengths, labels.ravel()).arrays(split)
        return arrays

    def _draw_different(self, split: str, seen: np.ndarray) -> np.ndarray:
        """Draw different sequences, none of those with these hashes: (sequences, length) uint8."""
        count, length, first = self.counts[split], self.positions[split], SPLITS.index(split) << 32
        tokens, groups = np.empty((0, length), dtype=np.uint8), 0
        while len(tokens) < count:
            more = -(-(count - len(tokens)) // GROUP)
            numbers = progress(f"drawing {split}", range(groups, groups + more), unit="groups")
            new = [
                draw_elements(self.inputs, length, self.data_seed, first | number)
                for number in numbers
            ]
            tokens, groups = np.concatenate([tokens, *new]), groups + more
            hashes = np.concatenate([seen, hash_sequences(tokens)])
            kept = np.unique(hashes, return_index=True)[1] - len(seen)
            tokens = tokens[np.sort(kept[kept >= 0])]
        return tokens[:count]

    def open_split(self, cache: Cache, split: str) -> LabelledTokens:
        """See `GeneratedTask.open_split`."""
        drawn = Drawn.from_cache(cache, split)
        return LabelledTokens(Sequences(drawn.tokens, drawn.offsets), drawn.labels)

    @classmethod
    def change_length(cls, options: Mapping[str, Any], length: int) -> dict[str, Any]:
        """See `GeneratedTask.change_length`."""
        return {"test_length": length}
