"""What Python imports: the packages of the suite, which others can hide, and its requirements."""

from __future__ import annotations

import importlib.util
import os
import sys

TYPE_CHECKING = False  # typing takes a while to import, in which Ctrl-C would show a traceback
if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120

PACKAGES = ("models", "tasks")

REQUIREMENTS = ("torch", "numpy", "pydantic", "tqdm", "yaml")
"""Packages that every command needs."""


def describe_shadow() -> str | None:
    """Describe a module that Python imports in place of a package of the suite; None without one.

    A folder `models` beside a script, for one, comes before installed packages.
    """
    for name in PACKAGES:
        own = os.path.join(ROOT, name)  # noqa: PTH118
        found = next(iter(_locations(name)), None)
        if found is not None and os.path.realpath(found) != os.path.realpath(own):
            return (
                f"Python imports {name} from {found}, which hides the package {name} of the suite, "
                f"{own}. Rename yours, or start Python with -P (python -P ...): then it does not "
                f"look for modules in the folder of the script or in the working directory"
            )
    return None


def describe_missing() -> str | None:
    """Describe which requirements this Python lacks; None if it has all of them."""
    missing = [name for name in REQUIREMENTS if importlib.util.find_spec(name) is None]
    if not missing:
        return None
    return (
        f"{sys.executable} has no {', '.join(missing)}. Activate the virtual environment of the "
        f"suite (source .venv/bin/activate), or install what it needs: pip install -e {ROOT}"
    )


def _locations(name: str) -> Iterable[str]:
    """List where a module of this name is, or would be, imported from."""
    if name in sys.modules:
        module = sys.modules[name]
        return getattr(module, "__path__", None) or filter(
            None, [getattr(module, "__file__", None)]
        )
    spec = importlib.util.find_spec(name)
    if spec is None:
        return []
    return spec.submodule_search_locations or filter(None, [spec.origin])
