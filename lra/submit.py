"""Contribute results to the open leaderboard, and check contributions: `python -m lra.submit`."""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from lra.board.contribute import ASKED, choose_runs, contribute, ship_weights
from lra.board.files import check_files
from lra.board.marks import MARK_CHECKS, Workplace, add_mark, give_mark
from lra.common.errors import UnknownName, UserError
from lra.common.files import format_bytes
from lra.common.untrusted import read_text
from lra.record.community import community_dir, marks_path, read_submission
from lra.record.contribution import NAME
from lra.record.known_data import read_known_data
from lra.record.run import read_runs
from lra.record.schema import SHIPPED_RESULTS
from lra.runtime.cli import Parser, absolute_path, add_flags, make_main, whole_number
from lra.runtime.console import terminal_width, wrap_parts, wrap_words, write_out
from lra.runtime.environment import choose_device, use_threads
from lra.runtime.tables import count_nouns

FAILED = 1
"""Exit code for findings, and for a mark that was not given."""
MOST_SHOWN = 20
"""Most findings that are printed."""


def contribution_name(text: str) -> str:
    """Read the name of a contribution."""
    if not NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"got {text!r}, expected up to 40 lower-case letters, digits and hyphens"
        )
    return text


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(
        prog="python -m lra.submit",
        description="Contribute runs to the open leaderboard: write the folder of a pull request, "
        "print all that it makes public, and check it. Nothing is sent anywhere.",
        epilog="Exit codes: 0 done, 1 a check found something, 2 mistake in the command, 130 "
        "interrupted. docs/open_board.md explains marks and divisions.",
    )
    add = parser.add_argument
    add("runs", nargs="*", metavar="RUN",
        help="TASK/MIXER/RUN, as python -m lra.record list prints it (default: all runs that have "
        "ended and compare with shipped ones)")  # fmt: skip
    add_flags(parser, "--results-dir")
    add("--name", type=contribution_name, help="name of the contribution and of its folder")
    add("--to", type=absolute_path, default=community_dir(SHIPPED_RESULTS), metavar="FOLDER",
        help="folder of contributions (default: results/community of this checkout)")  # fmt: skip
    add("--left-out", metavar="REASON", help="why other runs of these settings are not submitted")
    add("--check", type=absolute_path, metavar="FOLDER", help="check a contribution by reading it")
    add("--changed", type=absolute_path, metavar="FILE",
        help="with --check: what git diff -z --name-only prints of a pull request")  # fmt: skip
    group = parser.add_argument_group("for maintainers; all marks but files run the submitted code")
    group.add_argument("--mark", nargs=2, metavar=("MARK", "FOLDER"),
        help="check a contribution, or results/shipped, and write the mark: "
        + ", ".join(MARK_CHECKS))  # fmt: skip
    group.add_argument("--number", type=whole_number, metavar="N",
        help="for fresh and repeated: a number that was drawn after the mark files")  # fmt: skip
    group.add_argument("--withdraw", nargs=2, metavar=("FOLDER", "REASON"),
        help="mark a contribution as withdrawn; its rows stay, struck and dated")  # fmt: skip
    group.add_argument("--ship-weights", action="store_true",
        help="write the weights of each RUN, which is shipped, to results/shipped")  # fmt: skip
    add_flags(group, "--data-dir", "--device", "--threads")
    asked = parser.add_argument_group("what submission.yaml has to say").add_argument
    for name, field in ASKED.items():
        asked(f"--{name.replace('_', '-')}", help=field.description, metavar="TEXT",
              nargs="+" if name == "authors" else None)  # fmt: skip
    return parser.parse_args(arguments)


def submit(options: argparse.Namespace) -> int:
    """Make a contribution and print all that it makes public; return the exit code."""
    if options.name is None:
        raise UserError("expected --name NAME for a new contribution, or --check FOLDER")
    known, folder = read_known_data(), options.to / options.name
    runs, left_out = choose_runs(options.results_dir, options.runs, known, options.left_out)
    said = {name: value for name in ASKED if (value := getattr(options, name)) is not None}
    findings = contribute(folder, runs, said, known, left_out)
    title = f"{folder.name} was not written"
    return report(title, findings, [] if findings else describe(folder))


def describe(folder: Path) -> list[str]:
    """List all that a contribution makes public, and how to send it."""
    width, submission = terminal_width(), read_submission(folder)
    runs, paths = [run for _, run in read_runs(folder)[0]], sorted(folder.rglob("*.*"))
    facts = {
        "these files become public": [
            f"{path.relative_to(folder)} {format_bytes(path.stat().st_size)}" for path in paths
        ],
        "runs": [run.name for run in runs],
        "devices": submission.hardware,
        "versions": sorted({f"{k} {v}" for run in runs for k, v in run.versions.items()}),
        "commits": sorted({str(run.git.get("commit"))[:12] for run in runs}),
        "why the division is open": submission.differences,
    }
    lines = [f"{folder}: {count_nouns(len(runs), 'run')}, {submission.division} division"]
    for title, parts in facts.items():
        lines += ["", f"{title}:", *wrap_parts(parts, width)] if parts else []
    text = (
        f"By sending them you publish results and weights under CC0-1.0, and the code under "
        f"{submission.code_license}. The check of the files found nothing."
    )
    return [
        *lines, "", *wrap_words(text, width, indent=""), "",
        "next: look through the folder, and open a pull request with it alone:",
        f"  git switch -c submit-{folder.name}", f"  git add {shlex.quote(str(folder))}",
        f"  git commit -m 'Submit {folder.name}'", f"  git push origin submit-{folder.name}",
    ]  # fmt: skip


def mark(options: argparse.Namespace) -> int:
    """Give a mark to a contribution; return the exit code."""
    name, folder = options.mark[0], absolute_path(options.mark[1])
    if name not in MARK_CHECKS:
        raise UnknownName("mark", name, MARK_CHECKS, "--mark")
    use_threads(options.threads)
    place = Workplace(
        folder=folder, data_dir=options.data_dir, number=options.number,
        results_dir=options.results_dir / "repeated" / folder.name,
        device=choose_device(options.device),
    )  # fmt: skip
    verdict = give_mark(name, place)
    given = f"{folder.name}: the mark {name} is given, and written to {marks_path(folder)}"
    return report(
        f"{folder.name}: the mark {name} is not given", verdict.faults, [given, *verdict.evidence]
    )


def report(title: str, findings: Sequence[str], otherwise: Sequence[str]) -> int:
    """Print findings or, if there are none, other lines; return the exit code."""
    shown = [f"{title}: {count_nouns(len(findings), 'finding')}", *findings[:MOST_SHOWN]]
    if len(findings) > MOST_SHOWN:
        shown.append(f"... and {len(findings) - MOST_SHOWN} more")
    lines = [line for one in shown for line in wrap_words(one, terminal_width())]
    write_out("\n".join([*(lines if findings else otherwise), ""]))
    return FAILED if findings else 0


def run(options: argparse.Namespace) -> int:
    """Carry out a command line; return the exit code."""
    if options.changed is not None and options.check is None:
        raise UserError("--changed has no effect without --check")
    if options.check is not None:
        folder, listing = options.check, options.changed
        changed = [*filter(None, read_text(listing).split("\0"))] if listing else []
        findings = check_files(folder, read_known_data(), changed)
        return report(folder.name, findings, [f"{folder.name}: the check found nothing"])
    if options.mark is not None:
        return mark(options)
    if options.withdraw is not None:
        folder, reason = absolute_path(options.withdraw[0]), options.withdraw[1]
        read_submission(folder)  # raises an error for another folder
        add_mark(folder, "withdrawn", [reason])
        return report("", [], [f"{folder.name} is withdrawn; written to {marks_path(folder)}"])
    if options.ship_weights:
        runs, _ = choose_runs(options.results_dir, options.runs, read_known_data(), "")
        return report("", [], ship_weights(SHIPPED_RESULTS, runs))
    return submit(options)


main = make_main("lra.submit", parse_arguments, run)

if __name__ == "__main__":
    sys.exit(main())
