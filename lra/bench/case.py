"""What can be measured, in this process or in one of its own."""

import abc
import contextlib
import functools
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import psutil
import torch
from tqdm import tqdm

from lra.common.errors import UserError
from lra.common.threads import SHORT_SPIN
from lra.runtime.console import display_messages
from lra.runtime.environment import (
    choose_device,
    keep_freed_memory,
    peak_memory_mib,
    reset_peak_memory,
    return_freed_memory,
)
from lra.runtime.repository import ROOT, leave_path

WARMUP_ROUNDS = 3
"""Number of rounds at the start that are not counted."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A computation that is set up and ready to be timed."""

    run: Callable[[], object]
    """Runs the computation once."""
    repetitions: int = 1
    """Number of counted units, such as steps or batches, that one `run` computes."""
    facts: Callable[[], dict[str, Any]]
    """Returns fields of the record that are known only once all rounds are timed."""


@dataclass(frozen=True, kw_only=True)
class Case(abc.ABC):
    """The settings of a computation that is to be timed."""

    mixer: str
    device: str
    is_reference: bool = False
    """Whether this is the reference: written as published code is, with the default allocator."""

    has_own_process = True
    """Whether it is measured in a process of its own, and its memory is measured, too."""

    @abc.abstractmethod
    def build(self) -> Subject:
        """Set up the computation."""

    @abc.abstractmethod
    def settings(self) -> dict[str, Any]:
        """Return the fields of the record that identify this case."""

    def keeps_memory(self) -> bool:
        """Whether the allocator keeps what is freed, as it does in a run of these settings."""
        return self.has_own_process and not self.is_reference


class InThisProcess:
    """A case that is set up in this process, whose allocator is set as the case needs it.

    Raises: MemoryError or RuntimeError if memory runs out.
    """

    def __init__(self, case: Case) -> None:
        self.device = choose_device(case.device)
        if self.device.type == "cpu" and case.keeps_memory():
            keep_freed_memory()
        self.subject = case.build()
        self._hand_back()  # freed memory is not part of what the case holds
        held = psutil.Process().memory_info().rss
        if self.device.type == "cuda":
            held = torch.cuda.memory_allocated(self.device)
        self.base = held / 2**20
        reset_peak_memory(self.device)
        for _ in range(WARMUP_ROUNDS):
            self.subject.run()
        self._hand_back()

    def seconds(self) -> float:
        """Run the case twice; return how long a unit took the second time.

        The first run fills the processor's caches, which other processes may have emptied.
        """
        self.subject.run()
        self._synchronize()
        start = time.perf_counter()
        self.subject.run()
        self._synchronize()
        spent = time.perf_counter() - start
        self._hand_back()
        return spent / self.subject.repetitions

    def memory(self) -> dict[str, float | None]:
        """Return the memory of this process in all runs so far, as fields of the record."""
        is_gpu = self.device.type == "cuda"
        reserved = torch.cuda.max_memory_reserved(self.device) / 2**20 if is_gpu else None
        return {
            "base_memory_mib": self.base,
            "peak_memory_mib": peak_memory_mib(self.device),
            "reserved_memory_mib": reserved,
        }

    def facts(self) -> dict[str, Any]:
        """See `Subject.facts`."""
        facts = self.subject.facts()
        self._hand_back()
        return facts

    def close(self) -> None:
        """Give back what it holds: nothing, before this process ends."""

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def _hand_back(self) -> None:
        """Hand back what is free, which others may lack; the next untimed run takes it anew."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        else:
            return_freed_memory()


class InOwnProcess:
    """A case in a process of its own, with the methods of `InThisProcess`.

    A reference has the environment that the user has, any other case that of a run.

    Raises: MemoryError or RuntimeError if memory runs out, UserError if the process ends otherwise.
    """

    def __init__(self, case: Case) -> None:
        self.case = case
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, torch.get_num_threads()))
        # The process never sees Ctrl-C: who started it ends it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        spin = dict(SHORT_SPIN.items() & os.environ.items()) if case.is_reference else {}
        for name in spin:
            del os.environ[name]
        sys.path.insert(0, str(ROOT))  # where the process finds `lra`
        try:
            self.process.start()
        finally:
            sys.path.pop(0)
            os.environ.update(spin)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        try:
            self._ask(case)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the process, whatever it is at."""
        self.process.kill()
        self.process.join()
        self.pipe.close()

    def _ask(self, question: Case | str) -> Any:
        try:
            self.pipe.send(question)
            answer = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode
            if code == -signal.SIGKILL:  # so the system ends what takes too much memory
                raise MemoryError("the system ended the process") from None
            raise UserError(
                f"{self.case.mixer}: the process that measures it ended with exit code {code}"
            ) from None
        if isinstance(answer, BaseException):
            raise answer
        return answer

    seconds = functools.partialmethod(_ask, "seconds")
    memory = functools.partialmethod(_ask, "memory")
    facts = functools.partialmethod(_ask, "facts")


Setup = InThisProcess | InOwnProcess
"""A case that is set up, in either process."""


def _serve(pipe: Connection, threads: int) -> None:
    """Set up the case that is sent, and call its methods, until the asking process is gone."""
    leave_path()
    # tqdm's own lock is a semaphore of the system, which nobody gives back when this is killed.
    tqdm.set_lock(threading.RLock())
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)
    with display_messages(), contextlib.suppress(EOFError, OSError):
        setup: InThisProcess | None = None
        while True:
            question = pipe.recv()
            answer = None
            try:
                if setup is None:
                    setup = InThisProcess(question)
                else:
                    answer = getattr(setup, question)()
            except Exception as error:
                answer = error
            pipe.send(answer)
