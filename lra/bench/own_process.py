"""Cases that are set up and timed in processes of their own, as runs of their settings are."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from tqdm import tqdm

from lra.bench.case import Case
from lra.runtime.console import show_messages
from lra.runtime.environment import (
    choose_device,
    is_out_of_memory,
    keep_freed_memory,
    memory_mib,
    peak_memory_mib,
    reserved_memory_mib,
    reset_peak_memory,
    return_freed_memory,
)
from lra.runtime.errors import UserError
from lra.runtime.threads import SHORT_SPIN

WARMUP_ROUNDS = 3
"""Number of rounds at the start that are not counted."""


@dataclass(frozen=True)
class Memory:
    """Memory of a process that runs a case, in MiB."""

    base: float
    peak: float
    reserved: float | None


class Place(Protocol):
    """Where a case is set up and timed."""

    repetitions: int
    """See `Subject.repetitions`."""

    def seconds(self) -> float:
        """Run the case twice; return how long the second time took.

        The first time brings back into the caches what others put out of them.
        """
        ...

    def memory(self) -> Memory:
        """Return the memory of all runs so far."""
        ...

    def facts(self) -> dict[str, Any]:
        """See `Subject.facts`."""
        ...

    def close(self) -> None:
        """Give back what it holds."""
        ...


class Here:
    """A case in this process, whose allocator is set as the case needs it.

    Raises: MemoryError or RuntimeError if memory runs out.
    """

    def __init__(self, case: Case) -> None:
        self.device = choose_device(case.device)
        if self.device.type == "cpu" and case.keeps_memory():
            keep_freed_memory()
        self.subject = case.build()
        self.repetitions = self.subject.repetitions
        if self.device.type == "cpu":
            return_freed_memory()  # what setting up has freed is none of the base
        self.base = memory_mib(self.device)
        reset_peak_memory(self.device)
        for _ in range(WARMUP_ROUNDS):
            self.subject.run()
        self._hand_back()

    def seconds(self) -> float:
        """See `Place.seconds`."""
        self.subject.run()
        synchronize(self.device)
        start = time.perf_counter()
        self.subject.run()
        synchronize(self.device)
        spent = time.perf_counter() - start
        self._hand_back()
        return spent

    def _hand_back(self) -> None:
        """Hand back what is free, which others may lack; the next untimed run takes it anew."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        else:
            return_freed_memory()

    def memory(self) -> Memory:
        """See `Place.memory`."""
        peak, reserved = peak_memory_mib(self.device), reserved_memory_mib(self.device)
        return Memory(self.base, peak, reserved)

    def facts(self) -> dict[str, Any]:
        """See `Place.facts`."""
        facts = self.subject.facts()
        self._hand_back()
        return facts

    def close(self) -> None:
        """See `Place.close`."""


def synchronize(device: torch.device) -> None:
    """Wait until a GPU has done all its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class _Process:
    """What a process has been given to do."""

    here: Here | None = None


def _start() -> None:
    # tqdm's own lock is a semaphore of the system, which nobody gives back when `close` kills us.
    tqdm.set_lock(threading.RLock())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    show_messages()


def _end_with_parent() -> None:
    """Wait until the process that started this one has ended, however it did, and end, too."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _set_up(case: Case, threads: int) -> int:
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)
    _Process.here = Here(case)
    return _Process.here.repetitions


def _answer(question: str) -> Any:
    """Call a method of the case that this process was given."""
    return getattr(_Process.here, question)()


class OwnProcess:
    """A case in a process of its own, see `Place`.

    Ours has the environment that a run starts with, a reference that which the user has.

    Raises: MemoryError or RuntimeError if memory runs out, UserError if the process ends otherwise.
    """

    def __init__(self, case: Case) -> None:
        self.name = case.mixer
        context = multiprocessing.get_context("spawn")
        before = set(multiprocessing.active_children())
        self.pool = ProcessPoolExecutor(1, mp_context=context, initializer=_start)
        with _environment_of(case), _interrupts_held_back():
            started = self.pool.submit(_set_up, case, torch.get_num_threads())
        (self.process,) = set(multiprocessing.active_children()) - before
        try:
            self.repetitions = self._result(lambda: started)
        except BaseException:
            self.close()
            raise

    def seconds(self) -> float:
        """See `Place.seconds`."""
        return self._ask("seconds")

    def memory(self) -> Memory:
        """See `Place.memory`."""
        return self._ask("memory")

    def facts(self) -> dict[str, Any]:
        """See `Place.facts`."""
        return self._ask("facts")

    def _ask(self, question: str) -> Any:
        return self._result(lambda: self.pool.submit(_answer, question))

    def _result(self, ask: Callable[[], Future[Any]]) -> Any:
        try:
            return ask().result()
        except BrokenProcessPool:
            raise self._ended() from None

    def _ended(self) -> Exception:
        """Say why the process has ended: what takes too much memory the system kills."""
        self.pool.shutdown()  # waits for the process; a join() beside it can lose the exit code
        code = self.process.exitcode
        if code == -signal.SIGKILL:
            return MemoryError("the system ended the process")
        return UserError(f"{self.name}: the process that measures it ended with exit code {code}")

    def close(self) -> None:
        """End the process, whatever it is at."""
        self.process.kill()
        self.pool.shutdown(cancel_futures=True)


def set_up(case: Case) -> Place | None:
    """Set a case up in a process of its own; None if memory runs out."""
    try:
        return OwnProcess(case)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return None


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Let a process that is started here never see Ctrl-C: who started it ends it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _environment_of(case: Case) -> Iterator[None]:
    """Let a process that is started here have the variables that a case asks for."""
    before = dict(os.environ)
    # Or PyTorch's profiler writes to the terminal; it reads this when it is loaded.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    if case.is_reference:
        for name in SHORT_SPIN.items() & os.environ.items():
            del os.environ[name[0]]
    try:
        yield
    finally:
        for name in set(os.environ) - set(before):
            del os.environ[name]
        os.environ.update(before)
