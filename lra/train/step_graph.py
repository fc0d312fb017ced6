"""Training steps that a GPU launches as a whole, as a CUDA graph."""

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lra.common.errors import UserError
from lra.common.tensors import send
from lra.config.schema import RunConfig
from lra.runtime.environment import is_out_of_memory
from lra.tasks.base import Split
from lra.tasks.batch import Batch
from lra.train.gradient import Gradient

logger = logging.getLogger(__name__)

WARMUP_STEPS = 3
"""Ordinary steps before the capture, in which libraries, tables and the optimizer's moments are set
up."""
LEAST_STEPS = 20
"""Steps of a run from which on a capture, which takes as long as several steps, is worth it."""
MOST_SHORTER = 1e-3
"""Most examples, as a share, that may be shorter than the others, as the last window of a text is.
Batches with one take ordinary steps."""

MakeStep = Callable[[Batch, int, int], Tensor]
"""Makes a training step, of this process's examples and the numbers of examples and targets in the
whole batch. It returns what `Gradient.compute` does."""


def build_step(
    config: RunConfig,
    gradient: Gradient,
    optimizer: torch.optim.Optimizer,
    split: Split,
    total_steps: int,
) -> MakeStep:
    """Build what makes the steps of a run: a `StepGraph`, or a line says why it is none.

    Args:
        split: the training examples.
    """

    def make_step(batch: Batch, examples: int, targets: int) -> Tensor:
        numbers = gradient.compute(batch, examples, max(1, targets))
        optimizer.step()
        return numbers

    wanted = config.train.cuda_graphs
    if not wanted or (wanted == "auto" and gradient.device.type != "cuda"):
        return make_step
    log = logger.info if wanted == "auto" else logger.warning
    if (reason := find_obstacle(config, gradient, split, total_steps)) is not None:
        log(f"training steps are not CUDA graphs: {reason}")
        return make_step
    return StepGraph(make_step, optimizer, min(config.train.batch_size, len(split)), log)


def find_obstacle(
    config: RunConfig, gradient: Gradient, split: Split, total_steps: int
) -> str | None:
    """Say why the steps of a run cannot be CUDA graphs, or None if they can."""
    part, full = gradient.micro_batch, min(config.train.batch_size, len(split))
    obstacles = {
        "the device is not CUDA": gradient.device.type != "cuda",
        "several processes train together": gradient.group.world_size > 1,
        "log.internals measures ordinary steps": config.log.internals,
        "schedule onecycle changes beta1 at each step": config.train.schedule == "onecycle",
        "examples have several lengths":
            (split.lengths < split.lengths.max()).mean() > MOST_SHORTER,
        f"micro-batches of {part} do not divide a batch of {full} evenly":
            full % min(part, full) > 0,
        "blocks that are computed again set the state of random numbers during a step":
            gradient.model.checkpoint_activations,
        f"a run of {total_steps} steps is too short for a capture to pay off":
            config.train.cuda_graphs == "auto" and total_steps < LEAST_STEPS,
    }  # fmt: skip
    return next((text for text, holds in obstacles.items() if holds), None)


class StepGraph:
    """Training steps that are captured once, and replayed for each batch like the first full one.

    A replay repeats the kernels of the capture on the same memory. What changes between steps is
    therefore copied there first: the batch and the learning rates. Lengths and numbers of labels
    and targets are those of the capture, so batches with others take ordinary steps.

    Args:
        make_step: makes an ordinary step on the device, with the optimizer. It must not wait for
            the device or copy from the CPU.
        optimizer: no state may be loaded into it after the capture.
        full_batch: examples of a full batch.
        log: writes a line that says why steps are no graphs.
    """

    def __init__(
        self,
        make_step: MakeStep,
        optimizer: torch.optim.Optimizer,
        full_batch: int,
        log: Callable[[str], None],
    ) -> None:
        self.make_step = make_step
        self.optimizer = optimizer
        self.full_batch = full_batch
        self.log = log
        self.graph: torch.cuda.CUDAGraph | None = None
        """The captured step; None before the capture."""
        self._is_possible = True
        self._warm_steps = 0
        self._batch: Batch | None = None
        """The memory that full batches are copied to."""
        self._targets = 0
        self._stream = torch.cuda.Stream()
        groups = optimizer.param_groups
        self._rates = groups[0]["params"][0].new_zeros(len(groups), dtype=torch.float32)

    def __call__(self, batch: Batch, examples: int, targets: int) -> Tensor:
        """Make a step; see `MakeStep`.

        Raises: UserError for a model whose step cannot be captured.
        """
        if not self._is_possible or examples < self.full_batch:
            return self.make_step(batch, examples, targets)
        if self._batch is None:
            self._batch, self._targets = _clone(batch), targets
        held = self._batch
        if targets != self._targets or not _have_same_shape(batch, held):
            if self.graph is None:
                self._give_up("batches differ in lengths or in their numbers of targets")
            return self.make_step(batch, examples, targets)
        held.inputs.copy_(batch.inputs)
        held.labels.copy_(batch.labels)
        if held.scored is not None and batch.scored is not None:
            held.scored.copy_(batch.scored)
        if self.graph is None:
            return self._warm_up(held)
        rates = [group["lr"] for group in self.optimizer.param_groups]
        self._rates.copy_(send(torch.tensor(rates, dtype=torch.float32), self._rates.device))
        self.graph.replay()
        return self._numbers.clone()

    def _give_up(self, reason: str) -> None:
        self._is_possible, self._batch = False, None
        self.log(f"training steps are not CUDA graphs: {reason}")

    def _warm_up(self, batch: Batch) -> Tensor:
        """Make an ordinary step on the stream of the capture; after the last one, capture it."""
        self._warm_steps += 1
        is_last = self._warm_steps >= WARMUP_STEPS
        current = torch.cuda.current_stream()
        self._stream.wait_stream(current)
        with (
            torch.cuda.stream(self._stream),
            _note_waits() if is_last else contextlib.nullcontext([]) as waits,
        ):
            numbers = self.make_step(batch, len(batch), self._targets)
        current.wait_stream(self._stream)
        if is_last and (reason := _find_obstacle_of_step(waits)) is not None:
            self._give_up(reason)
        elif is_last:
            # Tables that the model caches are there now; others may displace them later.
            self._capture(batch)
        return numbers

    def _capture(self, batch: Batch) -> None:
        """Record the kernels of a step without running them."""
        graph, kept = torch.cuda.CUDAGraph(), _KeepRead()
        try:
            with (
                _capturable(self.optimizer, self._rates),
                torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"),
                kept,
            ):
                self._numbers = self.make_step(batch, len(batch), self._targets)
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            what = str(error).partition("\n")[0]
            raise UserError(
                f"train.cuda_graphs: a step of this model cannot be captured ({what}); use --set "
                f"train.cuda_graphs=false"
            ) from error
        self.graph, self._read = graph, kept.storages
        logger.info("training steps are a CUDA graph from now on")


def _clone(batch: Batch) -> Batch:
    """Copy what a batch has on the device."""
    inputs, labels, scored = batch.inputs.clone(), batch.labels.clone(), batch.scored
    scored = None if scored is None else scored.clone()
    return replace(batch, inputs=inputs, labels=labels, scored=scored)


def _have_same_shape(a: Batch, b: Batch) -> bool:
    """Whether the examples of two batches have equal lengths and numbers of labels, in order."""
    return torch.equal(a.lengths, b.lengths) and torch.equal(a.label_counts, b.label_counts)


def _find_obstacle_of_step(waits: list[str]) -> str | None:
    """Say why a step that was made cannot be captured.

    Args:
        waits: see `_note_waits`.
    """
    if waits:
        return "a step of this model waits for the GPU"
    held = torch.cuda.memory_allocated()
    free = torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved() - held
    if 2 * (torch.cuda.max_memory_allocated() - held) > free:
        return "memory does not suffice for the activations of a graph and of other steps"
    return None


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
        new = {storage._cdata: storage for storage in storages if storage._cdata not in self._known}
        # A weak reference keeps the number from being used again.
        self._known |= {number: StorageWeakRef(storage) for number, storage in new.items()}
        return [*new.values()]


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
