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
    """Scores examples. Results are read once, because each reading would wait for a GPU."""

    def __init__(self, split: Split, info: TaskInfo) -> None:
        self.split = split
        self._batches: list[tuple[np.ndarray, Tensor, Tensor]] = []

    def add(self, indices: np.ndarray, logits: Tensor, batch: Batch) -> None:
        """Take in the logits of a batch, whose examples have these indices in the split."""
        loss = compute_losses(logits, batch.labels)[0].sum()
        is_finite = logits.isfinite().all(dim=-1)
        classes = torch.where(is_finite, logits.argmax(dim=-1), NO_PREDICTION)
        self._batches.append((indices, loss, classes))

    def score(self, group: ProcessGroup) -> Score:
        """Return the score of what all processes took in."""
        own, loss = np.full(len(self.split), NO_PREDICTION, dtype=np.int64), 0.0
        if self._batches:
            indices, losses, classes = zip(*self._batches, strict=True)
            own[np.concatenate(indices)] = torch.cat(classes).cpu().numpy()
            loss = float(sum(torch.stack(losses).tolist()))
        predictions = NO_PREDICTION + _add(own - NO_PREDICTION, group)
        correct = int((predictions == self.split.labels).sum())
        non_finite = int((predictions == NO_PREDICTION).sum())
        (loss,) = group.sums_of([loss])
        total = len(self.split)
        return Score(correct, total, loss / total, predictions, non_finite)


class _PositionTally:
    """Scores positions, and adds up their losses by how far into their windows they are.

    Losses are read for many batches at once, because each reading would wait for a GPU.
    """

    def __init__(self, split: Split, info: TaskInfo) -> None:
        shape = len(split), int(bin_of(np.array(info.towers * info.max_length))) + 1
        self.split = split
        self.losses = np.zeros(shape)
        self.targets = np.zeros(shape)
        self.ideal = None if split.ideal_bits is None else np.zeros(shape)
        self.correct = 0
        self.non_finite = 0
        self._unread: list[tuple[np.ndarray, np.ndarray, Tensor]] = []

    def add(self, indices: np.ndarray, logits: Tensor, batch: Batch) -> None:
        """See `_ExampleTally.add`."""
        loss, correct = compute_losses(logits, batch.labels)
        is_right = correct & loss.isfinite()  # NaN has an argmax, too
        numbers = torch.stack([loss, is_right.float(), is_scored(batch.labels).float()])
        self._unread.append((indices, batch.lengths.sum(dim=1).numpy(), numbers))
        if sum(numbers.shape[1] for _, _, numbers in self._unread) > MOST_UNREAD:
            self._read()

    def _read(self) -> None:
        for indices, lengths, numbers in self._unread:
            loss, is_right, has_target = numbers.cpu().numpy()
            self.correct += round(is_right.sum(dtype=np.float64))
            self.non_finite += int((~np.isfinite(loss)).sum())
            place = np.arange(len(loss)) - _starts(lengths).repeat(lengths)
            where = (np.repeat(indices, lengths), bin_of(place))
            np.add.at(self.losses, where, loss)
            np.add.at(self.targets, where, has_target)
            if self.ideal is not None and self.split.ideal_bits is not None:
                nats = math.log(2) * self.split.ideal_bits[indices].astype(np.float64)
                np.add.at(self.ideal, where, nats.ravel())
        self._unread.clear()

    def score(self, group: ProcessGroup) -> Score:
        """See `_ExampleTally.score`."""
        self._read()
        loss, targets = _add(self.losses, group), _add(self.targets, group)
        ideal = None if self.ideal is None else _add(self.ideal, group)
        found = position_losses(loss, targets, self.split.metadata(), ideal)
        correct, non_finite = map(round, group.sums_of([self.correct, self.non_finite]))
        total = int(targets.sum())
        return Score(correct, total, float(loss.sum()) / total, None, non_finite, found)


class _TokenTally:
    """Scores the positions that have labels, example by example; see `_ExampleTally`."""

    def __init__(self, split: Split, info: TaskInfo) -> None:
        self.split = split
        self._batches: list[tuple[np.ndarray, Batch, Tensor, Tensor]] = []

    def add(self, indices: np.ndarray, logits: Tensor, batch: Batch) -> None:
        """See `_ExampleTally.add`."""
        loss, correct = compute_losses(logits, batch.labels)
        self._batches.append((indices, batch, loss, correct & loss.isfinite()))

    def score(self, group: ProcessGroup) -> Score:
        """See `_ExampleTally.score`."""
        outcomes = np.zeros((len(self.split), 3), dtype=np.int64)
        loss_sum, non_finite = 0.0, 0
        for indices, batch, losses, correct in self._batches:
            assert batch.scored is not None and batch.counts is not None
            loss, is_right, scored = (x.cpu().numpy() for x in (losses, correct, batch.scored))
            counts = batch.counts.numpy()
            example = np.repeat(indices, counts)
            place = scored - _starts(batch.lengths.sum(dim=1).numpy()).repeat(counts)
            loss_sum += float(loss.sum(dtype=np.float64))
            non_finite += int((~np.isfinite(loss)).sum())
            outcomes[indices, 0] = counts
            np.add.at(outcomes[:, 1], example[is_right], 1)
            # In reverse, so that the first wrong one of an example stays. From 1, so that 0 is
            # none.
            outcomes[example[~is_right][::-1], 2] = place[~is_right][::-1] + 1
        outcomes = _add(outcomes, group)
        outcomes[:, 2] -= 1
        total, correct, _ = outcomes.sum(axis=0).tolist()
        loss, non_finite = group.sums_of([loss_sum, non_finite])
        tokens = token_scores(outcomes, self.split.metadata())
        return Score(correct, total, loss / total, outcomes, round(non_finite), tokens=tokens)


def _starts(lengths: np.ndarray) -> np.ndarray:
    """Return where packed sequences of these lengths start."""
    return np.cumsum(lengths) - lengths


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


def compute_position_scores(
    score: Score | None, dataset: Dataset, val_loss: float | None = None
) -> PositionScores:
    """Describe what is measured where positions are targets.

    Args:
        score: of the test set; None as long as it is not known.
        val_loss: of the validation set, in nats.
    """
    text_bytes = dataset.splits["test"].text_bytes
    return PositionScores(
        val_loss=val_loss,
        loss=score.loss if score and math.isfinite(score.loss) else None,
        bits_per_byte=score and bits_per_byte_of(score.loss, score.total, text_bytes),
        perplexity=score and perplexity_of(score.loss),
        text_bytes=text_bytes,
        baseline_bits=dict(dataset.baseline_bits),
        lowest_bits=dict(dataset.lowest_bits),
        by_position=[] if score is None else score.positions,
    )


def _add(numbers: np.ndarray, group: ProcessGroup) -> np.ndarray:
    """Add the numbers of all processes: (examples, ...) -> the same shape."""
    return group.all_reduce_sum(torch.from_numpy(numbers)).numpy()
