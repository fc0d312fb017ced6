"""Check a mixer or a task of the user's own: `python -m lra.check --help`."""

from __future__ import annotations

import argparse
import logging
import sys

from lra.check.checks import CheckResult, carry_out
from lra.check.mixers import mixer_checks
from lra.check.tasks import task_checks
from lra.config.components import Component, MixerComponent, TaskComponent
from lra.config.compose import compose_options
from lra.config.registry import FORMS, find_mixer, find_task, load_class
from lra.config.request import Change, parse_changes
from lra.runtime.cli import Parser, positive_int
from lra.runtime.cli import run_command as carry_out_command
from lra.runtime.console import display_messages, write_out
from lra.runtime.errors import UserError
from lra.runtime.launch import command_words
from lra.runtime.terminal import terminal_width, wrap_command, wrap_words

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
    parser.add_argument("target", metavar="FILE:CLASS", help=FORMS)
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides",
        help="value of an option of the class",
    )  # fmt: skip
    parser.add_argument(
        "--dim", type=positive_int, default=16, help="number of channels of a mixer (default: 16)"
    )
    return parser.parse_args(arguments)


def _changes(options: argparse.Namespace, section: str) -> tuple[Change, ...]:
    """Read the changed options; the name of the section may be left out."""
    return parse_changes(
        text if text.partition("=")[0].startswith(f"{section}.") else f"{section}.{text}"
        for text in options.overrides
    )


def try_out(options: argparse.Namespace) -> tuple[Component, list[CheckResult]]:
    """Carry out all checks of what a command line names.

    Raises: UserError for a class that is neither a mixer nor a task, and for wrong options.
    """
    target: str = options.target
    if ":" not in target:
        raise UserError(f"{target}: expected {FORMS}")

    def fits(cls: type) -> bool:
        return MixerComponent.fits(cls) or TaskComponent.fits(cls)

    expected = f"a mixer ({MixerComponent.expected}) or a task ({TaskComponent.expected})"
    _, cls = load_class(target, target, fits, expected)
    if MixerComponent.fits(cls):
        mixer = find_mixer(target, "--mixer")
        chosen = compose_options(mixer, _changes(options, mixer.kind))
        return mixer, carry_out(mixer, mixer_checks(mixer, chosen, options.dim))
    task = find_task(target, "--task")
    changes = _changes(options, task.kind)
    chosen = compose_options(task, changes)
    return task, carry_out(task, task_checks(task, chosen, changes))


def check(options: argparse.Namespace) -> int:
    """Carry a command line out; return the exit code."""
    with display_messages(logging.WARNING):  # the remarks of checks say what log lines say
        component, results = try_out(options)
    failed = [result for result in results if result.fault is not None]
    passed = [result for result in results if result.fault is None]
    count, kind, width = len(results), component.kind, terminal_width()
    verdict = f"all {count} checks passed"
    step = wrap_words("next: correct what failed, and run the same command again", width)
    if failed:
        verdict = f"{len(failed)} of {count} checks failed"
    else:
        chosen = {"task": "listops", "mixer": "tnn", kind: options.target}
        settings = [word for change in _changes(options, kind) for word in ("--set", change.text)]
        command = command_words("run", "--task", chosen["task"], "--mixer", chosen["mixer"],
                                "--preset", "quick", *settings)  # fmt: skip
        step = wrap_command("next:", command, width)
    found = [line for result in (*failed, *passed) for line in wrap_words(result.line, width)]
    title = wrap_words(f"{kind} {options.target}: {verdict}", width)
    write_out("\n".join([*title, "", *found, "", *step, ""]))
    return FAILED if failed else 0


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return carry_out_command("lra.check", lambda: check(parse_arguments(arguments)))


if __name__ == "__main__":
    sys.exit(main())
