"""What the processes of torchrun tell one another besides training: life, settings, errors.

They use the key-value store of torchrun, which answers while a process prepares data or waits for a
file lock, and with any backend of `torch.distributed`.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch.distributed import PrefixStore, Store, TCPStore  # pyright: ignore[reportPrivateImportUsage]

from lra.runtime.errors import UserError
from lra.runtime.launch import is_on_one_machine, launch_number

LONGEST_SILENCE = 600.0
"""Seconds after which a process without a sign of life is given up.

Signs of life come from a thread of their own, so work of any length is no silence. Only code that
holds Python's global lock, such as a compiler, delays them.
"""

LONGEST_EXCHANGE = 1800.0
"""Seconds that a process waits for the others' part of an exchange while they give signs of life.

It ends a run of which one process hangs, in a file system for one. Silence is noticed earlier, and
the preparation of data, which may take longer, is no exchange.
"""

SIGNS_PER_SILENCE = 120
"""Signs of life that a process gives within LONGEST_SILENCE."""

POLL_SECONDS = 0.05
REPORT_SECONDS = 5.0
"""How long a process waits until the one that ended first has printed its error."""

CONNECT_SECONDS = 20.0

MOST_DIFFERENCES = 4
"""Differences that an error names; it counts the others."""

_ADVICE = "The same command resumes the run from its last checkpoint"

_LEFT = b"left"
"""The last sign of life of a process that came to its regular end."""


class LostPeer(UserError):
    """Another process of this run ended, froze, or cannot be reached."""


def connect() -> Store:
    """Connect to the store that torchrun provides; each connection may be used by any thread."""
    store = TCPStore(
        os.environ["MASTER_ADDR"],
        launch_number("MASTER_PORT"),
        is_master=False,
        wait_for_workers=False,
        timeout=timedelta(seconds=CONNECT_SECONDS),
    )
    store.set_timeout(timedelta(seconds=LONGEST_SILENCE))
    return select_attempt(PrefixStore("lra", store))


def select_attempt(store: Store) -> Store:
    """Hide what the processes before a restart left in a store.

    On several machines there is no common count of restarts.
    """
    if not is_on_one_machine():
        return store
    attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
    return PrefixStore(attempt, store)


class Peers:
    """The processes that torchrun started, seen by one of them.

    Args:
        on_lost: called once, in a thread of its own, with the error if a process falls silent.
    """

    def __init__(
        self, rank: int, world_size: int, store: Store, on_lost: Callable[[LostPeer], object]
    ) -> None:
        self.rank = rank
        self.world_size = world_size
        self.store = store
        self._on_lost = on_lost
        self._has_left = threading.Event()
        self._watch = threading.Thread(target=self._watch_others, daemon=True)
        self._watch.start()

    def compare(self, subject: str, facts: Mapping[str, Any]) -> None:
        """Make sure that all processes have the same facts; all must call this.

        Args:
            subject: what the facts are about, one word; each comparison has its own.
            facts: plain values by name.
        Raises: UserError in every process, naming what differs.
        """
        self.store.set(f"{subject}/{self.rank}", json.dumps(facts, default=str))
        found = [self._facts(subject, rank) for rank in range(self.world_size)]
        for rank, other in enumerate(found):
            differences = list_differences(found[0], other, rank)
            if differences:
                shown = "; ".join(differences[:MOST_DIFFERENCES])
                more = len(differences) - MOST_DIFFERENCES
                raise UserError(
                    f"the processes of torchrun differ: {shown}"
                    f"{f'; and {more} more' if more > 0 else ''}. Start all of them with the same "
                    f"command, code and data"
                )

    def _facts(self, subject: str, rank: int) -> dict[str, Any]:
        """Wait for the facts of a process, as long as it lives."""
        while not self.store.check([f"{subject}/{rank}"]):
            time.sleep(POLL_SECONDS)
        return json.loads(self.store.get(f"{subject}/{rank}"))

    def leave(self, *, regularly: bool) -> None:
        """Give no more signs of life.

        Args:
            regularly: whether the others may go on without this process.
        """
        self._has_left.set()
        self._watch.join()
        if regularly:
            with contextlib.suppress(dist.DistError):  # torchrun itself may have ended
                self.store.set(f"alive/{self.rank}", _LEFT.decode())

    def _watch_others(self) -> None:
        """Give signs of life, and look for those of the others, until this process leaves.

        Silence is counted in signs of this process: while a machine sleeps, nobody falls silent.
        """
        keys = [f"alive/{rank}" for rank in range(self.world_size)]
        last = [b""] * self.world_size
        silent = [0] * self.world_size
        count = 0
        while not self._has_left.wait(LONGEST_SILENCE / SIGNS_PER_SILENCE):
            count += 1
            try:
                self.store.set(keys[self.rank], str(count))
                signs = [self.store.get(k) if self.store.check([k]) else b"" for k in keys]
            except dist.DistError:
                if not self._has_left.is_set():
                    self._on_lost(LostPeer(f"torchrun no longer answers. {_ADVICE}"))
                return
            for rank, sign in enumerate(signs):
                is_alive = sign != last[rank] or sign == _LEFT
                silent[rank] = 0 if is_alive else silent[rank] + 1
            last = signs
            if max(silent) >= SIGNS_PER_SILENCE:
                rank = silent.index(max(silent))
                self._on_lost(
                    LostPeer(
                        f"rank {rank} of {self.world_size} gave no sign of life for "
                        f"{LONGEST_SILENCE:g} seconds: its process is frozen or gone. {_ADVICE}"
                    )
                )
                return


@contextlib.contextmanager
def explain_lost_peers() -> Iterator[None]:
    """Turn the errors that torch raises when another process is gone into a LostPeer.

    Plug-ins may have wrapped them, as they appear within the backward pass too.

    Raises: LostPeer that says whether another process is gone, or lives and hangs.
    """
    try:
        yield
    except Exception as error:
        for each in (error, error.__cause__):
            is_of_gloo = isinstance(each, RuntimeError) and "gloo" in str(each).lower()
            if is_of_gloo or isinstance(each, dist.DistError):
                said = str(each).splitlines()[0][:150]
                is_late = "timed out" in said.lower()
                fate = "hangs" if is_late else "ended or cannot be reached"
                raise LostPeer(f"another process of this run {fate} ({said}). {_ADVICE}") from None
        raise


def list_differences(first: Mapping[str, Any], other: Mapping[str, Any], rank: int) -> list[str]:
    """List what another process has other than rank 0: "seed is 0 on rank 0 and 1 on rank 1"."""
    return [
        f"{name} is {first.get(name)} on rank 0 and {other.get(name)} on rank {rank}"
        for name in dict.fromkeys([*first, *other])
        if first.get(name) != other.get(name)
    ]


@contextlib.contextmanager
def report_once() -> Iterator[bool]:
    """Let the first process that ends with an error print it, within; tell which one that is.

    The others wait until it has: torchrun ends all as soon as one of them is gone. On several
    machines each process prints its own error.
    """
    if not is_on_one_machine():
        yield True
        return
    try:
        store = connect()
        is_first = store.add("reports", 1) == 1
    except dist.DistError:  # torchrun itself has ended
        yield True
        return
    deadline = time.monotonic() + REPORT_SECONDS
    with contextlib.suppress(dist.DistError):
        while not is_first and time.monotonic() < deadline and not store.check(["reported"]):
            time.sleep(POLL_SECONDS)
    yield is_first
    with contextlib.suppress(dist.DistError):
        store.set("reported", "yes")
