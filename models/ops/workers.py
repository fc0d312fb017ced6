"""Threads that each take a share of a computation through all of its operations.

torch shares every single operation out, and its threads wait for each other after each one. A
product of many chunks has hundreds of operations, and here one wait: at its end.
"""

from __future__ import annotations

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
"""Threads that share a computation out; with more, each would wait for Python's interpreter, and so
each of these has several threads of torch's."""


def num_workers(device: torch.device) -> int:
    """Return into how many shares a computation is best cut on a device."""
    if device.type != "cpu" or _limits() is None:
        return 1
    threads = torch.get_num_threads()
    of_each = -(-threads // MOST_WORKERS)
    return threads // of_each


def on_workers(compute: Callable[[Share], Result], shares: Sequence[Share]) -> list[Result]:
    """Compute shares side by side, without gradients, each on a thread of its own.

    Within a profile, or under a mode that watches operations, they are computed one after the
    other on this thread, which alone is watched; the results are the same.

    Args:
        compute: computes a share.
        shares: at most `num_workers`.
    Returns: what it returns for each.
    """
    if len(shares) == 1 or _is_watched():
        return [compute(share) for share in shares]
    is_inference = torch.is_inference_mode_enabled()

    def work(share: Share) -> Result:
        with torch.inference_mode() if is_inference else torch.no_grad():
            return compute(share)

    pool = _pool(os.getpid(), len(shares), threads_of_each(len(shares)))
    at_work = [pool.submit(work, share) for share in shares]
    wait(at_work)  # where one fails, the others still write into what they have been given
    return [done.result() for done in at_work]


def threads_of_each(shares: int) -> int:
    """Return how many of torch's threads compute each of some shares on a CPU."""
    return max(1, torch.get_num_threads() // shares)


def _is_watched() -> bool:
    return _profiler_enabled() or _get_current_dispatch_mode() is not None


@functools.cache
def _pool(process: int, workers: int, threads: int) -> ThreadPoolExecutor:
    """Return the workers of a process, which a fork of it would lack.

    Args:
        process: its number.
        workers: how many.
        threads: of torch's, of each worker.
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
    found = []
    for name in ("omp_set_num_threads", "MKL_Set_Num_Threads_Local"):
        try:
            found.append(getattr(library, name))
        except AttributeError:
            if name.startswith("omp") or torch.backends.mkl.is_available():
                return None
    return tuple(found)
