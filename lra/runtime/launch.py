"""How this process was started: by which command, and by torchrun with which others."""

from __future__ import annotations

import os
from pathlib import Path

from lra.runtime.console import as_typed

SCRIPTS = {"run": "run_task.py", "report": "report.py"}
"""The script of a command."""
_started_by: list[str] = []
"""The command that started another one: `lra`, or `python -m lra`."""


def remember_starter(words: list[str]) -> None:
    """Remember the command that starts another one, for `command_words`."""
    _started_by[:] = words


def command_words(
    name: str, *flags: str, data_dir: Path | None = None, results_dir: Path | None = None
) -> list[str]:
    """Return the words of a command, as `lra NAME` takes it, to be started as this one was.

    Folders are named unless they are the default ones.
    """
    alone = ["python", SCRIPTS[name]] if name in SCRIPTS else ["python", "-m", f"lra.{name}"]
    words = [*([*_started_by, name] if _started_by else alone), *flags]
    for default, folder in (("data", data_dir), ("results", results_dir)):
        shown = default if folder is None else as_typed(str(folder))
        words += [] if shown == default else [f"--{default}-dir", shown]
    return words


def is_launched() -> bool:
    """Whether torchrun started this process together with others."""
    return "TORCHELASTIC_RUN_ID" in os.environ and launch_number("WORLD_SIZE") > 1


def is_restart() -> bool:
    """Whether torchrun started these processes again, after one had failed."""
    return is_launched() and launch_number("TORCHELASTIC_RESTART_COUNT") > 0


def is_silent() -> bool:
    """Whether another process prints what this one would."""
    return is_launched() and launch_number("RANK") > 0


def launch_number(variable: str) -> int:
    """Read a number that torchrun left in the environment."""
    return int(os.environ[variable])
