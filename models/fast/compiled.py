"""Loops over numbers that Numba compiles for a CPU, on as many threads as torch has."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from lra.models.fast.workers import on_workers

Array = np.ndarray[Any, np.dtype[Any]]

compiled = njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz", "arcp"})
"""Sums may be reordered, so that loops vectorise; NaN and infinities keep their meaning.

Numba does not notice a change of these options: delete the loops that it keeps beside their files.
"""

_COMPILED: set[tuple[object, ...]] = set()
"""Loops that have run, with the types of their numbers."""


def run_compiled(
    loop: Callable[..., None], pairs: int, setting: int, *tensors: Tensor | Sequence[Tensor]
) -> None:
    """Run a compiled loop for all pairs of a sequence and a head or group, some on each thread.

    Args:
        loop: takes the first pair and the one behind the last, the setting, and NumPy arrays.
        pairs: number of pairs.
        setting: handed on to the loop.
        tensors: or tuples of them, which the loop gets as arrays.
    """
    types = (loop, *(part.dtype if isinstance(part, Tensor) else part[0].dtype for part in tensors))
    arrays = [
        part.numpy() if isinstance(part, Tensor) else tuple(each.numpy() for each in part)
        for part in tensors
    ]
    # The first call compiles: in this thread, as interruptions reach the main one alone.
    threads = min(torch.get_num_threads(), pairs) if types in _COMPILED else 1
    ends = [pairs * thread // threads for thread in range(threads + 1)]
    on_workers(lambda share: loop(share, setting, *arrays), [*pairwise(ends)])
    _COMPILED.add(types)
