"""The decorator of Pathfinder's compiled functions.

Numba keeps machine code beside the source and looks for changes in a function's own file only, but
the code of a function holds that of all it calls. So machine code that is older than any file of
this folder is dropped first.

Two habits keep the first compilation short. Arrays are copied by loops, because Numba needs seconds
to compile the error message of a slice assignment. Numbers of contours are passed as `np.int64(0)`,
because Numba compiles a function again for every constant argument.
"""

import contextlib
from pathlib import Path

from numba import njit


def _drop_stale(folder: Path) -> None:
    newest = max(path.stat().st_mtime_ns for path in folder.glob("*.py"))
    for index in folder.glob("__pycache__/*.nbi"):
        with contextlib.suppress(OSError):  # another process was faster, or the folder is read-only
            if index.stat().st_mtime_ns < newest:
                index.unlink()


_drop_stale(Path(__file__).parent)
compiled = njit(nogil=True, cache=True)
