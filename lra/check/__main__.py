"""Check a mixer or a task of the user's own: `python -m lra.check --help`."""

import argparse
import sys

from lra.check import find_component, print_checks
from lra.config.registry import FORMS
from lra.config.request import parse_changes
from lra.runtime.cli import Parser, command_words, make_main, positive_int
from lra.runtime.console import terminal_width, wrap_command

FAILED = 1


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(
        prog="python -m lra.check",
        description="Check a mixer or a task of your own on a few small inputs before you train: "
        "everything that a run needs and, for a subclass of models.base.Mixer, everything that the "
        "tests of this repository need.",
        epilog="Exit codes: 0 every check passed, 1 a check failed, 2 mistake in the command or "
        "the file, 130 interrupted.",
    )
    add = parser.add_argument
    add("target", metavar="FILE:CLASS", help=FORMS)
    add("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides",
        help="value of an option of the class")  # fmt: skip
    add("--dim", type=positive_int, default=16,
        help="number of channels of a mixer (default: 16)")  # fmt: skip
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> int:
    """Carry a command line out; return the exit code."""
    component = find_component(options.target)
    start = f"{component.kind}."
    changes = parse_changes(start + text.removeprefix(start) for text in options.overrides)
    named = {"task": "listops", "mixer": "tnn", component.kind: options.target}
    settings = [word for change in changes for word in ("--set", change.text)]
    names = ["--task", named["task"], "--mixer", named["mixer"], "--preset", "quick"]
    step = wrap_command("next:", command_words("run", *names, *settings), terminal_width())
    return 0 if print_checks(component, options.target, changes, options.dim, step) else FAILED


main = make_main("lra.check", parse_arguments, run)

if __name__ == "__main__":
    sys.exit(main())
