"""Preparation of a task's data: the cache that it is kept in, and how it is made.

A cache is written to a folder beside its final place and renamed when complete, under a
lock: a killed preparation leaves nothing that could be taken for a complete cache, and of two
processes that prepare the same data, one does the work and the other waits. An interrupted
preparation that takes long goes on where it was.
"""

import contextlib
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from filelock import FileLock, Timeout

from lra.common.errors import DataError
from lra.common.files import format_bytes, free_disk_bytes, name_file_in_errors, write_atomically
from lra.common.untrusted import map_array
from lra.tasks.cache import (
    FORMAT,
    Cache,
    Manifest,
    OriginFacts,
    canonical_hash,
    file_facts,
    open_cache,
)

logger = logging.getLogger(__name__)


class Build:
    """A cache in the making: arrays are written at once, the facts about them at the end."""

    def __init__(self, folder: Path, source: str) -> None:
        self.folder = folder
        self.source = source
        self.unofficial_because = ""
        self.sizes: dict[str, int] = {}
        self.baselines: dict[str, float] = {}
        self.origin: dict[str, OriginFacts] = {}
        self.notes: dict[str, int] = {}
        self.skipped: list[str] = []

    def mark_unofficial(self, because: str) -> None:
        """Say that the data is not the official release, and what it has in another way."""
        self.source, self.unofficial_because = "unofficial", because

    def save(self, name: str, array: np.ndarray) -> None:
        """Write an array."""
        path = self.folder / f"{name}.npy"
        with name_file_in_errors(path):
            np.save(path, array, allow_pickle=False)

    def array(self, name: str) -> np.ndarray:
        """Map an array that was written into memory, read-only."""
        return map_array(self.folder / f"{name}.npy")

    def drop(self, name: str) -> None:
        """Delete an array that the finished data does not need."""
        (self.folder / f"{name}.npy").unlink()

    def finish(self, task: str, request: dict[str, Any]) -> None:
        """Write everything to the disk, and the manifest last."""
        paths = sorted(self.folder.glob("*.npy"))
        for path in paths:
            with name_file_in_errors(path), path.open("rb") as file:
                os.fsync(file.fileno())
        facts = {name: value for name, value in vars(self).items() if name != "folder"}
        files = {path.name: file_facts(path) for path in paths}
        manifest = Manifest(format=FORMAT, task=task, request=request, files=files, **facts)
        content = (manifest.model_dump_json(indent=2) + "\n").encode()
        write_atomically(self.folder / "manifest.json", content)


@dataclass(kw_only=True)
class Preparation:
    """The cache of a task's data, and how it is made where there is none."""

    data_dir: Path
    task: str
    name: str
    """A word on the request, which begins the name of the cache's folder."""
    source: str
    """Where the data comes from, unless `build` finds another source."""
    request: dict[str, Any]
    """Everything that the data depends on."""
    build: Callable[[Build], None]
    """Writes the arrays and the facts about them."""
    description: str = ""
    """What is to be done, such as "generate 100 examples"."""
    resumes: bool = False
    """Whether `build` goes on with the arrays that an interrupted one of the same request left. It
    writes them in place then, and others hold them in memory first."""
    bytes: int = 0
    """Size of the arrays, about, where it is known before they are made."""

    @property
    def folder(self) -> Path:
        """The folder of the cache, whose name ends in the start of the request's hash."""
        return self.data_dir / self.task / f"{self.name}-{canonical_hash(self.request)[:12]}"

    def describe(self) -> str:
        """Say what `open_or_build` still has to do; nothing, where there is a cache.

        Raises: DataError if there is no room for the arrays.
        """
        return "" if self.folder.exists() else self._describe_work()

    def _describe_work(self) -> str:
        """Say what is to be done; DataError if disk or memory have no room for the arrays."""
        partial = self.folder.with_name(f"{self.folder.name}.partial")
        free = {"the disk": free_disk_bytes(self.folder)}
        if not self.resumes:
            free["memory"] = psutil.virtual_memory().available
        elif partial.exists():  # which has its space already
            free.clear()
        for resource, left in free.items():
            if self.bytes > left:
                raise DataError(
                    f"cannot {self.description}, which take {format_bytes(self.bytes)} or more: "
                    f"{resource} has {format_bytes(left)} left; ask for fewer or shorter examples"
                )
        return self.description + (f" ({format_bytes(self.bytes)})" if self.bytes else "")

    def open_or_build(self) -> Cache:
        """Open the cache; where there is none, make it.

        Raises: DataError as `describe`, `open_cache` and `build` do.
        """
        folder = self.folder
        if folder.exists():  # complete, as it is named last; and the data folder may be read-only
            return open_cache(folder, self.request)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _lock(folder):
            if not folder.exists():
                work = self._describe_work()
                if self.bytes >= 2**30:  # less is a matter of seconds or minutes
                    logger.info(f"{self.task}: {work}")
                partial = folder.with_name(f"{folder.name}.partial")
                if not self.resumes:
                    shutil.rmtree(partial, ignore_errors=True)
                partial.mkdir(exist_ok=self.resumes)
                made = Build(partial, self.source)
                try:
                    self.build(made)
                    made.finish(self.task, self.request)
                    partial.rename(folder)
                except BaseException as error:
                    if isinstance(error, Exception) or not self.resumes:
                        shutil.rmtree(partial, ignore_errors=True)
                    raise
            return open_cache(folder, self.request)


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    lock = FileLock(f"{folder}.lock")
    try:
        held = lock.acquire(timeout=0)
    except Timeout:
        logger.info(f"waiting for another process, which is preparing {folder}")
        held = lock.acquire()
    with held:
        yield
