"""The code of the suite: where it lies, its digest and its commit."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def code_digest() -> str:
    """Hash the Python files of this repository's packages: 12 hexadecimal digits."""
    digest = hashlib.sha256()
    for package in ("lra", "models", "tasks", "common"):
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
    command = ["git", "-c", f"safe.directory={ROOT}"]

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                [*command, *arguments], cwd=ROOT, capture_output=True, text=True, check=True
            )
        except (OSError, subprocess.CalledProcessError):
            return None
        return done.stdout.strip()

    changes = git("status", "--porcelain", "--untracked-files=no")
    return {"commit": git("rev-parse", "HEAD"), "dirty": None if changes is None else bool(changes)}
