"""Batches on a GPU in memory that stays, as a captured step reads them."""

from __future__ import annotations

import torch
from torch import Tensor

from common.tensors import send
from lra.classifier.classifier import Classifier
from lra.classifier.layouts import Layout
from lra.classifier.packing import FixedPacking, pack
from tasks.batch import Batch


class FixedPart:
    """The examples of one forward pass, padded to a layout; see `Batch` for its tensors.

    Args:
        model: the model that reads it.
        part: examples that the layout holds.
        layout: a layout of the model's packed positions, CLS included.
        most_targets: rows of `scored`, if the part has it.
    """

    def __init__(
        self, model: Classifier, part: Batch, layout: Layout, most_targets: int | None
    ) -> None:
        self.embedding, self.goal = model.embedding, model.goal
        lengths, device = self._lengths_of(part), part.inputs.device
        self.packing = (
            pack(lengths, device) if layout.is_full else FixedPacking(lengths, device, layout)
        )
        positions = layout.capacity - int((lengths - part.lengths.flatten()).sum())
        self.inputs = part.inputs.new_zeros(positions, *part.inputs.shape[1:])
        labels = len(part.labels)
        if part.scored is not None:
            labels = most_targets or labels
        elif self.goal.of_positions:
            labels = positions
        self.labels = part.labels.new_zeros(labels, *part.labels.shape[1:])
        self.scored = None if part.scored is None else part.scored.new_zeros(labels)

    def fill(self, part: Batch) -> None:
        """Copy other examples here. What is left of earlier ones has no label."""
        self.inputs[: len(part.inputs)].copy_(part.inputs)
        if isinstance(self.packing, FixedPacking):
            self.packing.refill(self._lengths_of(part))
        if len(part.labels) < len(self.labels):
            self.labels.fill_(self.goal.unscored)
        self.labels[: len(part.labels)].copy_(part.labels)
        if self.scored is not None and part.scored is not None:
            self.scored[: len(part.scored)].copy_(part.scored)

    def _lengths_of(self, part: Batch) -> Tensor:
        return self.embedding.add_cls(part.lengths.flatten())


class FixedBatch:
    """The examples of a step, in one or more parts of equal size.

    Args:
        model: see `FixedPart`.
        batch: the first examples.
        layout: see `FixedPart`.
        part_size: examples of a part.
        most_targets: see `FixedPart`.
    """

    def __init__(
        self,
        model: Classifier,
        batch: Batch,
        layout: Layout,
        part_size: int,
        most_targets: int | None,
    ) -> None:
        self.part_size = part_size
        self.size = len(batch.lengths)
        self.parts = [
            FixedPart(model, batch.rows(start, start + part_size), layout, most_targets)
            for start in range(0, self.size, part_size)
        ]
        self.targets = torch.zeros((), device=batch.inputs.device)
        """() float32, number of targets, at least 1."""

    def __len__(self) -> int:
        return self.size

    def rows(self, start: int, stop: int) -> FixedPart:
        """Return the part that begins with an example."""
        assert stop - start == self.part_size
        return self.parts[start // self.part_size]

    def fill(self, batch: Batch, targets: int) -> None:
        """Copy a batch here, which has so many targets."""
        for i, part in enumerate(self.parts):
            part.fill(batch.rows(i * self.part_size, (i + 1) * self.part_size))
        self.targets.fill_(max(1, targets))


def copy_numbers(numbers: list[float], target: Tensor) -> None:
    """Copy real numbers to a tensor (count,) on a device, without a wait."""
    target.copy_(send(torch.tensor(numbers, dtype=target.dtype), target.device))
