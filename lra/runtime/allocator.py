"""Keeping memory in the C library between training steps.

By default glibc hands every large temporary back to the system and faults fresh pages in for
the next one. On a CPU that can cost more than the arithmetic of a step.
"""

from __future__ import annotations

import ctypes
import platform

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -2, -3, -4  # as glibc's malloc.h has
_KEEPING = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, -1), (_TOP_PAD, 256 * 2**20))
# Where glibc's own rules lead in a process that frees large blocks: setting any of these ends the
# rules, so that they cannot be had back.
_DEFAULT = (
    (_MMAP_MAX, 65536),
    (_MMAP_THRESHOLD, 32 * 2**20),
    (_TRIM_THRESHOLD, 64 * 2**20),
    (_TOP_PAD, 128 * 2**10),
)


def keep_freed_memory() -> bool:
    """Tell glibc to serve large blocks from its heap and never to trim that; say if it did."""
    return _tell(_KEEPING)


def return_freed_memory() -> bool:
    """Tell glibc to do again as it does by default; say if it did."""
    return _tell(_DEFAULT)


def _tell(settings: tuple[tuple[int, int], ...]) -> bool:
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return all([mallopt(name, value) == 1 for name, value in settings])  # noqa: C419 (all are made)
