"""All commands of the suite under one name: `lra COMMAND`, or `python -m lra COMMAND`."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import NamedTuple

from lra.runtime.cli import USER_ERROR, report_error
from lra.runtime.console import write_out
from lra.runtime.errors import nearest
from lra.runtime.launch import SCRIPTS, remember_starter

ROOT = Path(__file__).resolve().parent.parent


class Command(NamedTuple):
    """A command: where its code is, and what it does in a few words."""

    module: str
    """A module of this package, or a file beside it."""
    purpose: str


COMMANDS = {
    "run": Command(SCRIPTS["run"], "train a mixer on a task and save the result"),
    "sweep": Command("lra.sweep", "carry out many runs: tasks, mixers, seeds, settings"),
    "report": Command(SCRIPTS["report"], "make tables, figures and a page of all results"),
    "evaluate": Command("lra.evaluate", "test a trained model on longer or other data"),
    "generate": Command("lra.generate", "continue a text with a trained language model"),
    "bench": Command("lra.bench", "measure speed and memory usage"),
    "check": Command("lra.check", "check a mixer or a task of your own"),
    "prepare": Command("lra.prepare", "download or generate the data of a task"),
    "record": Command("lra.record", "list, validate, merge, export and remove saved runs"),
}


def describe_commands() -> str:
    """List all commands, a line each."""
    lines = [f"  {name:<10}{command.purpose}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: lra COMMAND [FLAGS]          (or: python -m lra COMMAND [FLAGS])",
            "",
            *lines,
            "",
            "The flags of a command: lra COMMAND --help",
            "",
        ]
    )


def start(name: str) -> None:
    """Run a command as if it had been started alone; sys.argv has its flags."""
    module = COMMANDS[name].module
    if module.endswith(".py"):  # not by its name: a user's own report.py may come first
        runpy.run_path(str(ROOT / module), run_name="__main__")
    else:
        runpy.run_module(module, run_name="__main__", alter_sys=True)


def main() -> int:
    """Run the command line and return its exit code."""
    name, *flags = sys.argv[1:] or ["--help"]
    if name in ("--help", "-h", "help"):
        write_out(describe_commands())
        return 0
    if name not in COMMANDS:
        similar = nearest(name, COMMANDS)
        hint = f"; did you mean {similar}?" if similar else ""
        report_error("lra", f"unknown command {name!r}{hint} (lra --help lists all commands)")
        return USER_ERROR
    is_module = Path(sys.argv[0]).name == "__main__.py"
    remember_starter(["python", "-m", "lra"] if is_module else ["lra"])
    sys.argv = [sys.argv[0], *flags]
    start(name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
