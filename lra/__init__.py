"""Train sequence mixers on the Long Range Arena from Python: `lra.run`, `lra.build`, `lra.load`.

Importing this package is cheap: what it offers is imported when it is first used.
`__init__.pyi` lists it for type checkers.
"""

from __future__ import annotations

import importlib

from lra.runtime.repository import refuse_shadow

__all__ = [
    "Built", "Data", "DataError", "TrainedRun", "UserError", "build", "data", "load", "metrics",
    "mixers", "records", "run", "tasks",
]  # fmt: skip

_MODULES = {
    "common.errors": ("DataError", "UserError"),
    "lra.api.frame": ("metrics", "records"),
    "lra.api.trained": ("TrainedRun", "load"),
    "lra.api.training": ("Built", "Data", "build", "data", "mixers", "run", "tasks"),
}
"""Names that a module has for this package."""


def __getattr__(name: str) -> object:
    """Import a name when it is first used, because torch takes seconds to import."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


refuse_shadow()


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
