"""The processes that train one model together: started by torchrun, or just this one."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from common.errors import KnownError
from lra.runtime.errors import UserError
from lra.runtime.launch import is_launched, launch_number
from lra.runtime.peers import (
    LONGEST_EXCHANGE,
    LostPeer,
    Peers,
    connect,
    explain_lost_peers,
    select_attempt,
)
from lra.runtime.synchronized_norm import SynchronizedBatchNorm, synchronize_norms

T = TypeVar("T")


class ProcessGroup:
    """This process's place among those that train one model, and what they exchange.

    Each batch is divided among them, gradients are averaged, statistics of batch norms are of all
    processes' positions; so the result is that of one process, within rounding and but for the
    random numbers of dropout. The main process alone writes.

    All but gradients, buffers and statistics is exchanged on the CPU, so that no GPU is waited for.

    Args:
        peers: the other processes; None without any, and in tests.
    """

    def __init__(self, rank: int, world_size: int, peers: Peers | None = None) -> None:
        self.rank = rank
        self.world_size = world_size
        self.peers = peers

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
        Raises: UserError for a norm that cannot be synchronized.
        """
        if self.world_size == 1:
            return model
        synchronize_norms(model)
        options: dict[str, Any] = {"find_unused_parameters": has_plug_in}
        known = inspect.signature(DistributedDataParallel).parameters
        # torch 2.13 gave the option a new name, and warns of the old one.
        is_new = "forward_sync_buffers" in known
        options["forward_sync_buffers" if is_new else "broadcast_buffers"] = has_plug_in
        # Without device_ids, which would move the lengths of sequences to the GPU, too.
        return DistributedDataParallel(model, **options)

    def share_buffers(self, model: nn.Module) -> None:
        """Give all processes the main one's buffers, which have changed at random."""
        for buffer in model.buffers() if self.world_size > 1 else ():
            dist.broadcast(buffer, src=0)

    def gradients_synchronized(
        self, model: nn.Module, synchronize: bool, *, is_divided: bool
    ) -> AbstractContextManager[None]:
        """Exchange the gradients of a wrapped model within it, or not: once a batch is enough.

        Args:
            is_divided: whether each process has its own part of the pass, see `local_passes`.
        """
        for module in model.modules() if self.world_size > 1 else ():
            if isinstance(module, SynchronizedBatchNorm):
                module.is_divided = is_divided
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
            own = len(range(self.rank, count, self.world_size)) if is_divided else count
            yield start, start + own, 1.0 if is_divided else 1.0 / self.world_size
            start += own

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

    def any_of(self, *wishes: bool) -> list[bool]:
        """Return which of some wishes any process has, the same to all."""
        if self.world_size == 1:
            return [*wishes]
        return [count > 0 for count in self.sums_of([float(wish) for wish in wishes])]

    def all_reduce_max(self, number: float) -> float:
        """Return the largest of all processes' numbers."""
        if self.world_size == 1:
            return number
        held = torch.tensor([number], dtype=torch.float64)
        dist.all_reduce(held, dist.ReduceOp.MAX)
        return held.item()

    def broadcast(self, value: T) -> T:
        """Return the main process's value."""
        if self.world_size == 1:
            return value
        held = [value]
        dist.broadcast_object_list(held, src=0, device=torch.device("cpu"))
        return held[0]

    def first_reason(self, reason: str | None) -> str | None:
        """Return a reason that a process has, the same to all; None if none has."""
        return next((one for one in self.gather(reason) if one is not None), None)

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
        made: dict[str, Any] = {}
        if self.is_main_process:
            try:
                made = {"value": make()}
            except (KnownError, OSError) as error:
                made = {"error": str(error)}
        made = self.broadcast(made)
        if "error" in made:
            raise UserError(made["error"])
        return made["value"]

    def require_equal(self, subject: str, facts: Mapping[str, Any]) -> None:
        """Make sure that all processes have the same facts, see `Peers.compare`."""
        if self.peers is not None:
            self.peers.compare(subject, facts)


SINGLE_PROCESS = ProcessGroup(0, 1)


def local_device(name: str) -> str:
    """Choose the --device of this process on its machine.

    Raises: UserError for a GPU of one number, which several processes cannot all have.
    """
    if not is_launched():
        return name
    if ":" in name:
        raise UserError(f"--device {name}: torchrun gives each process a GPU of its own; use cuda")
    here = torch.cuda.device_count()
    if name == "cpu" or (name == "auto" and here == 0):
        return "cpu"
    local_rank = launch_number("LOCAL_RANK")
    if local_rank >= here:
        raise UserError(
            f"torchrun --nproc-per-node: process {local_rank + 1} here, but {here} GPUs"
        )
    return f"cuda:{local_rank}"


@contextlib.contextmanager
def join_processes(
    device: torch.device,
    list_facts: Callable[[], Mapping[str, Any]],
    on_lost: Callable[[LostPeer], object],
) -> Iterator[ProcessGroup]:
    """Join the processes that torchrun started, and leave them; without it, this process is all.

    Args:
        list_facts: lists by name what all processes must have in common to train one model.
        on_lost: see `Peers`.
    Raises: UserError in every process if the facts differ; LostPeer if another process is gone.
    """
    if not is_launched():
        yield SINGLE_PROCESS
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    with explain_lost_peers():
        store, rank, world_size = next(rendezvous("env://"))
        peers = Peers(rank, world_size, connect(), on_lost)
        is_done = False
        try:
            peers.compare("settings", list_facts())
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
                store=select_attempt(store),
                rank=rank,
                world_size=world_size,
                timeout=timedelta(seconds=LONGEST_EXCHANGE),
            )
            yield ProcessGroup(rank, world_size, peers)
            is_done = True
        finally:
            peers.leave(regularly=is_done)
            # After a failure NCCL could wait for processes that are gone; the exit frees all.
            if dist.is_initialized() and (is_done or device.type == "cpu"):
                dist.destroy_process_group()
