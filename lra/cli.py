"""What the command lines share: checked arguments, and mistakes in one line."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable

USER_ERROR = 2
INTERRUPTED = 130


def positive_int(text: str) -> int:
    """Read a whole number of at least 1."""
    value = non_negative_int(text)
    if value == 0:
        raise argparse.ArgumentTypeError("got 0, expected at least 1")
    return value


def non_negative_int(text: str) -> int:
    """Read a whole number of at least 0."""
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a whole number") from None
    if value < 0:
        raise argparse.ArgumentTypeError(f"got {text}, expected at least 0")
    return value


def non_negative_float(text: str) -> float:
    """Read a number of at least 0."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a number") from None
    if not (math.isfinite(value) and value >= 0):
        raise argparse.ArgumentTypeError(f"got {text}, expected a finite number of at least 0")
    return value


def carry_out(program: str, action: Callable[[], int]) -> int:
    """Run a command; turn a user's mistake into one line and an exit code."""
    from lra.errors import UserError
    from tasks.base import DataError

    try:
        return action()
    except (UserError, DataError, OSError) as error:
        sys.stderr.write(f"{program}: error: {error}\n")
        return USER_ERROR
    except KeyboardInterrupt:
        sys.stderr.write(f"{program}: interrupted\n")
        return INTERRUPTED
