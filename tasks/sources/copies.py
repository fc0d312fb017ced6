"""Several copies of the same data: which one is read, and which ones are not."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable
from pathlib import PurePath, PurePosixPath

from tasks.preparation import Build

logger = logging.getLogger(__name__)

ARCHIVE = "lra_release"
"""The archive of the Long Range Arena has this folder, and in it another one of the same name."""

NOTE = "other copies of the data that were not read"


def copy_order(path: PurePath | str) -> tuple[bool, int, tuple[str, ...]]:
    """Return a sort key for the paths of several copies: the copy to read comes first.

    The archive of the Long Range Arena holds pathfinder128 twice. The labels of one copy cannot be
    learned (google-research/long-range-arena#38); published code reads lra_release/lra_release.
    """
    parts = PurePosixPath(path).parts
    is_inner = (ARCHIVE, ARCHIVE) in itertools.pairwise(parts)
    return not is_inner, len(parts), parts


def note_copies(made: Build, read: PurePath | str, others: Iterable[PurePath | str]) -> None:
    """Name the other copies of the data that were not read, in the log and in the manifest."""
    for other in others:
        line = f"{other} was not read: it is another copy of the data, and {read} was read"
        logger.warning(line)
        made.skipped.append(line)
        made.notes[NOTE] = made.notes.get(NOTE, 0) + 1
