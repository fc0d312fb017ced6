"""Keeping memory in the C library between training steps.

By default glibc hands every large temporary back to the system and faults fresh pages in for
the next one. On a CPU that can cost more than the arithmetic of a step.

What is kept must not fall to pieces. A tensor's block is aligned, which leaves slivers beside it,
and glibc's cache of small blocks hands these out: then no tensor of the same size fits where one
has been. Within 40 steps a Toeplitz product of 2 x 16,384 positions held 300 MiB in place of 130.
Whether there is that cache can be said only as a program starts.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import signal
import sys

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8  # as glibc's malloc.h has
# One heap for all threads: what one has freed, another one uses again.
_KEEPING = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, -1), (_TOP_PAD, 256 * 2**20), (_ARENA_MAX, 1))
_TUNABLES, _CACHE = "GLIBC_TUNABLES", "glibc.malloc.tcache_count"


def whole_heap_variables() -> dict[str, str]:
    """Return what the environment must say as a program starts for its heap to stay in one piece.

    Returns: variables by name; none if the C library is not glibc, or the environment has its say.
    """
    tunables = os.environ.get(_TUNABLES, "")
    if platform.libc_ver()[0] != "glibc" or _CACHE in tunables:
        return {}
    return {_TUNABLES: ":".join([*filter(None, [tunables]), f"{_CACHE}=0"])}


def start_with_whole_heap() -> None:
    """Start this program anew, in the same process, with an environment that keeps its heap whole.

    Nothing happens where that is so already, or beneath a debugger, which would lose the program.
    """
    variables = whole_heap_variables()
    if not (variables and _is_command() and sys.executable) or sys.gettrace() is not None:
        return
    command = [sys.executable, *sys.orig_argv[1:]]
    # Ctrl-C waits for `expect_interrupts`: an interpreter that is starting would show a traceback.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    with contextlib.suppress(OSError):  # it works without, in more memory
        os.execve(sys.executable, command, {**os.environ, **variables})  # noqa: S606 (the same)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _is_command() -> bool:
    """Whether this process was started with sys.argv: `python FILE ...`, `python -m MODULE ...`."""
    program, *arguments = sys.argv
    start = len(sys.orig_argv) - len(arguments)
    *before, started = sys.orig_argv[:start]
    is_same = started == program or before[-1:] == ["-m"]
    return is_same and sys.orig_argv[start:] == arguments


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
