"""What torchrun says about this process: whether it has others beside it, and which one it is."""

from __future__ import annotations

import os


def is_launched() -> bool:
    """Whether torchrun started this process together with others."""
    return "TORCHELASTIC_RUN_ID" in os.environ and launch_number("WORLD_SIZE") > 1


def is_restart() -> bool:
    """Whether torchrun started these processes again, after one had failed."""
    return is_launched() and launch_number("TORCHELASTIC_RESTART_COUNT") > 0


def is_silent() -> bool:
    """Whether another process prints what this one would."""
    return is_launched() and launch_number("RANK") > 0


def is_on_one_machine() -> bool:
    """Whether all processes that torchrun started run on this machine."""
    return launch_number("LOCAL_WORLD_SIZE") == launch_number("WORLD_SIZE")


def launch_number(variable: str) -> int:
    """Read a number that torchrun left in the environment."""
    return int(os.environ[variable])
