"""Downloads that resume where they broke off, from one of several places, and are verified."""

import logging
import math
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from filelock import FileLock

from lra.common.errors import KnownError
from lra.common.files import format_bytes, name_file_in_errors
from lra.common.progress import progress
from lra.tasks.cache import file_facts

logger = logging.getLogger(__name__)

CHUNK = 2**13
"""Bytes that are written at a time; fewer are lost where a connection ends."""
TIMEOUT = (5, 30)
"""Seconds to wait for a connection, and for the next bytes."""
UNCOMPRESSED = {"Accept-Encoding": "identity"}
RETRIES, BACKOFF = 2, 0.5
"""How often a place is asked again that does not answer, and seconds to wait, doubled each time."""
TOLERANCE = 0.01
"""Relative error of a size that is only known about."""


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
    """Exact if there is a checksum, and right within TOLERANCE if there is none."""
    sha256: str = ""
    """If it is not known, a place says the exact size, and Hugging Face the checksum, too."""


def download(address: Address, target: Path) -> Path:
    """Download a file, or the rest of one; the file gets its name once its checksum is right.

    What one place has sent is kept, and the next place sends the rest; links are not followed.

    Args:
        address: where the file is, with its size and checksum.
        target: path that the file gets.
    Returns: target.
    Raises: DownloadError naming every place and why it failed.
    """
    from requests import RequestException
    from urllib3.exceptions import HTTPError

    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{target}.lock"):
        if target.exists():  # another process was faster
            return target
        partial = _partial(target)
        if partial.is_symlink() or (partial.exists() and not partial.is_file()):
            partial.unlink()
        failures: list[str] = []
        for url in address.urls:
            logger.info(f"{address.file_name} ({format_bytes(address.bytes)}) comes from {url}")
            try:
                _complete(url, address, partial)
                return partial.rename(target)
            except (DownloadError, RequestException, HTTPError, ValueError) as error:
                failures.append(f"{url}: {error}")
        raise DownloadError("; ".join(failures))


def _complete(url: str, address: Address, partial: Path) -> None:
    """Download the missing bytes, as long as each connection brings some, and verify all.

    A file whose start was there before is downloaded again as a whole if its checksum is wrong.
    """
    import requests
    from requests.adapters import HTTPAdapter
    from urllib3 import Retry

    retry = Retry(RETRIES, backoff_factor=BACKOFF, status_forcelist=range(500, 600))
    title, had_start = f"downloading {address.file_name}", _size(partial) > 0
    with requests.Session() as session:
        for scheme in ("http://", "https://"):
            session.mount(scheme, HTTPAdapter(max_retries=retry))
        if not address.sha256:
            address = _ask(session, url, address)
        with progress(title, total=address.bytes, initial=_size(partial), unit="B") as bar:
            while (before := _size(partial)) < address.bytes:
                try:
                    _append(session, url, address, partial, bar)
                except requests.RequestException:
                    if _size(partial) <= before:
                        raise
                if _size(partial) <= before:
                    raise DownloadError("it sends nothing more")
    facts = file_facts(partial)
    if (facts.bytes, facts.sha256) != (address.bytes, address.sha256 or facts.sha256):
        partial.unlink()
        if had_start:
            return _complete(url, address, partial)
        raise DownloadError(
            f"the checksum of {facts.bytes:,} bytes is wrong, expected {address.bytes:,} bytes; "
            f"deleted"
        )


def _ask(session: Any, url: str, address: Address) -> Address:
    """Ask a place for the exact size of a file, and for the checksum if it knows that.

    Raises: DownloadError for a size beyond TOLERANCE.
    """
    # No HEAD: a signed address that a place redirects to may refuse it.
    with session.get(url, headers=UNCOMPRESSED, stream=True, timeout=TIMEOUT) as answer:
        answer.raise_for_status()
        size = int(answer.headers.get("Content-Length", 0))
        stated = [one.headers.get("X-Linked-ETag", "") for one in (*answer.history, answer)]
    if not math.isclose(size, address.bytes, rel_tol=TOLERANCE):
        raise DownloadError(f"got {size:,} bytes, expected about {address.bytes:,}")
    checksum = re.search(r"\b[0-9a-f]{64}\b", " ".join(stated))
    return replace(address, bytes=size, sha256=checksum[0] if checksum else "")


def _append(session: Any, url: str, address: Address, partial: Path, bar: Any) -> None:
    """Download from where a file ends, or from the start if the server cannot send a range.

    Raises: DownloadError, before anything is written, if the answer is no part of the file.
    """
    done = _size(partial)
    headers = {"Range": f"bytes={done}-", **UNCOMPRESSED}
    with session.get(url, headers=headers, stream=True, timeout=TIMEOUT) as answer:
        answer.raise_for_status()
        start = done if answer.status_code == 206 else 0  # noqa: PLR2004 (partial content)
        length = answer.headers.get("Content-Length", "")[:20]  # no file's size has more digits
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


def missing_bytes(address: Address, target: Path) -> int:
    """Return how many bytes of a file are still to be downloaded."""
    return 0 if target.exists() else max(0, address.bytes - _size(_partial(target)))


def _partial(target: Path) -> Path:
    return target.with_name(f"{target.name}.partial")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
