"""Downloads that resume where they broke off, from one of several places, and are verified."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from common.errors import KnownError
from common.files import format_bytes, name_file_in_errors
from common.progress import progress
from tasks.manifest import file_facts

logger = logging.getLogger(__name__)

CHUNK = 2**13
"""Bytes that are written at a time; fewer are lost where a connection ends."""
TIMEOUT = (5, 30)
"""Seconds to wait for a connection, and for the next bytes."""
PAUSES = (1, 3)
"""Seconds to wait before asking again each time that a connection brings nothing new."""
SERVER_ERROR = 500
"""Lowest status that may pass; those below say that the server will not send the file."""


class DownloadError(KnownError):
    """A file could not be downloaded."""


@dataclass(frozen=True, kw_only=True)
class Address:
    """A file on the network, with the size and the checksum that it must have."""

    urls: tuple[str, ...]
    """Places that have this file, byte for byte, in the order in which they are tried."""
    file_name: str
    """The name that the downloaded file gets."""
    bytes: int
    sha256: str


def download(address: Address, target: Path) -> Path:
    """Download a file, or the rest of one; the file gets its name once its checksum is right.

    What one place has sent is kept, and the next place sends the rest.

    Args:
        address: where the file is, with its size and checksum.
        target: path that the file gets.
    Returns: target.
    Raises: DownloadError naming every place and why it failed.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{target}.lock"):
        if target.exists():  # another process was faster
            return target
        partial = target.with_name(f"{target.name}.partial")
        failures: list[str] = []
        size = format_bytes(address.bytes)
        for url, *others in (address.urls[i:] for i in range(len(address.urls))):
            also = f"; if it is slow, {' and '.join(others)} has the same file" if others else ""
            logger.info(f"{address.file_name} ({size}) comes from {url}{also}")
            try:
                _resume(url, address, partial)
                return partial.rename(target)
            except DownloadError as error:
                failures.append(f"{url}: {error}")
        raise DownloadError("; ".join(failures))


def _resume(url: str, address: Address, partial: Path) -> None:
    """Download the missing bytes, as long as each connection brings some, and verify all."""
    import requests

    most, pauses = _size(partial), iter(PAUSES)
    title = f"downloading {address.file_name}"
    with progress(title, total=address.bytes, initial=most, unit="B") as bar:
        while _size(partial) < address.bytes:
            error: requests.RequestException | None = None
            try:
                _append(url, address, partial, bar)
            except requests.RequestException as caught:
                error = caught
            if _size(partial) > most:
                most, pauses = _size(partial), iter(PAUSES)
                continue
            pause = None if _is_final(error) else next(pauses, None)
            if pause is None:
                raise DownloadError(_reason(error) if error else "it sends nothing")
            time.sleep(pause)
    _verify(address, partial)


def _append(url: str, address: Address, partial: Path, bar: Any) -> None:
    """Download from where a file ends, or from the start if the server cannot send a range.

    Raises: DownloadError, before anything is written, if the answer is no part of the file.
    """
    import requests

    done = _size(partial)
    headers = {"Range": f"bytes={done}-", "Accept-Encoding": "identity"}
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as answer:
        answer.raise_for_status()
        start = done if answer.status_code == requests.codes.partial_content else 0
        length = answer.headers.get("Content-Length", "")
        if length.isdecimal() and start + int(length) != address.bytes:
            raise DownloadError(f"got {start + int(length):,} bytes, expected {address.bytes:,}")
        if not length and start < done:
            raise DownloadError("it can neither send the rest nor say how long the file is")
        with partial.open("ab" if start else "wb") as file:
            bar.update(file.tell() - bar.n)
            for chunk in answer.iter_content(CHUNK):
                with name_file_in_errors(partial):
                    file.write(chunk)
                bar.update(len(chunk))
                if file.tell() > address.bytes:  # the server sends another file
                    break


def _verify(address: Address, partial: Path) -> None:
    """Compare size and checksum; delete a file that differs."""
    size = _size(partial)
    if size != address.bytes:
        partial.unlink()
        raise DownloadError(f"got {size:,} bytes, expected {address.bytes:,}; deleted")
    if file_facts(partial).sha256 != address.sha256:
        partial.unlink()
        raise DownloadError("the checksum of the downloaded file is wrong; deleted")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _is_final(error: Exception | None) -> bool:
    """Whether asking again is of no use, as the server refuses the request."""
    answer = getattr(error, "response", None)
    return answer is not None and answer.status_code < SERVER_ERROR


def _reason(error: Exception) -> str:
    """Return the innermost reason of an error, in a line."""
    while error.__context__ is not None:
        error = error.__context__  # pyright: ignore[reportAssignmentType]
    return str(error).splitlines()[0] if str(error) else type(error).__name__
