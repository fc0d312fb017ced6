"""Keeping memory in the C library between training steps.

By default glibc hands every large temporary back to the system and faults fresh pages in for
the next one. On a CPU that can cost more than the arithmetic of a step.

glibc's cache of small blocks then leaves slivers between large ones, so that a run holds a little
more memory. To switch it off, start Python with GLIBC_TUNABLES=glibc.malloc.tcache_count=0.
"""

from __future__ import annotations

import ctypes
import platform

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8  # as glibc's malloc.h has
# One heap for all threads: what one has freed, another one uses again.
_KEEPING = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, -1), (_TOP_PAD, 256 * 2**20), (_ARENA_MAX, 1))


def return_freed_memory() -> None:
    """Hand back to the system what is freed by now."""
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


def keep_freed_memory() -> bool:
    """Tell glibc to serve large blocks from its heap and never to trim that; say if it did."""
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return all([mallopt(name, value) == 1 for name, value in _KEEPING])  # noqa: C419 (all are made)
