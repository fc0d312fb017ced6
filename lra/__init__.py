"""Train sequence mixers on the Long Range Arena from Python: `lra.run`, `lra.build`, `lra.load`.

Importing this package is cheap: what it offers is imported when it is first used.
`__init__.pyi` lists it for type checkers.
"""

from __future__ import annotations

import importlib
import sys

from lra.runtime.packages import refuse_shadow

__all__ = [
    "Built",
    "Data",
    "DataError",
    "TrainedRun",
    "UserError",
    "api",
    "bench",
    "build",
    "classifier",
    "config",
    "data",
    "evaluate",
    "load",
    "metrics",
    "mixers",
    "prepare",
    "record",
    "records",
    "report",
    "run",
    "runtime",
    "sweep",
    "tasks",
    "train",
]


def __getattr__(name: str) -> object:
    """Import a name when it is first used, because torch takes seconds to import."""
    modules = {
        "Built": "lra.api.model",
        "Data": "lra.api.data",
        "DataError": "common.errors",
        "TrainedRun": "lra.api.model",
        "UserError": "lra.runtime.errors",
        "build": "lra.api.model",
        "data": "lra.api.data",
        "load": "lra.api.model",
        "metrics": "lra.api.frame",
        "mixers": "lra.api.data",
        "records": "lra.api.frame",
        "run": "lra.api.training",
        "tasks": "lra.api.data",
    }
    if name not in modules:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    refuse_shadow()
    return getattr(importlib.import_module(modules[name]), name)


refuse_shadow()


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
