"""Data sets of other libraries as tasks, by their names."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path

from lra.tasks.named.dataset import NamedDataset
from lra.tasks.named.hugging_face import HuggingFaceDataset
from lra.tasks.named.prepared import PreparedDataset

LIBRARIES: Mapping[str, type[NamedDataset]] = {"tfds": PreparedDataset, "hf": HuggingFaceDataset}
"""The class that reads the data sets of a library, by what their names begin with."""


@functools.cache
def bind_name(spec: str) -> type[NamedDataset]:
    """Make the class of one data set, LIBRARY:NAME, called as the task is in tables."""
    library, _, name = spec.partition(":")
    shown = Path(name).resolve().name if Path(name).is_dir() else name
    task = re.sub(r"[^\w.-]+", "-", f"{library}-{shown}")[:100]
    return type(task, (LIBRARIES[library],), {"origin": spec, "dataset": name})
