"""A task's inputs as their own targets: masked positions, or what stands at the next one."""

import dataclasses

import numpy as np
import torch

from lra.common.errors import DataError
from lra.common.tensors import send
from lra.tasks.base import Dataset, Split, TaskInfo
from lra.tasks.batch import Batch
from lra.tasks.goals import Goal, InputValues, NextToken
from lra.tasks.random_words import RandomWords

VALIDATION_SEED = 2310_02980
"""Seed of the masks of a validation split, which are always the same."""


class NextInputs(Split):
    """The examples of another split; each position is to tell the input of the next one.

    Labels are tokens, (positions,); or real numbers, (positions, channels) float32. The last
    position of a sequence has no target.

    Args:
        split: the examples.
        goal: says which label a position without a target has.
    """

    stored = ("split",)
    labels = np.zeros(0, dtype=np.int64)
    """None beforehand: they are made with each batch."""

    def __init__(self, split: Split, goal: Goal) -> None:
        self.split = split
        self.unscored = goal.unscored
        self.lengths = split.lengths

    def assemble(self, indices: np.ndarray) -> Batch:
        """See `Split.assemble`."""
        batch = self.split.assemble(indices)
        inputs, lengths = batch.inputs, batch.lengths
        labels = torch.roll(inputs, -1, dims=0)
        ends = torch.cumsum(lengths.flatten(), 0) - 1
        labels[send(ends, labels.device)] = self.unscored
        counts = lengths.sum(dim=1)
        return Batch(inputs, lengths, labels, counts, counts - lengths.shape[1])


class MaskedInputs(NextInputs):
    """The examples of another split, some positions of which are hidden, and are to be told.

    A hidden token becomes one that no example has, the `vocab_size`-th; a hidden vector zeros, and
    a further channel says which are hidden. Masks of training are drawn by torch's generator, so
    that they are new each time and follow the run's seed.

    Args:
        split, goal: see `NextInputs`.
        share: how likely a position is hidden; one of each sequence is in any case.
        mask_token: what stands in the place of tokens; None if inputs are real numbers.
        is_fixed: whether the masks of a batch are the same each time.
    """

    def __init__(
        self, split: Split, goal: Goal, share: float, mask_token: int | None, *, is_fixed: bool
    ) -> None:
        super().__init__(split, goal)
        self.share = share
        self.mask_token = mask_token
        self.is_fixed = is_fixed

    def assemble(self, indices: np.ndarray) -> Batch:
        """See `Split.assemble`."""
        batch = self.split.assemble(indices)
        inputs, lengths = batch.inputs, batch.lengths.flatten()
        if self.is_fixed:
            words = RandomWords(VALIDATION_SEED, int(indices[0])).draw(len(inputs))
            draws = torch.from_numpy(words.astype(np.float64) / 2**32)
        else:
            draws = torch.rand(len(inputs), dtype=torch.float64)
        lowest = torch.segment_reduce(draws, "min", lengths=lengths)
        hidden = draws <= lowest.clamp(min=self.share).repeat_interleave(lengths)
        counts = batch.lengths.sum(dim=1)
        targets = torch.segment_reduce(hidden.double(), "sum", lengths=counts).long()
        hidden = send(hidden, inputs.device)
        if self.mask_token is None:
            labels = inputs.masked_fill(~hidden[:, None], self.unscored)
            mark = hidden[:, None].to(inputs.dtype)
            inputs = torch.cat([inputs.masked_fill(hidden[:, None], 0), mark], dim=1)
        else:
            labels = inputs.masked_fill(~hidden, self.unscored)
            inputs = inputs.masked_fill(hidden, self.mask_token)
        return Batch(inputs, batch.lengths, labels, counts, targets)


def build_pretraining_data(
    info: TaskInfo, dataset: Dataset, objective: str, masked_share: float
) -> tuple[TaskInfo, Dataset]:
    """Make the inputs of a data set its targets.

    Args:
        info: of the task.
        dataset: with splits train and val.
        objective: masked or next.
        masked_share: see `MaskedInputs`.
    Returns: what a model must know of it; and the data set, with these two splits.
    Raises: DataError if no position of a split has a next one.
    """
    goal = InputValues(info.channels or 0)
    if info.vocab_size is not None:
        goal = NextToken(info.vocab_size)
    train, val = dataset.splits["train"], dataset.splits["val"]
    if objective == "masked":
        share, token = masked_share, info.vocab_size
        splits: dict[str, Split] = {
            "train": MaskedInputs(train, goal, share, token, is_fixed=False),
            "val": MaskedInputs(val, goal, share, token, is_fixed=True),
        }
    elif min(train.lengths.max(), val.lengths.max()) > 1:
        splits = {"train": NextInputs(train, goal), "val": NextInputs(val, goal)}
    else:
        raise DataError(
            f"all sequences of a split of {info.name} have one position, and pretrain.objective "
            f"next needs a next one; use masked"
        )
    more = int(objective == "masked")
    changed = dataclasses.replace(
        info,
        goal=goal,
        vocab_size=None if info.vocab_size is None else info.vocab_size + more,
        channels=None if info.channels is None else info.channels + more,
    )
    return changed, dataclasses.replace(dataset, splits=splits)
