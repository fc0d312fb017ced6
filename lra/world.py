"""The processes that train one model together: started by torchrun, or just this one."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from lra.errors import UserError
from lra.synchronized_norm import synchronize_norms
from tasks.base import DataError

LONGEST_REASON = 200
"""Bytes."""


class World:
    """This process's place among those that train one model, and what they agree on.

    Each batch is shared out, gradients are averaged, statistics of batch norms are of all
    processes' positions; so the result is that of one process, within rounding and but for the
    random numbers of dropout. The first process alone writes.

    Args:
        device: that this process computes on; it holds what is exchanged.
    """

    def __init__(self, rank: int, size: int, device: torch.device) -> None:
        self.rank = rank
        self.size = size
        self.device = device

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes."""
        return self.rank == 0

    def parallel(self, model: nn.Module, *, some_idle: bool) -> nn.Module:
        """Wrap a model so that its gradients are the mean over processes, norms made common.

        Args:
            some_idle: whether parameters may be there that its forward pass does not use.
        Raises: UserError for a norm that cannot be made common.
        """
        if self.size == 1:
            return model
        synchronize_norms(model)
        # Without device_ids, which would move the lengths of sequences to the GPU, too.
        return DistributedDataParallel(model, find_unused_parameters=some_idle)

    def exchanging(self, model: nn.Module, exchange: bool) -> AbstractContextManager[None]:
        """Exchange the gradients of a wrapped model, or not: once a batch is enough."""
        if isinstance(model, DistributedDataParallel) and not exchange:
            return model.no_sync()
        return contextlib.nullcontext()

    def part_randomness(self, seed: int, step: int) -> None:
        """Give each process but the first random numbers of its own, by seed, place and step."""
        if not self.is_first:
            torch.manual_seed((2**32 * self.rank + 2**16 * seed + step) % 2**63)

    def passes(self, examples: int, at_once: int) -> Iterator[tuple[int, int, float]]:
        """List this process's part of a batch's forward passes.

        Args:
            examples: in the whole batch.
            at_once: of them per pass, over all processes.
        Returns: first and one past the last of this process's rows, in the order of `share`, and
            the share of their loss that it counts: what is too little for all, each computes.
        """
        start = 0
        for first in range(0, examples, at_once):
            count = min(at_once, examples - first)
            shared = count >= self.size
            own = len(range(self.rank, count, self.size)) if shared else count
            yield start, start + own, 1.0 if shared else 1.0 / self.size
            start += own

    def share(self, indices: np.ndarray, at_once: int) -> np.ndarray:
        """Take this process's part of a batch: (batch,) -> (own,), see `passes`."""
        if self.size == 1:
            return indices
        parts = [indices[i : i + at_once] for i in range(0, len(indices), at_once)]
        own = [p[self.rank :: self.size] if len(p) >= self.size else p for p in parts]
        return np.concatenate(own)

    def sum(self, numbers: Tensor) -> Tensor:
        """Add numbers of all processes, of any shape, in place."""
        if self.size > 1:
            dist.all_reduce(numbers)
        return numbers

    def highest(self, number: float) -> float:
        """Return the largest of all processes' numbers."""
        if self.size == 1:
            return number
        held = torch.tensor([number], dtype=torch.float64, device=self.device)
        dist.all_reduce(held, dist.ReduceOp.MAX)
        return held.item()

    def total(self, number: float) -> float:
        """Add all processes' numbers."""
        return self.sum(torch.tensor([number], dtype=torch.float64, device=self.device)).item()

    def of_first(self, number: float) -> float:
        """Return the first process's number."""
        return number if self.size == 1 else self.total(number if self.is_first else 0.0)

    def any(self, reason: str | None) -> str | None:
        """Return a reason that a process has, the same to all; None if none has."""
        if self.size == 1:
            return reason
        holder = int(self.highest(0.0 if reason is None else 1.0 + self.rank)) - 1
        if holder < 0:
            return None
        text = torch.zeros(LONGEST_REASON, dtype=torch.uint8)
        if holder == self.rank:
            content = (reason or "").encode()[:LONGEST_REASON]
            text[: len(content)] = torch.frombuffer(bytearray(content), dtype=torch.uint8)
        text = text.to(self.device)
        dist.broadcast(text, src=holder)
        return text.cpu().numpy().tobytes().rstrip(b"\0").decode()

    def from_first(self, make: Callable[[], Any]) -> Any:
        """Let the first process make something, and give it to all.

        Args:
            make: returns tensors on the CPU, numbers, strings, lists and dicts only.
        Raises: UserError everywhere if the first process raises one, or DataError or OSError.
        """
        if self.size == 1:
            return make()
        content = b""
        if self.is_first:
            try:
                made = {"value": make()}
            except (UserError, DataError, OSError) as error:
                made = {"error": str(error)}
            buffer = io.BytesIO()
            torch.save(made, buffer)
            content = buffer.getvalue()
        held = torch.zeros(int(self.of_first(len(content))), dtype=torch.uint8)
        if self.is_first:
            held = torch.frombuffer(bytearray(content), dtype=torch.uint8)
        held = held.to(self.device)
        dist.broadcast(held, src=0)
        buffer = io.BytesIO(held.cpu().numpy().tobytes())
        made = torch.load(buffer, map_location="cpu", weights_only=True)
        if "error" in made:
            raise UserError(made["error"])
        return made["value"]

    def leave(self) -> None:
        """End the exchange."""
        if self.size > 1:
            dist.destroy_process_group()


ALONE = World(0, 1, torch.device("cpu"))


def launched() -> bool:
    """Whether torchrun started this process beside others."""
    return dist.is_available() and dist.is_torchelastic_launched() and _setting("WORLD_SIZE") > 1


def is_restart() -> bool:
    """Whether torchrun started these processes again, after one had failed."""
    return launched() and _setting("TORCHELASTIC_RESTART_COUNT") > 0


def is_silent() -> bool:
    """Whether another process speaks for this one."""
    return launched() and _setting("RANK") > 0


def local_device(name: str) -> str:
    """Choose the --device of this process on its machine.

    Raises: UserError for a GPU of one number, which several processes cannot all have.
    """
    if not launched():
        return name
    if ":" in name:
        raise UserError(f"--device {name}: torchrun gives each process a GPU of its own; use cuda")
    here = torch.cuda.device_count()
    if name == "cpu" or (name == "auto" and here == 0):
        return "cpu"
    place = _setting("LOCAL_RANK")
    if place >= here:
        raise UserError(f"torchrun --nproc-per-node: process {place + 1} here, but {here} GPUs")
    return f"cuda:{place}"


def join(device: torch.device) -> World:
    """Join the processes that torchrun started; without it, this process is all."""
    if not launched():
        return ALONE
    if device.type == "cuda":
        torch.cuda.set_device(device)
    store, rank, size = next(rendezvous("env://"))
    if _setting("LOCAL_WORLD_SIZE") == size:
        # A restart on one machine finds the addresses that the processes before it left there.
        attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
        store = dist.PrefixStore(attempt, store)  # pyright: ignore[reportPrivateImportUsage]
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size)
    return World(rank, size, device)


def _setting(name: str) -> int:
    return int(os.environ[name])
