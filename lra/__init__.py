"""The harness around mixers and tasks; its rooms import only from those beneath them.

What Python code calls, `build`, `load` and `records`, is imported when it is first used.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # typing takes a while to import, in which Ctrl-C would show a traceback
if TYPE_CHECKING:
    from lra.api.frame import records
    from lra.api.model import Built, TrainedRun, build, load
    from lra.runtime.errors import UserError
    from tasks.errors import DataError

__all__ = [
    "Built",
    "DataError",
    "TrainedRun",
    "UserError",
    "api",
    "bench",
    "build",
    "classifier",
    "config",
    "evaluate",
    "load",
    "prepare",
    "record",
    "records",
    "report",
    "runtime",
    "sweep",
    "train",
]


def __getattr__(name: str) -> object:
    """Import what is called by its name alone, as torch takes seconds."""
    places = {
        "Built": "lra.api.model",
        "DataError": "tasks.errors",
        "TrainedRun": "lra.api.model",
        "UserError": "lra.runtime.errors",
        "build": "lra.api.model",
        "load": "lra.api.model",
        "records": "lra.api.frame",
    }
    if name not in places:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(places[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
