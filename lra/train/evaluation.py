"""Evaluation: every example once, in batches of like length."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from lra.common.progress import is_live
from lra.goals.scorer import Output, Score, Scorer
from lra.models.layers.kernel_cache import cache_kernels
from lra.runtime.distributed import SINGLE_PROCESS, ProcessGroup
from lra.tasks.base import Batch, Split
from lra.tasks.batch import evaluation_batches
from lra.train.gradient import autocast_of

logger = logging.getLogger(__name__)


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

    def score(self, split: Split, scorer: Scorer) -> Score:
        """Score the model on a split; each process gets the whole score.

        A warning says for how many targets the logits are not finite.
        """
        outputs: list[Output] = []

        def receive(places: np.ndarray, logits: Tensor, batch: Batch) -> None:
            lengths = batch.lengths.sum(dim=1).numpy()
            kept = scorer.keep(logits, batch)
            outputs.append(Output(places, lengths, batch.label_counts.numpy(), kept))

        self.compute_logits(split, receive)
        score = scorer.score(_read(outputs), split, self._add)
        if score.non_finite:
            what = "positions" if scorer.goal.of_positions else "examples"
            logger.warning(
                f"{self.title}: the logits of {score.non_finite:,} of {score.total:,} {what} are "
                f"not finite; {scorer.result.of_non_finite}"
            )
        return score

    def _add(self, numbers: np.ndarray) -> np.ndarray:
        return self.group.all_reduce_sum(torch.from_numpy(numbers)).numpy()


def _read(outputs: Sequence[Output]) -> list[Output]:
    """Copy outputs to the CPU, together, because each copy waits for a GPU."""
    columns: list[Sequence[Tensor]] = []
    for tensors in zip(*(output.kept for output in outputs), strict=True):
        columns.append(torch.cat(tensors).cpu().split([len(tensor) for tensor in tensors]))
    return [
        output._replace(kept=kept)
        for output, kept in zip(outputs, zip(*columns, strict=True), strict=True)
    ]
