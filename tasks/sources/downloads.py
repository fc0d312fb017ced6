"""Downloads that resume where they broke off and are verified before use."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from tasks.errors import KnownError
from tasks.files import name_file_in_errors
from tasks.manifest import file_facts
from tasks.progress import progress

logger = logging.getLogger(__name__)

CHUNK = 2**16
TIMEOUT = (5, 30)
"""Seconds to wait for a connection, and for the next bytes."""
ATTEMPTS = 5
"""How often one call resumes a download that broke off."""


class DownloadError(KnownError):
    """A file could not be downloaded."""


@dataclass(frozen=True)
class Address:
    """A file on the network, with the size and the checksum that it must have."""

    url: str
    file_name: str
    bytes: int
    sha256: str


def look_up_address(dataset: str) -> Address:
    """Look up the address of a data set's only file as tensorflow-datasets registers it."""
    import tensorflow_datasets

    url_infos: Any = tensorflow_datasets.builder_cls(dataset).url_infos
    ((url, facts),) = url_infos.items()
    return Address(url, url.rpartition("/")[2], int(facts.size), str(facts.checksum))


def download(address: Address, target: Path) -> Path:
    """Download a file, or the rest of one; the file gets its name once its checksum is right.

    Args:
        address: where the file is, with its size and checksum.
        target: path that the file gets.
    Returns: target.
    Raises: DownloadError naming the address and the reason.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{target}.lock"):
        if target.exists():  # another process was faster
            return target
        partial = target.with_name(f"{target.name}.partial")
        _resume(address, partial)
        if file_facts(partial).sha256 != address.sha256:
            partial.unlink()
            raise DownloadError(
                f"{address.url}: the checksum of the downloaded file is wrong; deleted"
            )
        return partial.rename(target)


def _resume(address: Address, partial: Path) -> None:
    """Download the missing bytes of a file, resuming where it broke off."""
    import requests

    with progress(f"downloading {address.url}", total=address.bytes, unit="B") as bar:
        for _ in range(ATTEMPTS):
            before = _size(partial)
            bar.update(before - bar.n)
            if before >= address.bytes:
                break
            try:
                _append(address, partial, bar)
            except requests.RequestException as error:
                if _size(partial) == before:
                    raise DownloadError(f"{address.url}: {_reason(error)}") from None
                logger.info(f"{address.url} broke off at {_size(partial):,} bytes; resuming")
    if (size := _size(partial)) != address.bytes:
        if size > address.bytes:
            partial.unlink()
        raise DownloadError(f"{address.url}: got {size:,} bytes, expected {address.bytes:,}")


def _append(address: Address, partial: Path, bar: Any) -> None:
    """Download from where a file ends, or from the start if the server cannot send a range."""
    import requests

    done = _size(partial)
    headers = {"Range": f"bytes={done}-", "Accept-Encoding": "identity"}
    with requests.get(address.url, headers=headers, stream=True, timeout=TIMEOUT) as answer:
        answer.raise_for_status()
        is_rest = answer.status_code == requests.codes.partial_content
        with partial.open("ab" if is_rest else "wb") as file:
            bar.update(file.tell() - bar.n)
            for chunk in answer.iter_content(CHUNK):
                with name_file_in_errors(partial):
                    file.write(chunk)
                bar.update(len(chunk))
                if file.tell() > address.bytes:  # the server sends another file
                    break


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _reason(error: Exception) -> str:
    """Return the innermost reason of an error, in a line."""
    while error.__context__ is not None:
        error = error.__context__  # pyright: ignore[reportAssignmentType]
    return str(error).splitlines()[0] if str(error) else type(error).__name__
