"""Evaluation: every example once, in batches of like length."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from common.progress import is_live
from lra.classifier.loss import compute_losses, is_scored
from lra.record.run import NO_PREDICTION
from lra.record.scores import PositionLoss, PositionScores, TokenScores
from lra.runtime.distributed import SINGLE_PROCESS, ProcessGroup
from lra.train.scores import bin_of, bits_per_byte_of, perplexity_of, position_losses, token_scores
from models.layers.long_convolution import cache_kernels
from tasks.base import Batch, Dataset, Split, TaskInfo
from tasks.order import evaluation_batches

logger = logging.getLogger(__name__)

MOST_UNREAD = 2**24
"""Largest number of positions whose losses an evaluation keeps on the device."""


@dataclass(frozen=True)
class Score:
    """Sums over a split."""

    correct: int
    total: int
    """Targets: examples, or positions."""
    loss: float
    """Mean over targets, in nats; not finite where logits are not."""
    predictions: np.ndarray | None = field(compare=False)
    """(examples,) predicted class of each example, in the order of the split; NO_PREDICTION, which
    is right nowhere, where its logits are not finite. Where some positions have labels (examples,
    3): labelled positions, those predicted right, and the first wrong one, or NO_PREDICTION. None
    where the next tokens are targets."""
    non_finite: int = 0
    """Targets whose logits are not finite, which count as wrong."""
    positions: list[PositionLoss] = field(default_factory=list, compare=False)
    """Where the next tokens are targets, their losses by where they stand."""
    tokens: TokenScores | None = None
    """Where some positions have labels, the accuracies of the split's segments."""

    @property
    def accuracy(self) -> float:
        """Percent; where some positions have labels the mean over segments."""
        return 100.0 * self.correct / self.total if self.tokens is None else self.tokens.accuracy

    @property
    def merit(self) -> float:
        """What the best model has most of: accuracy, or where positions are targets 100 over the
        perplexity; in percent.
        """
        return self.accuracy if self.predictions is not None else 100.0 * math.exp(-self.loss)


def autocast_of(precision: str, device: torch.device) -> torch.autocast:
    """Return the context that forward passes of a precision run in: fp32 or bf16."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")


class _ExampleTally:
    """Scores examples. Results are read once, as each reading would wait for a GPU."""

    def __init__(self, split: Split, info: TaskInfo) -> None:
        self.split = split
        self.predictions = np.full(len(split), NO_PREDICTION, dtype=np.int64)
        self.loss = 0.0
        self._indices: list[np.ndarray] = []
        self._losses: list[Tensor] = []
        self._found: list[Tensor] = []

    def add(self, indices: np.ndarray, logits: Tensor, batch: Batch) -> None:
        """Take in the logits of a batch, whose examples have these indices in the split."""
        self._indices.append(indices)
        self._losses.append(compute_losses(logits, batch.labels)[0].sum())
        is_sound = logits.isfinite().all(dim=-1)
        self._found.append(torch.where(is_sound, logits.argmax(dim=-1), NO_PREDICTION))

    def _read(self) -> None:
        if self._indices:
            for loss in torch.stack(self._losses).tolist():
                self.loss += loss
            self.predictions[np.concatenate(self._indices)] = torch.cat(self._found).cpu().numpy()

    def score(self, group: ProcessGroup) -> Score:
        """Return the score of what all processes took in."""
        self._read()
        total = len(self.split)
        predictions = NO_PREDICTION + _added(self.predictions - NO_PREDICTION, group)
        correct = int((predictions == self.split.labels).sum())
        non_finite = int((predictions == NO_PREDICTION).sum())
        (loss,) = group.sums_of([self.loss])
        return Score(correct, total, loss / total, predictions, non_finite)


class _PositionTally:
    """Scores positions, and adds up their losses by how far into their windows they are.

    Losses are read for many batches at once, as each reading would wait for a GPU.
    """

    def __init__(self, split: Split, info: TaskInfo) -> None:
        shape = len(split), int(bin_of(np.array(info.towers * info.max_length))) + 1
        self.losses = np.zeros(shape)
        self.targets = np.zeros(shape)
        self.ideal = None if split.ideal_bits is None else np.zeros(shape)
        self.correct = 0
        self.non_finite = 0
        self.split = split
        self._unread: list[tuple[np.ndarray, np.ndarray, Tensor]] = []

    def add(self, indices: np.ndarray, logits: Tensor, batch: Batch) -> None:
        """See `_ExampleTally.add`."""
        loss, correct = compute_losses(logits, batch.labels)
        is_right = correct & loss.isfinite()  # NaN has an argmax, too
        flags = is_right.to(loss.dtype), is_scored(batch.labels).to(loss.dtype)
        numbers = torch.stack([loss, *flags])
        self._unread.append((indices, batch.lengths.sum(dim=1).numpy(), numbers))
        if sum(held.shape[1] for _, _, held in self._unread) > MOST_UNREAD:
            self._read()

    def _read(self) -> None:
        if not self._unread:
            return
        numbers = torch.cat([held for _, _, held in self._unread], dim=1).cpu().numpy()
        self.correct += round(numbers[1].sum(dtype=np.float64))
        self.non_finite += int((~np.isfinite(numbers[0])).sum())
        start = 0
        for indices, lengths, _ in self._unread:
            stop = start + int(lengths.sum())
            first = np.cumsum(lengths) - lengths
            place = bin_of(np.arange(stop - start) - np.repeat(first, lengths))
            where = (np.repeat(indices, lengths), place)
            np.add.at(self.losses, where, numbers[0, start:stop])
            np.add.at(self.targets, where, numbers[2, start:stop])
            if self.ideal is not None and self.split.ideal_bits is not None:
                nats = math.log(2) * self.split.ideal_bits[indices].astype(np.float64)
                np.add.at(self.ideal, where, nats.ravel())
            start = stop
        self._unread.clear()

    def score(self, group: ProcessGroup) -> Score:
        """See `_ExampleTally.score`."""
        self._read()
        loss, targets = _added(self.losses, group), _added(self.targets, group)
        total = int(targets.sum())
        ideal = None if self.ideal is None else _added(self.ideal, group)
        found = position_losses(loss, targets, self.split.metadata(), ideal)
        counts = group.sums_of([self.correct, self.non_finite])
        correct, non_finite = map(round, counts)
        return Score(correct, total, float(loss.sum()) / total, None, non_finite, found)


class _TokenTally:
    """Scores the positions that have labels, example by example; see `_ExampleTally`."""

    def __init__(self, split: Split, info: TaskInfo) -> None:
        self.split = split
        self.outcomes = np.zeros((len(split), 3), dtype=np.int64)
        self.loss = 0.0
        self.non_finite = 0
        self._unread: list[tuple[np.ndarray, Batch, Tensor, Tensor]] = []

    def add(self, indices: np.ndarray, logits: Tensor, batch: Batch) -> None:
        """See `_ExampleTally.add`."""
        loss, correct = compute_losses(logits, batch.labels)
        self._unread.append((indices, batch, loss, correct & loss.isfinite()))

    def _read(self) -> None:
        for indices, batch, losses, correct in self._unread:
            assert batch.scored is not None and batch.counts is not None
            loss, is_right, scored = (x.cpu().numpy() for x in (losses, correct, batch.scored))
            counts, lengths = batch.counts.numpy(), batch.lengths.sum(dim=1).numpy()
            example = np.repeat(indices, counts)
            place = scored - np.repeat(np.cumsum(lengths) - lengths, counts)
            self.loss += float(loss.sum(dtype=np.float64))
            self.non_finite += int((~np.isfinite(loss)).sum())
            self.outcomes[indices, 0] = counts
            np.add.at(self.outcomes[:, 1], example[is_right], 1)
            # From the last to the first, so that the first wrong one of an example stays. From 1
            # on, so that 0 is none.
            self.outcomes[example[~is_right][::-1], 2] = place[~is_right][::-1] + 1
        self._unread.clear()

    def score(self, group: ProcessGroup) -> Score:
        """See `_ExampleTally.score`."""
        self._read()
        outcomes = _added(self.outcomes, group)
        outcomes[:, 2] -= 1
        total, correct, _ = outcomes.sum(axis=0).tolist()
        loss, non_finite = group.sums_of([self.loss, self.non_finite])
        tokens = token_scores(outcomes, self.split.metadata())
        return Score(correct, total, loss / total, outcomes, round(non_finite), tokens=tokens)


_TALLIES = {"example": _ExampleTally, "position": _PositionTally, "token": _TokenTally}
"""By what a task's targets are."""


@dataclass(frozen=True, kw_only=True)
class Evaluator:
    """Applies a model to a split in evaluation mode, and leaves its mode as it was."""

    model: nn.Module
    batch_size: int
    device: torch.device
    precision: str
    check: Callable[[], None] = lambda: None
    """Called before every batch; what it raises ends the evaluation."""
    title: str = ""
    """Text of the progress bar, which shows on a terminal only; without it there is none."""
    group: ProcessGroup = SINGLE_PROCESS
    """The processes that divide the batches."""

    def compute_logits(
        self,
        split: Split,
        receive: Callable[[np.ndarray, Tensor, Batch], None],
        examples: np.ndarray | None = None,
    ) -> None:
        """Compute logits, each batch's in inference mode.

        Args:
            receive: is given the places of a batch in `examples`, (batch,), its logits, and itself.
            examples: indices in the split, (examples,). None: all.
        """
        chosen = np.arange(len(split)) if examples is None else examples
        was_training = self.model.training
        self.model.eval()
        try:
            with torch.inference_mode(), cache_kernels():
                # The longest first: kernels made for them serve all, and what does not fit fails.
                batches = evaluation_batches(split.lengths[chosen], self.batch_size)[::-1]
                batches = batches[self.group.rank :: self.group.world_size]
                is_hidden = not self.title or not is_live()
                for places in tqdm(batches, desc=self.title, leave=False, disable=is_hidden):
                    self.check()
                    batch = split.batch(chosen[places]).to(self.device)
                    with autocast_of(self.precision, self.device):
                        logits = self.model(*batch.model_inputs)
                    receive(places, logits, batch)
        finally:
            self.model.train(was_training)

    def score(self, split: Split, info: TaskInfo) -> Score:
        """Score the model on a split of a task; each process gets the whole score.

        A warning says for how many targets the logits are not finite.
        """
        tally = _TALLIES[info.targets](split, info)
        self.compute_logits(split, tally.add)
        score = tally.score(self.group)
        if score.non_finite:
            logger.warning(
                f"{self.title}: the logits of {score.non_finite:,} of {score.total:,} "
                f"{info.targets}s are not finite; they count as wrong"
            )
        return score


def compute_position_scores(score: Score | None, dataset: Dataset) -> PositionScores:
    """Describe what is measured where positions are targets.

    Args:
        score: of the test set; None as long as it is not known.
    """
    text_bytes = dataset.splits["test"].text_bytes
    return PositionScores(
        loss=score.loss if score and math.isfinite(score.loss) else None,
        bits_per_byte=score and bits_per_byte_of(score.loss, score.total, text_bytes),
        perplexity=score and perplexity_of(score.loss),
        text_bytes=text_bytes,
        baseline_bits=dict(dataset.baseline_bits),
        lowest_bits=dict(dataset.lowest_bits),
        by_position=[] if score is None else score.positions,
    )


def _added(numbers: np.ndarray, group: ProcessGroup) -> np.ndarray:
    """Add the numbers of all processes: (examples, ...) -> the same shape."""
    return group.all_reduce_sum(torch.from_numpy(numbers)).numpy()
