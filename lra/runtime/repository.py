"""The code of the suite: its packages, its digest and its commit."""

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parents[1]
"""The folder of `lra`, in which everything of the suite is."""
ROOT = PACKAGE.parent
"""The repository, or the folder where `lra` is installed."""


def leave_path() -> None:
    """Take the repository out of the path that Python looks for modules in.

    A project of the user's may have folders `models`, `tasks` or `results`, and there are such ones
    beside `lra`, too, in a clone. Modules of `lra` itself are found without the path.
    """
    if (ROOT / "models").is_dir():
        sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != ROOT]


def code_digest() -> str:
    """Hash the Python files of the suite: 12 hexadecimal digits."""
    digest = hashlib.sha256()
    folders = [PACKAGE, PACKAGE / "models", PACKAGE / "tasks"]  # the latter two may be links
    files = {path for folder in folders for path in folder.rglob("*.py")}
    for path in sorted(files):
        name = path.relative_to(PACKAGE)
        digest.update(f"{name}\0".encode() + path.read_bytes() + b"\0")
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
