"""Groups: keep track of a running product, over longer sequences than in training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, PositiveInt

from common.progress import progress
from tasks.base import TaskInfo
from tasks.generated import GROUP, SPLITS, Drawn, SequenceTask
from tasks.groups.law import GROUPS, draw, hash_sequences, list_swaps, running_products
from tasks.labelled import LabelledTokens

COUNTS = {"train": 1_600_000, "val": 2_000, "test": 40_000}
Length = Annotated[int, Field(ge=1, le=2**16)]


class Groups(SequenceTask):
    """Say at every position what the product of all group elements up to it is.

    No two sequences of one length are equal, within a split or between splits. Validation sequences
    have the length of the test: models are selected for how well they generalise to it, as in the
    published experiments on lengths of up to 256 (PD-SSM). Word-problem validates on the length of
    training, and Grazzi et al. name no validation set.

    Args:
        group: S3 or S5 (permutations of 3 or 5 points), A4 or A5 (the even ones of 4 or 5), or Z60
            (rotations of a circle of 60 places).
        inputs: all elements of the group, or swaps: only the identity and the exchanges of two
            points, of S3 or S5. Tokens and labels are numbered in the same way in both cases.
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
        inputs: Literal["all", "swaps"] = "all",
        train_length: Length = 32,
        test_length: Length = 500,
        train: PositiveInt = COUNTS["train"],
        val: PositiveInt = COUNTS["val"],
        test: PositiveInt = COUNTS["test"],
        data_seed: Annotated[int, Field(ge=0, lt=2**63)] = 0,
    ) -> None:
        order = len(GROUPS[group])
        self.group = group
        self.inputs = list_swaps(group) if inputs == "swaps" else np.arange(order)
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
            num_classes=order,
            max_length=max(train_length, test_length),
            vocab_size=order,
            targets="token",
        )

    def describe_law(self) -> dict[str, Any]:
        """See `GeneratedTask.describe_law`."""
        return {
            "group": self.group,
            "inputs": self.inputs.tolist(),
            "lengths": self.positions,
            "version": 1,
        }

    def describe_sequences(self) -> str:
        """See `GeneratedTask.describe_sequences`."""
        return f"sequences of up to {self.info.max_length:,} elements of {self.group}"

    def draw(self) -> dict[str, Drawn]:
        """See `SequenceTask.draw`."""
        seen: dict[int, np.ndarray] = {}
        drawn: dict[str, Drawn] = {}
        for split, length in self.positions.items():
            tokens = self._draw_different(split, seen.get(length, np.zeros(0, dtype=np.uint64)))
            hashes = hash_sequences(tokens)
            seen[length] = np.concatenate([seen[length], hashes]) if length in seen else hashes
            labels = running_products(self.group, tokens)
            lengths = np.full(len(tokens), length, dtype=np.int32)
            drawn[split] = Drawn(tokens.ravel(), lengths, labels.ravel())
        return drawn

    def _draw_different(self, split: str, seen: np.ndarray) -> np.ndarray:
        """Draw different sequences of a split.

        Args:
            split: name of the split.
            seen: hashes of the sequences that must not be drawn.
        Returns: (sequences, length) uint8.
        """
        count, length, first = self.counts[split], self.positions[split], SPLITS.index(split) << 32
        tokens, groups = np.empty((0, length), dtype=np.uint8), 0
        while len(tokens) < count:
            more = -(-(count - len(tokens)) // GROUP)
            numbers = progress(f"drawing {split}", range(groups, groups + more), unit="groups")
            new = [draw(self.inputs, length, self.data_seed, first | number) for number in numbers]
            tokens, groups = np.concatenate([tokens, *new]), groups + more
            hashes = np.concatenate([seen, hash_sequences(tokens)])
            kept = np.unique(hashes, return_index=True)[1] - len(seen)
            tokens = tokens[np.sort(kept[kept >= 0])]
        return tokens[:count]

    def open_split(self, drawn: Drawn) -> LabelledTokens:
        """See `SequenceTask.open_split`."""
        return LabelledTokens(drawn.tokens, drawn.offsets, drawn.labels)

    @classmethod
    def fresh(
        cls, options: Mapping[str, Any], *, length: int | None, examples: int
    ) -> dict[str, Any]:
        """See `Task.fresh`: draws new sequences."""
        drawn = super().fresh(options, length=length, examples=examples)
        return drawn if length is None else {**drawn, "test_length": length}
