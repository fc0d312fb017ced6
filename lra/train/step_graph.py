"""Training steps that a GPU launches as a whole, as one CUDA graph."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from common.errors import UserError
from lra.runtime.environment import is_out_of_memory
from tasks.base import Batch

WARMUP_STEPS = 3
"""Steps before the capture, in which libraries, tables and the optimizer's moments are set up."""


class StepGraph:
    """A training step that is captured once and replayed for every batch of the same shape.

    A replay repeats the kernels of the capture on the same memory. What changes between steps is
    therefore copied there first: the batch and the learning rates.

    Args:
        make_step: computes a batch's gradient, makes the optimizer's step, and returns numbers of
            the step on the device, and its targets. It must not wait for the device or copy from
            the CPU.
        optimizer: the one that `make_step` uses; no state may be loaded into it after the capture.
    """

    def __init__(
        self, make_step: Callable[[Batch], tuple[Tensor, int]], optimizer: torch.optim.Optimizer
    ) -> None:
        self.make_step = make_step
        self.optimizer = optimizer
        self._stream = torch.cuda.Stream()
        self._warm_steps = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        """The captured step; None before the capture."""

    def __call__(self, batch: Batch) -> tuple[Tensor, int]:
        """Make a step for a batch on the device, always of the same shape and lengths.

        Raises: UserError for a model whose step cannot be captured.
        """
        if self._warm_steps < WARMUP_STEPS:
            self._warm_steps += 1
            return self._warm_up(batch)
        if self.graph is None:
            self.graph = self._capture(batch)
        self._batch.inputs.copy_(batch.inputs)
        self._batch.labels.copy_(batch.labels)
        for group, rate in zip(self.optimizer.param_groups, self._rates, strict=True):
            rate.fill_(group["lr"])
        self.graph.replay()
        return self._numbers.clone(), self._targets

    def _warm_up(self, batch: Batch) -> tuple[Tensor, int]:
        """Make an ordinary step on the stream of the capture."""
        current = torch.cuda.current_stream()
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            made = self.make_step(batch)
        current.wait_stream(self._stream)
        return made

    def _capture(self, batch: Batch) -> torch.cuda.CUDAGraph:
        """Record the kernels of a step without running them."""
        self._batch = Batch(batch.inputs.clone(), batch.lengths, batch.labels.clone())
        first = self.optimizer.param_groups[0]["params"][0]
        self._rates = [first.new_zeros(()) for _ in self.optimizer.param_groups]
        graph = torch.cuda.CUDAGraph()
        try:
            with (
                _capturable(self.optimizer, self._rates),
                torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"),
            ):
                self._numbers, self._targets = self.make_step(self._batch)
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            what = str(error).partition("\n")[0]
            raise UserError(
                f"train.cuda_graphs: a step of this model cannot be captured ({what}); use --set "
                f"train.cuda_graphs=false"
            ) from error
        return graph


@contextlib.contextmanager
def _capturable(optimizer: torch.optim.Optimizer, rates: list[Tensor]) -> Iterator[None]:
    """Let an optimizer read learning rates (scalars on the device) at each replay."""
    groups = optimizer.param_groups
    before = [{key: group[key] for key in ("lr", "capturable")} for group in groups]
    for group, rate in zip(groups, rates, strict=True):
        group.update(lr=rate, capturable=True)
    try:
        yield
    finally:
        for group, values in zip(groups, before, strict=True):
            group.update(values)
