"""The processes that train one model together: started by torchrun, or just this one."""

import contextlib
import inspect
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import PrefixStore, Store  # pyright: ignore[reportPrivateImportUsage]
from torch.distributed.rendezvous import rendezvous
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from lra.common.errors import KnownError, UserError
from lra.runtime.console import is_launched

T = TypeVar("T")

LONGEST_EXCHANGE = timedelta(minutes=30)
"""Time that a process waits for the others' part of an exchange, before it takes them for lost."""
LONGEST_PREPARATION = timedelta(days=7)
"""Time that a process waits for another one that still prepares its data."""


@dataclass(frozen=True, eq=False)
class ProcessGroup:
    """This process's place among those that train one model, and what they exchange.

    Each batch is divided among them, gradients are averaged, statistics of batch norms are of all
    processes' positions; so the result is that of one process, within rounding and but for the
    random numbers of dropout. The main process alone writes.

    All but gradients, buffers and statistics is exchanged on the CPU, so that no GPU is waited for.
    """

    rank: int
    world_size: int
    store: Store | None = None
    """Key-value store of torchrun; None without other processes, and in tests."""

    @property
    def is_main_process(self) -> bool:
        """Whether this is the process that writes."""
        return self.rank == 0

    def parallel(self, model: nn.Module, *, has_plug_in: bool) -> nn.Module:
        """Wrap a model so that its gradients are the mean over processes, norms synchronized.

        Buffers are equal in all processes, as they change in `begin_step` and in synchronized norms
        alone, so that no pass has to send them.

        Args:
            has_plug_in: whether it has code of the user's own, whose forward pass may leave out
                parameters and change buffers.
        Raises: UserError for a batch norm within a mixer, whose input may be of any shape.
        """
        if self.world_size == 1:
            return model
        for name, module in model.named_modules():
            if isinstance(module, _BatchNorm) and ".mixer." in name:
                raise UserError(
                    f"{name}: the mixer has a batch norm of its own, which each process of "
                    f"torchrun would take over its own examples; use one process, or another norm"
                )
            if isinstance(module, _BatchNorm):
                object.__setattr__(module, "is_synchronized", True)
        known = inspect.signature(DistributedDataParallel).parameters
        # torch 2.13 gave the option a new name, and warns of the old one.
        buffers = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
        options: dict[str, Any] = {"find_unused_parameters": has_plug_in, buffers: has_plug_in}
        # Without device_ids, which would move the lengths of sequences to the GPU, too.
        return DistributedDataParallel(model, **options)

    def share_buffers(self, model: nn.Module) -> None:
        """Give all processes the main one's buffers, which have changed at random."""
        for buffer in model.buffers() if self.world_size > 1 else ():
            dist.broadcast(buffer, src=0)

    def gradients_synchronized(
        self, model: nn.Module, synchronize: bool
    ) -> AbstractContextManager[None]:
        """Exchange the gradients of a wrapped model within it, or not: once a batch is enough."""
        if isinstance(model, DistributedDataParallel) and not synchronize:
            return model.no_sync()
        return contextlib.nullcontext()

    def seed_rank(self, seed: int, step: int) -> None:
        """Give each process but the main one random numbers of its own, by seed, rank and step."""
        if not self.is_main_process:
            torch.manual_seed((2**32 * self.rank + 2**16 * seed + step) % 2**63)

    def local_passes(self, examples: int, per_pass: int) -> Iterator[tuple[int, int, float]]:
        """List this process's forward passes of a batch.

        Args:
            examples: in the whole batch.
            per_pass: examples in a forward pass, over all processes.
        Returns: first and one past the last of this process's rows, in the order of
            `local_indices`, and the weight of their loss: what is too little to divide, every
            process computes.
        """
        start = 0
        for first in range(0, examples, per_pass):
            count = min(per_pass, examples - first)
            is_divided = count >= self.world_size
            rows = len(range(self.rank, count, self.world_size)) if is_divided else count
            yield start, start + rows, 1.0 if is_divided else 1.0 / self.world_size
            start += rows

    def local_indices(self, indices: np.ndarray, per_pass: int) -> np.ndarray:
        """Take this process's examples of a batch: (batch,) -> (own,), see `local_passes`."""
        size = self.world_size
        if size == 1:
            return indices
        passes = [indices[i : i + per_pass] for i in range(0, len(indices), per_pass)]
        return np.concatenate([p[self.rank :: size] if len(p) >= size else p for p in passes])

    def all_reduce_sum(self, numbers: Tensor) -> Tensor:
        """Add numbers of all processes, of any shape, in place."""
        if self.world_size > 1:
            dist.all_reduce(numbers)
        return numbers

    def sums_of(self, numbers: Sequence[float]) -> list[float]:
        """Add up numbers of every process, one after another, in one exchange."""
        return self.all_reduce_sum(torch.tensor(numbers, dtype=torch.float64)).tolist()

    def gather(self, value: T) -> list[T]:
        """Return the values of all processes, by rank."""
        if self.world_size == 1:
            return [value]
        gathered: list[Any] = [None] * self.world_size
        dist.all_gather_object(gathered, value)
        return gathered

    def on_main_process(self, make: Callable[[], Any]) -> Any:
        """Let the main process make something, and give it to all.

        Raises: UserError everywhere if the main process raises one, or DataError or OSError.
        """
        if self.world_size == 1:
            return make()
        made: list[Any] = [None, None]
        if self.is_main_process:
            try:
                made[0] = make()
            except (KnownError, OSError) as error:
                made[1] = str(error)
        dist.broadcast_object_list(made, src=0, device=torch.device("cpu"))
        value, fault = made
        if fault is not None:
            raise UserError(fault)
        return value

    def require_equal(self, subject: str, facts: Mapping[str, Any]) -> None:
        """Make sure that all processes have the same facts; all must call this.

        They go through the store, which waits for processes that still prepare their data.

        Args:
            subject: what the facts are about, one word; each comparison has its own.
            facts: plain values by name.
        Raises: UserError in every process, naming what differs.
        """
        if self.store is None:
            return
        self.store.set(f"{subject}/{self.rank}", json.dumps(facts, default=str))
        keys = [f"{subject}/{rank}" for rank in range(self.world_size)]
        self.store.wait(keys, LONGEST_PREPARATION)
        first, *others = (json.loads(self.store.get(key)) for key in keys)
        differences = [
            f"{name} is {first.get(name)} on rank 0 and {other.get(name)} on rank {rank}"
            for rank, other in enumerate(others, start=1)
            for name in dict.fromkeys([*first, *other])
            if first.get(name) != other.get(name)
        ]
        if differences:
            raise UserError(
                f"the processes of torchrun differ: {'; '.join(differences[:4])}. Start all of "
                f"them with the same command, code and data"
            )


SINGLE_PROCESS = ProcessGroup(0, 1)


def local_device(name: str) -> str:
    """Choose the --device of this process on its machine; torchrun gives each a GPU of its own."""
    if not is_launched():
        return name
    if ":" in name:
        raise UserError(f"--device {name}: several processes cannot share a GPU; use cuda")
    here = torch.cuda.device_count()
    if name == "cpu" or (name == "auto" and here == 0):
        return "cpu"
    local_rank = int(os.environ["LOCAL_RANK"])
    if local_rank >= here:
        raise UserError(
            f"torchrun --nproc-per-node: process {local_rank + 1} here, but {here} GPUs"
        )
    return f"cuda:{local_rank}"


@contextlib.contextmanager
def join_processes(
    device: torch.device, list_facts: Callable[[], Mapping[str, Any]]
) -> Iterator[ProcessGroup]:
    """Join the processes that torchrun started, and leave them; without it, this process is all.

    Args:
        list_facts: lists by name what all processes must have in common to train one model.
    Raises: UserError if the facts differ, or another process is gone.
    """
    if not is_launched():
        yield SINGLE_PROCESS
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    with explain_lost_peers():
        store, rank, world_size = next(rendezvous("env://"))
        if int(os.environ["LOCAL_WORLD_SIZE"]) == world_size:
            # Hide what the processes before a restart left; several machines count differently.
            store = PrefixStore(os.environ["TORCHELASTIC_RESTART_COUNT"], store)
        group = ProcessGroup(rank, world_size, PrefixStore("lra", store))
        group.require_equal("settings", list_facts())
        is_done = False
        try:
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
                store=store,
                rank=rank,
                world_size=world_size,
                timeout=LONGEST_EXCHANGE,
            )
            yield group
            is_done = True
        finally:
            # gloo's threads need Python's lock to free the tensors of their last exchange. The
            # destructor of the group waits for them and holds it (torch 2.13), so they go first.
            time.sleep(0.2)
            # After a failure NCCL could wait for processes that are gone; the exit frees all.
            if dist.is_initialized() and (is_done or device.type == "cpu"):
                dist.destroy_process_group()


@contextlib.contextmanager
def explain_lost_peers() -> Iterator[None]:
    """Turn the errors that torch raises when another process is gone into a UserError.

    Plug-ins may have wrapped them, as they appear within the backward pass too.

    Raises: UserError that says whether another process is gone, or lives and hangs.
    """
    try:
        yield
    except Exception as error:
        for each in (error, error.__cause__):
            is_of_gloo = isinstance(each, RuntimeError) and "gloo" in str(each).lower()
            if is_of_gloo or isinstance(each, dist.DistError):
                said = str(each).splitlines()[0][:150]
                fate = "hangs" if "timed out" in said.lower() else "ended or cannot be reached"
                raise UserError(
                    f"another process of this run {fate} ({said}). The same command resumes the "
                    f"run from its last checkpoint"
                ) from None
        raise
