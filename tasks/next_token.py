"""Splits whose targets are positions: each is to say which token comes next."""

import functools

import numpy as np
import torch

from lra.tasks.base import Split, TaskInfo
from lra.tasks.batch import Batch
from lra.tasks.goals import NOT_SCORED
from lra.tasks.splits import as_tensor, check_tokens, list_places, send_together, take


class TokenWindows(Split):
    """Windows of a long sequence of tokens; the label of a position is the token after it.

    Args:
        tokens: (total,) unsigned integers.
        starts: (examples,) place of each window's first input among the tokens.
        lengths: (examples,) positions of each window; the token after its last one is there, too.
        skipped: (examples,) positions at each window's start that are not scored, as another
            window scores them. None: all are scored.
        fields: metadata of the windows, see `Split.metadata`.
        text_bytes: see `Split.text_bytes`.
        ideal_bits: see `Split.ideal_bits`.
    """

    stored = ("tokens",)

    def __init__(
        self,
        tokens: np.ndarray,
        starts: np.ndarray,
        lengths: np.ndarray,
        *,
        skipped: np.ndarray | None = None,
        fields: dict[str, np.ndarray] | None = None,
        text_bytes: int | None = None,
        ideal_bits: np.ndarray | None = None,
    ) -> None:
        self.array = tokens
        self.tokens = as_tensor(tokens)
        self.starts = starts.astype(np.int64)
        self.lengths = lengths.astype(np.int64)
        self.skipped = np.zeros_like(self.lengths) if skipped is None else skipped.astype(np.int64)
        self.text_bytes = text_bytes
        self.ideal_bits = ideal_bits
        self.fields = fields or {}

    @functools.cached_property
    def labels(self) -> np.ndarray:  # pyright: ignore[reportIncompatibleVariableOverride]
        """(targets,) the tokens to be predicted, window after window."""
        where = list_places(self.starts + self.skipped, self.lengths - self.skipped)
        return self.array[where + 1]

    def check(self, info: TaskInfo) -> None:
        """See `Split.check`."""
        ends = self.starts + self.lengths
        if not len(self) or self.lengths.min() < 1 or self.lengths.max() > info.max_length:
            raise ValueError(f"windows are none, or not of 1 to {info.max_length} positions")
        if self.starts.min() < 0 or ends.max() >= len(self.array):
            raise ValueError("a window ends outside what is stored")
        if (self.skipped < 0).any() or (self.skipped >= self.lengths).any():
            raise ValueError("a window has no target")
        check_tokens(self.array, info)

    def assemble(self, indices: np.ndarray) -> Batch:
        """See `Split.assemble`."""
        lengths = self.lengths[indices]
        where, unscored = send_together(
            self.tokens.device,
            list_places(self.starts[indices], lengths),
            list_places(np.cumsum(lengths) - lengths, self.skipped[indices]),
        )
        labels = take(self.tokens, where + 1)
        labels[unscored] = NOT_SCORED
        sizes, targets = torch.from_numpy(lengths), lengths - self.skipped[indices]
        inputs = take(self.tokens, where)
        return Batch(inputs, sizes[:, None], labels, sizes, torch.from_numpy(targets))


def windows(
    total: int, length: int, stride: int | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cut a sequence of tokens into windows in which each token but the first is scored once.

    Args:
        total: tokens, at least 2.
        length: most positions of a window.
        stride: positions from one window's start to the next one's; where windows overlap, the
            earlier one scores what they have in common. None: they do not overlap.
    Returns: starts, lengths and skipped positions, (windows,) int64 each; see `TokenWindows`.
    """
    stride = length if stride is None else stride
    targets = total - 1
    starts = np.arange(0, max(1, targets - length + stride), stride)
    lengths = np.minimum(length, targets - starts)
    ends = starts + lengths
    skipped = np.concatenate([[0], ends[:-1] - starts[1:]])
    return starts, lengths, skipped
