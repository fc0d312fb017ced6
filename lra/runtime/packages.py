"""The packages of the suite, which others of the same name can hide."""

from __future__ import annotations

import importlib.util
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120

PACKAGES = ("common", "models", "tasks")


def refuse_shadow() -> None:
    """Raise ImportError if Python imports a module in place of a package of the suite.

    A folder `models` beside a script, for one, comes before installed packages. A command of the
    suite ends with a line instead.
    """
    for name in PACKAGES:
        found = _location(name)
        own = os.path.join(ROOT, name)  # noqa: PTH118
        if found is None or os.path.realpath(found) == os.path.realpath(own):
            continue
        text = (
            f"Python imports {name} from {found}, which hides the package {name} of the suite, "
            f"{own}. Give yours another name, or start Python with -P (python -P ...), which does "
            f"not look for modules in the folder of the script or in the working directory"
        )
        # sys.argv[0] is "-m" while Python looks for the module that `python -m` names.
        if os.path.basename(sys.argv[0]) not in ("-m", "lra", "run_task.py", "report.py"):  # noqa: PTH119
            raise ImportError(text)
        sys.stderr.write(f"lra: error: {text}\n")
        sys.exit(2)


def _location(name: str) -> str | None:
    """Return where a module of this name is, or would be, imported from."""
    if name in sys.modules:
        module = sys.modules[name]
        return next(iter(getattr(module, "__path__", ())), getattr(module, "__file__", None))
    spec = importlib.util.find_spec(name)
    return spec and next(iter(spec.submodule_search_locations or ()), spec.origin)
