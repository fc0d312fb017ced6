"""Threads that each compute one share of a result through all operations.

torch splits each operation over its threads, which wait for each other after every operation. A
product of many chunks has hundreds of operations. Here threads wait once, at the end.
"""

import ctypes
import functools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, TypeVar

import torch
from torch.autograd import _profiler_enabled  # pyright: ignore[reportPrivateImportUsage]
from torch.utils._python_dispatch import _get_current_dispatch_mode

Share = TypeVar("Share")
Result = TypeVar("Result")

MOST_WORKERS = 4
"""Largest number of workers; more would wait for Python's interpreter. If there are more cores,
each worker uses several threads of torch."""


def num_workers(device: torch.device) -> int:
    """Return the best number of shares of a computation on a device."""
    if device.type != "cpu" or _limits() is None:
        return 1
    threads = torch.get_num_threads()
    of_each = -(-threads // MOST_WORKERS)
    return threads // of_each


def threads_of_each(shares: int) -> int:
    """Return how many of torch's threads each of these shares uses on a CPU."""
    return max(1, torch.get_num_threads() // shares)


def on_workers(compute: Callable[[Share], Result], shares: Sequence[Share]) -> list[Result]:
    """Compute all shares in parallel, each on its own thread.

    No gradients are recorded. A profiler, or a mode that observes operations, sees this thread
    only, so the shares are then computed here, one after another, with the same results.
    """
    is_watched = _profiler_enabled() or _get_current_dispatch_mode() is not None
    if len(shares) == 1 or is_watched:
        return [compute(share) for share in shares]
    is_inference = torch.is_inference_mode_enabled()

    def work(share: Share) -> Result:
        with torch.inference_mode() if is_inference else torch.no_grad():
            return compute(share)

    pool = worker_pool(os.getpid(), len(shares), threads_of_each(len(shares)))
    at_work = [pool.submit(work, share) for share in shares]
    wait(at_work)  # where one fails, the others still write into their results
    return [done.result() for done in at_work]


@functools.cache
def worker_pool(process: int, workers: int, threads: int) -> ThreadPoolExecutor:
    """Return the workers of a process, each of which computes with some of torch's threads.

    Threads do not survive a fork, so a forked process, which has another number, gets workers of
    its own.
    """
    return ThreadPoolExecutor(
        workers, thread_name_prefix="worker", initializer=_start, initargs=(threads,)
    )


def _start(threads: int) -> None:
    torch.get_num_threads()  # or torch would set the number itself at the first operation
    for limit in _limits() or ():
        limit(threads)


@functools.cache
def _limits() -> tuple[Callable[[int], Any], ...] | None:
    """Find what limits the threads of operations that the calling thread starts; None if nothing.

    `torch.set_num_threads` would limit those of all threads.
    """
    library = ctypes.CDLL(torch._C.__file__)  # and all that is loaded with it
    limits = []
    for name in ("omp_set_num_threads", "MKL_Set_Num_Threads_Local"):
        try:
            limits.append(getattr(library, name))
        except AttributeError:
            if name.startswith("omp") or torch.backends.mkl.is_available():
                return None
    return tuple(limits)
