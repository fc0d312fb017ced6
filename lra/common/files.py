"""Files that are complete or not there, and whose errors name them."""

import contextlib
import errno
import fcntl
import glob
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

STALE_SECONDS = 3600
"""Age from which the temporary file of a write is that of a process that was killed."""


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that a crash leaves the old content or the new, never a part.

    Raises: OSError naming the file.
    """

    def write(file: IO[bytes]) -> Path:
        file.write(content)
        return path

    stream_atomically(path, write)


def stream_atomically(path: Path, write: Callable[[IO[bytes]], Path]) -> Path:
    """Write a file piece by piece, as `write_atomically` writes one.

    `write` returns the path that the file gets: its name may depend on the content.

    Raises: OSError naming the file.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with name_file_in_errors(path):
        try:
            with temporary.open("wb") as file:
                final = write(file)
                file.flush()
                os.fsync(file.fileno())
            return temporary.replace(final)
        finally:
            temporary.unlink(missing_ok=True)


def write_output(path: Path, content: bytes) -> None:
    """Write a file whose place a user names: a link is followed, and what is no file written into.

    Raises: OSError naming the file; also for a pipe that nothing reads.
    """
    final = Path(os.path.realpath(path))
    with name_file_in_errors(path):
        try:
            # A descriptor in /proc may have a file that no name leads to.
            is_file = stat.S_ISREG(path.stat().st_mode) and final.samefile(path)
        except FileNotFoundError:
            is_file = not path.exists()
        if is_file:
            remove_leftovers(final.parent, glob.escape(final.name))
            return write_atomically(final, content)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            is_socket = stat.S_ISSOCK(path.stat().st_mode)
            reason = "a socket, expected a file" if is_socket else "nothing reads from this pipe"
            raise OSError(error.errno, reason, str(path)) from None
        os.set_blocking(descriptor, True)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)


@contextlib.contextmanager
def open_to_append(path: Path) -> Iterator[IO[bytes]]:
    """Open a regular file to append to, made where it is missing; links and pipes are refused.

    Raises: OSError naming the file.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with name_file_in_errors(path), os.fdopen(os.open(path, flags, 0o666), "ab") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file; remove it", str(path))
        yield file


def is_locked(path: Path) -> bool:
    """Whether another process holds a lock file, which is only read; False if it cannot be."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def remove_leftovers(folder: Path, name: str = "*", *, age: float = STALE_SECONDS) -> None:
    """Remove what killed processes left of files that they wrote into a folder.

    Args:
        name: pattern of the only files' names.
        age: seconds since they wrote; 0 if a lock keeps others from writing there.
    """
    for path in folder.glob(f".{name}.*.tmp"):
        with contextlib.suppress(OSError):  # another process removes it, too
            if time.time() - path.lstat().st_mtime >= age:
                path.unlink()


@contextlib.contextmanager
def name_file_in_errors(path: Path | str) -> Iterator[None]:
    """Let errors of the file system name the file, as those of a full disk do not by themselves."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        what = error.strerror or f"it cannot be written in full ({error})"
        raise OSError(error.errno or errno.EIO, what, str(path)) from None


def format_bytes(count: float) -> str:
    """Write a number of bytes for people: 512 bytes, 80.2 MiB, 3.1 GiB."""
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count:.0f} bytes"


def free_disk_bytes(path: Path) -> int:
    """Return how many bytes are free on the disk of a path, which need not exist yet."""
    whole = path.absolute()
    return shutil.disk_usage(next(one for one in (whole, *whole.parents) if one.exists())).free


def reserve(path: Path) -> None:
    """Take the space on the disk that a file needs to be written in place.

    Without it, a disk that fills up would end the process by a signal.

    Raises: OSError naming the file if the space is not there.
    """
    if hasattr(os, "posix_fallocate"):  # not on macOS and Windows
        with name_file_in_errors(path), path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
