"""All commands of the suite under one name: `lra COMMAND`, or `python -m lra COMMAND`."""

import runpy
import sys

from lra.runtime.cli import USER_ERROR, report_error
from lra.runtime.console import write_out

COMMANDS = {
    "run": "train a mixer on a task and save the result",
    "sweep": "carry out many runs: tasks, mixers, seeds, settings",
    "report": "make tables, figures and a page of all results",
    "evaluate": "test a trained model on longer or other data",
    "range": "measure which distances and which order a trained model uses",
    "generate": "continue a text with a trained language model",
    "bench": "measure speed and memory usage",
    "check": "check a mixer or a task of your own",
    "prepare": "download or generate the data of a task",
    "submit": "contribute results to the open leaderboard, or check them",
    "record": "list, validate, merge, export and remove saved runs",
}
"""What each command does; it is a module of this package."""


def describe_commands() -> str:
    """List all commands, a line each."""
    lines = [f"  {name:<10}{purpose}" for name, purpose in COMMANDS.items()]
    usage = "usage: lra COMMAND [FLAGS]          (or: python -m lra COMMAND [FLAGS])"
    return "\n".join([usage, "", *lines, "", "The flags of a command: lra COMMAND --help", ""])


def main() -> int:
    """Run the command line and return its exit code."""
    name, *flags = sys.argv[1:] or ["--help"]
    if name in ("--help", "-h"):
        write_out(describe_commands())
        return 0
    if name not in COMMANDS:
        report_error("lra", f"unknown command {name!r} (valid: {', '.join(COMMANDS)})")
        return USER_ERROR
    sys.argv = [sys.argv[0], *flags]
    module = "run_task" if name == "run" else name
    runpy.run_module(f"lra.{module}", run_name="__main__", alter_sys=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
