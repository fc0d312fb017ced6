"""The code of the suite: its packages, its digest and its commit."""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

PACKAGES = ("common", "models", "tasks")
"""Packages beside `lra`, which others of the same name can hide."""


def refuse_shadow() -> None:
    """Raise ImportError if Python imports a module in place of a package of the suite.

    A folder `models` beside a script, for one, comes before installed packages. A command of the
    suite ends with a line instead.
    """
    for name in PACKAGES:
        expected, spec = ROOT / name, importlib.util.find_spec(name)
        if spec is None or spec.origin is None or Path(spec.origin).resolve().parent == expected:
            continue
        text = (
            f"Python imports {name} from {spec.origin}, which hides the package {name} of the "
            f"suite, {expected}. Give yours another name, or start Python with -P (python -P ...), "
            f"which does not look for modules in the folder of the script or in the working "
            f"directory"
        )
        # sys.argv[0] is "-m" while Python looks for the module that `python -m` names.
        if Path(sys.argv[0]).name not in ("-m", "lra", "run_task.py", "report.py"):
            raise ImportError(text)
        sys.stderr.write(f"lra: error: {text}\n")
        sys.exit(2)


def code_digest() -> str:
    """Hash the Python files of this repository's packages: 12 hexadecimal digits."""
    digest = hashlib.sha256()
    for package in ("lra", *PACKAGES):
        for path in sorted((ROOT / package).rglob("*.py")):
            digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def git_state() -> dict[str, Any]:
    """Return the commit that this code is at and whether files differ from it.

    Both are None where this code is no checkout. A checkout may belong to another user, and the
    working directory may be gone.
    """
    if not (ROOT / ".git").exists():  # git would look for a repository in the folders above
        return {"commit": None, "dirty": None}

    def git(*arguments: str) -> str | None:
        command = ["git", "-c", f"safe.directory={ROOT}", *arguments]
        try:
            return subprocess.check_output(
                command, cwd=ROOT, stderr=subprocess.DEVNULL, text=True
            ).strip()
        except (OSError, subprocess.CalledProcessError):
            return None

    changes = git("status", "--porcelain", "--untracked-files=no")
    return {"commit": git("rev-parse", "HEAD"), "dirty": None if changes is None else bool(changes)}
