"""Check a mixer or a task of the user's own: `python -m lra.check --help`."""

from __future__ import annotations

import argparse
import logging
import sys

from lra.check.checks import carry_out, mixer_checks, task_checks
from lra.common.errors import UserError
from lra.config.components import MixerComponent
from lra.config.compose import compose_options
from lra.config.registry import FORMS, LIBRARIES, find_mixer, find_task, load_class
from lra.config.request import parse_changes
from lra.runtime.cli import Parser, command_words, positive_int, run_command
from lra.runtime.console import (
    set_message_level,
    terminal_width,
    wrap_command,
    wrap_words,
    write_out,
)

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


def check(options: argparse.Namespace) -> int:
    """Carry a command line out; return the exit code.

    Raises: UserError for a class that is neither a mixer nor a task, and for wrong options.
    """
    target: str = options.target
    if ":" not in target:
        raise UserError(f"{target}: expected {FORMS}")
    is_dataset = target.partition(":")[0] in LIBRARIES
    is_mixer = not is_dataset and MixerComponent.fits(load_class(target, target)[1])
    component = find_mixer(target, "--mixer") if is_mixer else find_task(target, "--task")
    start = f"{component.kind}."
    changes = parse_changes(start + text.removeprefix(start) for text in options.overrides)
    chosen = compose_options(component, changes)
    set_message_level(logging.WARNING)  # the remarks of checks say what log lines say
    if isinstance(component, MixerComponent):
        checks = mixer_checks(component, chosen, options.dim)
    else:
        checks = task_checks(component, chosen, changes)
    failed, passed = carry_out(component, checks)
    count, kind, width = len(failed) + len(passed), component.kind, terminal_width()
    if failed:
        verdict = f"{len(failed)} of {count} checks failed"
        step = wrap_words("next: correct what failed, and run the same command again", width)
    else:
        verdict = f"all {count} checks passed"
        named = {"task": "listops", "mixer": "tnn", kind: options.target}
        settings = [word for change in changes for word in ("--set", change.text)]
        names = ["--task", named["task"], "--mixer", named["mixer"], "--preset", "quick"]
        step = wrap_command("next:", command_words("run", *names, *settings), width)
    lines = [line for result in (*failed, *passed) for line in wrap_words(result, width)]
    title = wrap_words(f"{kind} {options.target}: {verdict}", width)
    write_out("\n".join([*title, "", *lines, "", *step, ""]))
    return FAILED if failed else 0


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command("lra.check", lambda: check(parse_arguments(arguments)))


if __name__ == "__main__":
    sys.exit(main())
