"""The command line of sweeps: `python -m lra.sweep --help`."""

from __future__ import annotations

from lra.runtime.interrupts import expect_interrupts

if __name__ == "__main__":
    expect_interrupts("lra.sweep")

import argparse
import logging
import sys
from collections import Counter
from collections.abc import Sequence

import torch

from lra.config.registry import MIXERS, TASKS
from lra.runtime.cli import (
    INCOMPLETE,
    STOPPED,
    Parser,
    absolute_path,
    add_overrides,
    add_preset,
    name_in_help,
    name_list,
    non_negative_float,
    positive_int,
    run_command,
    whole_numbers,
)
from lra.runtime.console import markdown, write_out
from lra.runtime.environment import choose_device
from lra.runtime.errors import UserError
from lra.runtime.foreign_flags import TRAINING_FLAGS
from lra.sweep.local import LocalSweep, make_slots
from lra.sweep.plan import MOST_RUNS, OPEN, RETRIED, Limits, PlannedRun, State, SweepOptions, plan
from lra.sweep.remaining_time import RemainingTimes
from lra.train.stopping import StopRequest
from tasks.base import BENCHMARK

logger = logging.getLogger("lra.sweep")

ALL = "all"


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(
        prog="python -m lra.sweep",
        description="Carry out many runs: every task, mixer, seed and combination of settings. "
        "What is done is never run again, what was stopped or killed goes on, what failed is "
        "listed and left alone; the same command goes on with what is left.",
        epilog="Exit codes: 0 every run is done or at its limit, 1 some failed, diverged or ran "
        "out of memory, 2 mistake in the command, 3 stopped before the end, or submitted, 130 "
        "interrupted twice.",
    )
    parser.hints = TRAINING_FLAGS
    tasks = parser.add_argument(
        "--tasks", default=ALL, help=f"{ALL} (default), or comma-separated: {{names}}"
    )
    name_in_help(tasks, lambda: sorted(TASKS.classes))
    mixers = parser.add_argument(
        "--mixers", default=ALL,
        help=f"{ALL} (default), or comma-separated: {{names}}, or your own as for run_task.py",
    )  # fmt: skip
    name_in_help(mixers, lambda: sorted(MIXERS.classes))
    parser.add_argument("--seeds", default="0", help="comma-separated (0)")
    add_preset(parser)
    parser.add_argument("--protocol", default="s4", help="s4 (default) or lra")
    add_overrides(parser, "change a setting in every run; of several the last wins")
    parser.add_argument(
        "--grid", action="append", default=[], metavar="SECTION.KEY=VALUE,VALUE",
        help="run every value, of several --grid every combination",
    )  # fmt: skip
    parser.add_argument(
        "--max-runs", type=positive_int, default=MOST_RUNS,
        help=f"refuse a sweep of more runs than this ({MOST_RUNS:,})",
    )  # fmt: skip
    parser.add_argument("--max-steps", type=positive_int, help="stop each run at this step")
    parser.add_argument(
        "--minutes-per-run", type=non_negative_float,
        help="stop each run after this time of its own, whatever the number of sessions",
    )  # fmt: skip
    parser.add_argument(
        "--total-minutes", type=non_negative_float, help="stop the sweep, resumably, after this"
    )
    parser.add_argument(
        "--device", default="auto", help="auto (default: every GPU, else cpu), cpu or cuda:N"
    )
    parser.add_argument("--per-device", type=positive_int, help="runs at a time (1)")
    parser.add_argument("--launcher", choices=("local", "slurm"), default="local")
    parser.add_argument(
        "--cluster", action="append", default=[], metavar="NAME=VALUE",
        help="slurm: a parameter of submitit, timeout_min=600, slurm_partition=gpu, say",
    )  # fmt: skip
    parser.add_argument(
        "--retry-failed", action="store_true", help="try runs again that failed or lacked memory"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the plan and its time")
    parser.add_argument(
        "--results-dir", type=absolute_path, default="results", help="where runs/ is (results)"
    )
    return parser.parse_args(arguments)


def _names_or_all(text: str, flag: str, every: Sequence[str]) -> list[str]:
    chosen = name_list(text, flag)
    return list(every) if chosen == [ALL] else chosen


def _plan(options: argparse.Namespace) -> list[PlannedRun]:
    tasks = _names_or_all(options.tasks, "--tasks", [n for n in BENCHMARK if n in TASKS.classes])
    return plan(
        SweepOptions(
            tasks=tasks,
            mixers=_names_or_all(options.mixers, "--mixers", sorted(MIXERS.classes)),
            seeds=whole_numbers(options.seeds, "--seeds", 0),
            preset=options.preset,
            protocol=options.protocol,
            overrides=options.overrides,
            grid=options.grid,
            data_dir=options.data_dir,
            results_dir=options.results_dir,
            max_runs=options.max_runs,
        )
    )


def _table(runs: Sequence[PlannedRun], limits: Limits, estimates: RemainingTimes | None) -> str:
    """Write a table of how far every run is and, given estimates, how long the rest takes."""
    rows: list[dict[str, str]] = []
    common = set.intersection(*(set(run.overrides) for run in runs))
    for run in runs:
        state, note = run.state(limits)
        record = run.folder.record() if state == "done" else None
        row = {
            "run": run.name,
            "settings": " ".join(t for t in run.overrides if t not in common),
            "state": state,
        }
        if estimates is None:
            row["test"] = record.test_text if record else ""
        else:
            row["time left"] = estimates.text(run) if state in OPEN else ""
        rows.append({**row, "note": note})
    used = {name for row in rows for name, text in row.items() if text}
    return markdown([{k: text for k, text in row.items() if k in used} for row in rows])


def _report(runs: Sequence[PlannedRun], limits: Limits, stopped: str | None) -> int:
    """Print how far all runs are; return the exit code."""
    states: Counter[State] = Counter(run.state(limits)[0] for run in runs)
    write_out(_table(runs, limits, None) + "\n")
    logger.info(
        ", ".join(f"{count} {state}" for state, count in states.items()) + f" of {len(runs)} runs"
    )
    if any(states[state] for state in RETRIED):
        logger.info("--retry-failed tries what failed or lacked memory again")
    if stopped or any(states[state] for state in (*OPEN, "held")):
        logger.info(
            f"stopped by {stopped}; the same command goes on" if stopped else "not all are done"
        )
        return STOPPED
    return 0 if states["done"] + states["at its limit"] == len(runs) else INCOMPLETE


def _refuse_idle_flags(options: argparse.Namespace) -> None:
    idle = ("cluster",) if options.launcher == "local" else ("total_minutes", "per_device")
    for name in idle:
        if getattr(options, name):
            flag = name.replace("_", "-")
            raise UserError(f"--{flag} has no effect with --launcher {options.launcher}")


def sweep(options: argparse.Namespace) -> int:
    """Carry out a command line; return the exit code."""
    if options.device != "auto":
        choose_device(options.device)
    _refuse_idle_flags(options)
    limits = Limits(max_steps=options.max_steps, minutes=options.minutes_per_run)
    runs = _plan(options)
    if options.dry_run:
        (first, *_) = make_slots(options.device, 1)
        estimates = RemainingTimes(options.results_dir, torch.device(first.device), limits)
        write_out(_table(runs, limits, estimates) + "\n")
        logger.info(estimates.total([run for run in runs if run.state(limits)[0] in OPEN]))
        return 0
    if options.retry_failed:
        for run in runs:
            run.forget_failure()
    states = (*OPEN, *RETRIED) if options.retry_failed else OPEN
    opened = [r for r in runs if r.state(limits)[0] in (*states, "held")]
    logger.info(f"{len(runs)} runs planned, {len(opened)} to carry out")
    if options.launcher == "slurm":
        free = [run for run in opened if run.state(limits)[0] != "held"]
        _submit(free, limits, options)
        return _report(runs, limits, None)
    stop = StopRequest(options.total_minutes, time_flag="--total-minutes")
    slots = make_slots(options.device, options.per_device or 1)
    stopped = LocalSweep(opened, limits, slots, stop, states).execute() if opened else None
    return _report(runs, limits, stopped)


def _submit(runs: Sequence[PlannedRun], limits: Limits, options: argparse.Namespace) -> None:
    """Submit jobs for runs, and say which."""
    from lra.sweep.cluster import make_executor, submit

    executor = make_executor(options.launcher, options.results_dir / "jobs", options.cluster)
    jobs = submit(runs, limits, options.device, executor)
    for run, job in jobs:
        logger.info(f"{run.name}: job {job.job_id}")
    logger.info(
        f"{len(jobs)} jobs submitted, {len(runs) - len(jobs)} runs are in the queue already"
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    options = parse_arguments(arguments)
    return run_command("lra.sweep", lambda: sweep(options))


if __name__ == "__main__":
    sys.exit(main())
