"""Make the most of a GPU that is there for twenty minutes:

    python -m results.gpu.run --minutes 20

Runs and measurements are carried out by worth. What the time cuts off resumes the next time, also
on another machine: `--out` has all records and small checkpoints in a few files.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from common.errors import UserError
from common.files import open_to_append, write_atomically
from common.progress import SECONDS_BETWEEN_LINES, duration
from common.untrusted import explain_errors, open_regular, read_regular
from lra.record.packed import PACK
from lra.runtime.cli import (
    DIVERGED,
    INCOMPLETE,
    OUT_OF_MEMORY,
    STOPPED,
    Parser,
    absolute_path,
    add_flags,
    non_negative_float,
    run_command,
)
from lra.runtime.console import terminal_width, write_out
from lra.runtime.environment import choose_device
from lra.runtime.repository import ROOT
from lra.runtime.tables import plain_table
from lra.train.stopping import StopRequest
from results.gpu.packs import pack_results, unpack_results
from results.gpu.plan import GROUPS, Item, Places, list_items

logger = logging.getLogger("lra.gpu")

GRACE_SECONDS = 30.0
"""Time that an item has to save its state at the end."""
PATIENCE = 8
"""Times its estimate that an item without checkpoints may take until it counts as hanging."""
SECONDS_BETWEEN_POLLS = 0.05
ENDED = Path("gpu", "ended.json")
"""Exit codes of the items that have ended, by name; an item that was cut off has none."""
OVER = (0, DIVERGED)
"""Exit codes of items that are not carried out again."""
WORDS = {0: "done", DIVERGED: "diverged", OUT_OF_MEMORY: "out of memory"}
TAIL = 2000
"""Bytes at the end of a log in which its last line is searched for."""


def read_ended(results_dir: Path) -> dict[str, int]:
    """Read the exit codes of earlier sessions; raises DataError for a damaged file."""
    path = results_dir / ENDED
    if not path.exists():
        return {}
    with explain_errors(str(path), "remove it: finished runs are not repeated"):
        return {str(name): int(code) for name, code in json.loads(read_regular(path)).items()}


def describe(code: int) -> str:
    """Name the end of an item."""
    return WORDS.get(code, f"failed with exit code {code}")


def last_line(log: Path) -> str:
    """Read the last line of a log."""
    with open_regular(log) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
        lines = file.read().decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


class Session:
    """Items that are carried out one after the other until the time is over."""

    def __init__(self, results_dir: Path, stop: StopRequest) -> None:
        self.results_dir, self.stop = results_dir, stop
        self.ended = read_ended(results_dir)
        self.start = time.monotonic()
        (results_dir / ENDED).parent.mkdir(parents=True, exist_ok=True)

    def open_items(self, items: Sequence[Item]) -> list[Item]:
        """List the items that are not over; those that failed before are tried last."""
        found = [item for item in items if self.ended.get(item.name) not in OVER]
        return sorted(found, key=lambda item: item.name in self.ended)

    def reason(self) -> str | None:
        """Name what ends the session, if anything."""
        return self.stop.reason(0, 1, time.monotonic() - self.start)

    def carry_out(self, items: Sequence[Item]) -> dict[str, str]:
        """Carry out items; return why some failed, by name."""
        failed: dict[str, str] = {}
        with self.stop:
            for item in items:
                left = (self.stop.max_seconds or 0) - (time.monotonic() - self.start)
                if self.reason() is not None:
                    break
                if item.folder is None and 60 * item.minutes > left:
                    logger.info(f"{item.name}: left for the next time, as it cannot be cut off")
                    continue
                log = self.results_dir / ENDED.with_name(f"{item.name}.log")
                time_left = duration(60 * item.minutes_left())
                words = shlex.join(["python", *item.command])
                logger.info(f"{item.name}: about {time_left}: {words}")
                code = self._run(item, log)
                if code is None:
                    logger.info(f"{item.name}: cut off")
                    break
                self.ended[item.name] = code
                content = json.dumps(self.ended, indent=1) + "\n"
                write_atomically(self.results_dir / ENDED, content.encode())
                logger.info(f"{item.name}: {describe(code)}")
                if code not in OVER:
                    failed[item.name] = f"{describe(code)}: {last_line(log)}; see {log}"
        return failed

    def _run(self, item: Item, log: Path) -> int | None:
        """Run the command of an item; return its exit code, None if it was cut off."""
        words = [sys.executable, *item.command]
        words += [] if item.folder is None else ["--stop-with", str(os.getpid())]
        with open_to_append(log) as file:
            process = subprocess.Popen(
                words, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                start_new_session=True,  # Ctrl-C reaches only this process, which ends the item
            )  # fmt: skip
        start = time.monotonic()
        next_line, hangs_at, kill_at = start + SECONDS_BETWEEN_LINES, math.inf, math.inf
        if item.folder is None:
            hangs_at = start + PATIENCE * 60 * item.minutes
        is_cut = False
        try:
            while process.poll() is None and (now := time.monotonic()) < kill_at:
                if kill_at == math.inf and (self.reason() is not None or now > hangs_at):
                    is_cut = now <= hangs_at
                    process.terminate()
                    kill_at = now + GRACE_SECONDS
                if now > next_line:
                    logger.info(f"{item.name}: {last_line(log)}")
                    next_line = now + SECONDS_BETWEEN_LINES
                time.sleep(SECONDS_BETWEEN_POLLS)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return None if is_cut and process.returncode else process.returncode


def show_plan(session: Session, items: Sequence[Item], minutes: float) -> None:
    """Print what is to be done in its order, the estimated time of each, and what fits."""
    rows, total = [], 0.0
    for item in items:
        left = item.minutes_left()
        state = "tried again" if item.name in session.ended else "next time"
        if item.name not in session.ended and total < minutes:
            state = "now" if total + left <= minutes else "now, in part"
        total += left
        rows.append({"item": item.name, "when": state, "time left": f"about {duration(60 * left)}"})
    lines = plain_table(rows, terminal_width()) if rows else []
    end = f"{len(items)} items to carry out: about {duration(60 * total)}; the limit is "
    write_out("\n".join([*lines, f"{end}{duration(60 * minutes)}", ""]))


def run(arguments: list[str] | None) -> int:
    """Carry out a command line; return the exit code."""
    parser = Parser(
        prog="python -m results.gpu.run",
        description="Carry out tests, measurements of speed and published rows on a GPU, by "
        "worth, and pack the results. The same command goes on where the last one was cut off.",
        epilog="Exit codes: 0 all done, 1 some items failed (each is named), 2 mistake in the "
        "command, 3 some items are left for the next time, 130 interrupted twice.",
    )
    add = parser.add_argument
    add("--minutes", type=non_negative_float, required=True,
        help="time limit; saving takes up to a minute more; 0 only prints the plan")  # fmt: skip
    add("--only", nargs="+", default=[], metavar="NAME",
        help=f"groups ({', '.join(GROUPS)}) or items of the plan")  # fmt: skip
    add("--out", type=absolute_path, default="results/gpu/packed",
        help="folder that the results are packed into (default: %(default)s)")  # fmt: skip
    add("--from", type=absolute_path, dest="source", metavar="FOLDER",
        help="packed results of an earlier session, which this one continues")  # fmt: skip
    add_flags(parser, "--preset", "--set", "--device", "--data-dir", "--results-dir")
    parser.set_defaults(device="cuda", results_dir=str(ROOT / "results" / "gpu" / "own"))
    options = parser.parse_args(arguments)
    choose_device(options.device)
    if options.source is not None:
        if not (options.source / PACK).is_file():
            raise UserError(f"--from {options.source}: there is no {PACK} in this folder")
        unpack_results(options.source, options.results_dir)
    places = Places(
        device=options.device, data_dir=options.data_dir, results_dir=options.results_dir,
        preset=options.preset, overrides=options.overrides,
    )  # fmt: skip
    session = Session(options.results_dir, StopRequest(options.minutes, time_flag="--minutes"))
    items = list_items(places, options.only)
    return carry_out(session, items, options.minutes, options.out)


def carry_out(session: Session, items: Sequence[Item], minutes: float, out: Path) -> int:
    """Show the plan, carry it out, and pack the results; return the exit code."""
    to_do = session.open_items(items)
    show_plan(session, to_do, minutes)
    if not minutes:
        return 0
    failed: Mapping[str, str] = {}
    try:
        failed = session.carry_out(to_do)
    finally:
        for name in pack_results(session.results_dir, out):
            logger.warning(f"{name}: {out} has no room for its checkpoint, and lacks it")
    rest = session.open_items(items)
    lines = [f"failed: {name}: {reason}" for name, reason in failed.items()]
    lines += [f"{len(items) - len(rest)} of {len(items)} items are over; packed in {out}"]
    lines += ["next: the same command carries out the others"] if rest else []
    write_out("\n".join([*lines, ""]))
    return INCOMPLETE if failed else STOPPED if rest else 0


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command("results.gpu.run", lambda: run(arguments))


if __name__ == "__main__":
    sys.exit(main())
