"""Train sequence mixers on the Long Range Arena from Python: `lra.run`, `lra.build`, `lra.load`.

Importing this package is cheap: what it offers is imported when it is first used.
`__init__.pyi` lists it for type checkers.
"""

import importlib
from pathlib import Path

if not Path(__file__).with_name("models").is_dir():
    raise ImportError(
        "lra/models is no folder here, but a link that was lost when the suite was copied or "
        "unpacked; use git clone, or install the suite with pip"
    )

__all__ = [
    "Built", "Data", "DataError", "TrainedRun", "UserError", "build", "check", "data",
    "list_mixers", "list_tasks", "load", "metrics", "mixer", "records", "run",
]  # fmt: skip

_MODULES = {
    "lra.common.errors": ("DataError", "UserError"),
    "lra.api.frame": ("metrics", "records"),
    "lra.api.mixers": ("list_mixers", "mixer"),
    "lra.api.trained": ("TrainedRun", "load"),
    "lra.check": ("check",),
    "lra.api.training": ("Built", "Data", "build", "data", "list_tasks", "run"),
}
"""Names that a module has for this package."""


def __getattr__(name: str) -> object:
    """Import a name when it is first used, because torch takes seconds to import."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
