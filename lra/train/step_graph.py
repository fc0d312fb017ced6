"""Training steps that a GPU launches as a whole, as CUDA graphs: one for each layout of batches."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from common.errors import UserError
from lra.classifier.classifier import Classifier
from lra.classifier.layouts import Layout, find_layout
from lra.runtime.environment import is_out_of_memory
from lra.train.fixed_batch import FixedBatch, copy_numbers
from tasks.batch import Batch

logger = logging.getLogger(__name__)

WARMUP_STEPS = 3
"""Ordinary steps of a layout before its capture, in which libraries, tables and the optimizer's
moments are set up."""
LEAST_REPEATS = 20
"""Steps of each layout from which on captures, which take as long as several steps, are worth it.
"""


@dataclass
class _Shape:
    """The steps of one layout."""

    batch: FixedBatch
    steps: int = 0
    graph: torch.cuda.CUDAGraph | None = None
    """The captured step; None before the capture."""
    numbers: Tensor | None = None
    """What the captured step computes."""
    read: list[Any] = field(default_factory=list)
    """Memory that the captured step reads, which nothing else may own any longer."""


class StepGraphs:
    """Training steps that are captured once for each layout, and replayed for its other batches.

    A replay repeats the kernels of the capture on the same memory. What changes between steps is
    therefore copied there first: the batch and the learning rates. All graphs share a pool of
    memory, as they never run at the same time.

    Args:
        make_step: computes a batch's gradient, makes the optimizer's step, and returns numbers of
            the step on the device. It must not wait for the device or copy from the CPU.
        model: the model that it trains.
        optimizer: the one that `make_step` uses; no state may be loaded into it after a capture.
        layouts: the layouts of batches, CLS included.
        part_size: examples of a forward pass.
        most_targets: most targets of a forward pass, where some positions have targets.
    """

    def __init__(
        self,
        make_step: Callable[[FixedBatch], Tensor],
        model: Classifier,
        optimizer: torch.optim.Optimizer,
        *,
        layouts: Sequence[Layout],
        part_size: int,
        most_targets: int | None = None,
    ) -> None:
        self.make_step = make_step
        self.model = model
        self.optimizer = optimizer
        self.layouts = list(layouts)
        self.part_size = part_size
        self.most_targets = most_targets
        self.shapes: dict[Layout, _Shape] = {}
        """By layout, what its batches have in common."""
        self._stream = torch.cuda.Stream()
        self._pool: Any = None
        groups = optimizer.param_groups
        self._rates = groups[0]["params"][0].new_zeros(len(groups), dtype=torch.float32)

    def __call__(self, batch: Batch, targets: int) -> Tensor | None:
        """Make a step for a full batch on the device, which has so many targets.

        Returns: the numbers of `make_step`; None, without a step, for a batch that no layout holds.
        Raises: UserError for a model whose step cannot be captured.
        """
        layout = self._find_layout(batch)
        if layout is None:
            return None
        if layout not in self.shapes:
            fixed = FixedBatch(self.model, batch, layout, self.part_size, self.most_targets)
            self.shapes[layout] = _Shape(fixed)
        shape = self.shapes[layout]
        shape.batch.fill(batch, targets)
        shape.steps += 1
        if shape.graph is None:
            return self._warm_up(shape)
        assert shape.numbers is not None
        copy_numbers([group["lr"] for group in self.optimizer.param_groups], self._rates)
        shape.graph.replay()
        return shape.numbers.clone()

    def _find_layout(self, batch: Batch) -> Layout | None:
        if self.most_targets is not None and len(batch.labels) > self.most_targets:
            counts = batch.label_counts.view(-1, self.part_size).sum(dim=1)
            if int(counts.max()) > self.most_targets:
                return None
        lengths = self.model.embedding.add_cls(batch.lengths)
        return find_layout(self.layouts, sort_parts(lengths.numpy(), self.part_size))

    def _warm_up(self, shape: _Shape) -> Tensor:
        """Make an ordinary step on the stream of the capture; after the last one, capture it."""
        is_last = shape.steps >= WARMUP_STEPS
        current = torch.cuda.current_stream()
        self._stream.wait_stream(current)
        with (
            torch.cuda.stream(self._stream),
            _note_waits() if is_last else contextlib.nullcontext([]) as waits,
        ):
            numbers = self.make_step(shape.batch)
        current.wait_stream(self._stream)
        if is_last and (reason := self._find_obstacle(waits)) is not None:
            logger.warning(f"training steps are not CUDA graphs: {reason}")
            self.layouts.clear()
        elif is_last:
            # Tables that the model caches are there now; other layouts may displace them later.
            self._capture(shape)
        return numbers

    def _find_obstacle(self, waits: list[str]) -> str | None:
        """Say why a step that was made cannot be captured."""
        if waits:
            return "a step of this model waits for the GPU"
        held = torch.cuda.memory_allocated()
        free = torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved() - held
        if 2 * (torch.cuda.max_memory_allocated() - held) > free:
            return "memory does not suffice for the activations of a graph and of other steps"
        return None

    def _capture(self, shape: _Shape) -> None:
        """Record the kernels of a step without running them."""
        graph, kept = torch.cuda.CUDAGraph(), _KeepRead()
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        try:
            with (
                _capturable(self.optimizer, self._rates),
                torch.cuda.graph(
                    graph,
                    pool=self._pool,
                    stream=self._stream,
                    capture_error_mode="thread_local",
                ),
                kept,
            ):
                shape.numbers = self.make_step(shape.batch)
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            what = str(error).partition("\n")[0]
            raise UserError(
                f"train.cuda_graphs: a step of this model cannot be captured ({what}); use --set "
                f"train.cuda_graphs=false"
            ) from error
        shape.graph, shape.read = graph, kept.storages


def sort_parts(lengths: np.ndarray, part_size: int) -> np.ndarray:
    """Sort the lengths of a batch, (examples, towers), for `find_layout`.

    Args:
        part_size: examples of each part.
    Returns: (parts, sequences) lengths, in falling order.
    """
    parts = lengths.reshape(-1, part_size * lengths.shape[1])
    return -np.sort(-parts, axis=1)


class _KeepRead(TorchDispatchMode):
    """Keeps the memory that a computation reads and has not made itself."""

    def __init__(self) -> None:
        super().__init__()
        self.storages: list[Any] = []
        self._known: dict[int, StorageWeakRef] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.storages += self._find_new((args, kwargs))
        result = func(*args, **(kwargs or {}))
        self._find_new(result)
        return result

    def _find_new(self, value: Any) -> list[Any]:
        """List the memory of tensors that appears for the first time."""
        storages = [x.untyped_storage() for x in tree_leaves(value) if isinstance(x, Tensor)]
        found = {one._cdata: one for one in storages if one._cdata not in self._known}
        # A weak reference keeps the number from being used again.
        self._known |= {number: StorageWeakRef(one) for number, one in found.items()}
        return [*found.values()]


@contextlib.contextmanager
def _note_waits() -> Iterator[list[str]]:
    """List, once it is over, each time that a computation waits for the GPU."""
    before, noted = torch.cuda.get_sync_debug_mode(), []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield noted
        finally:
            torch.cuda.set_sync_debug_mode(before)
    texts = [str(warning.message) for warning in caught]
    noted += [text for text in texts if "called a synchronizing" in text]


@contextlib.contextmanager
def _capturable(optimizer: torch.optim.Optimizer, rates: Tensor) -> Iterator[None]:
    """Let an optimizer read learning rates, (groups,) on the device, at each replay."""
    groups = optimizer.param_groups
    before = [{key: group[key] for key in ("lr", "capturable")} for group in groups]
    for group, rate in zip(groups, rates.unbind(), strict=True):
        group.update(lr=rate, capturable=True)
    try:
        yield
    finally:
        for group, values in zip(groups, before, strict=True):
            group.update(values)
