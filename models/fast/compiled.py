"""Loops over numbers that Numba compiles for a CPU, on as many threads as torch has."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from models.fast.workers import worker_pool

Array = np.ndarray[Any, np.dtype[Any]]

compiled = njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz", "arcp"})
"""Sums may be reordered, so that loops vectorise; NaN and infinities keep their meaning.

Numba does not notice a change of these options: delete the loops that it keeps beside their files.
"""

_COMPILED: set[tuple[object, ...]] = set()
"""Loops that have run, with the types of their numbers."""


def run_compiled(
    loop: Callable[..., None], pairs: int, setting: int, *given: Tensor | Sequence[Tensor]
) -> None:
    """Run a compiled loop for all pairs of a sequence and a head or group, some on each thread.

    Args:
        loop: takes the first pair and the one behind the last, the setting, and NumPy arrays.
        pairs: number of pairs.
        setting: handed on to the loop.
        given: tensors, or tuples of them, which the loop gets as arrays.
    """
    tensors = [part if isinstance(part, Tensor) else part[0] for part in given]
    types = (loop, *(tensor.dtype for tensor in tensors))
    arrays = [
        part.numpy() if isinstance(part, Tensor) else tuple(each.numpy() for each in part)
        for part in given
    ]
    # The first call compiles: in this thread, as interruptions reach the main one alone.
    threads = min(torch.get_num_threads(), pairs) if types in _COMPILED else 1
    ends = [pairs * thread // threads for thread in range(threads + 1)]
    if threads == 1:
        loop((0, pairs), setting, *arrays)
    else:
        pool = worker_pool(os.getpid(), threads, 1)
        at_work = [pool.submit(loop, some, setting, *arrays) for some in pairwise(ends)]
        wait(at_work)
        for done in at_work:
            done.result()
    _COMPILED.add(types)
