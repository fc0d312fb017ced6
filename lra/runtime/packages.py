"""What Python imports: the packages of the suite, which others can hide."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterable

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120

PACKAGES = ("common", "models", "tasks")


def describe_shadow() -> str | None:
    """Describe a module that Python imports in place of a package of the suite; None without one.

    A folder `models` beside a script, for one, comes before installed packages. Both cannot be
    imported in one process, so the advice depends on where the other one lies.
    """
    for name in PACKAGES:
        own = os.path.join(ROOT, name)  # noqa: PTH118
        found = next(iter(_locations(name)), None)
        if found is not None and os.path.realpath(found) != os.path.realpath(own):
            advice = "install the suite into a virtual environment of its own"
            if os.path.realpath(os.path.dirname(found)) == os.path.realpath(sys.path[0]):  # noqa: PTH120
                advice = (
                    "if this program does not import it, start Python with -P (python -P ...), "
                    "which does not look for modules in the folder of the script or in the working "
                    "directory"
                )
            return (
                f"Python imports {name} from {found}, which hides the package {name} of the suite, "
                f"{own}. Give yours another name, or {advice}"
            )
    return None


def is_command() -> bool:
    """Whether this process was started as a command of the suite, which ends without a traceback.

    sys.argv[0] is "-m" while Python looks for the module that `python -m` names.
    """
    return os.path.basename(next(iter(sys.argv), "")) in ("-m", "lra", "run_task.py", "report.py")  # noqa: PTH119


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
