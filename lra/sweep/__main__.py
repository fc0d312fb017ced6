"""The command line of sweeps: `python -m lra.sweep --help`."""

from __future__ import annotations

from lra.runtime.interrupts import expect_interrupts

if __name__ == "__main__":
    expect_interrupts("lra.sweep")

import argparse
import logging
import sys
from collections.abc import Mapping, Sequence

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
from lra.runtime.console import make_absolute, write_out
from lra.runtime.environment import choose_device
from lra.runtime.errors import UserError
from lra.runtime.foreign_flags import TRAINING_FLAGS
from lra.runtime.launch import command_words
from lra.runtime.terminal import terminal_width, wrap_words
from lra.sweep.data import SweepData
from lra.sweep.local import LocalSweep, make_slots
from lra.sweep.plan import MOST_RUNS, OPEN, RETRIED, Limits, PlannedRun, SweepOptions, plan
from lra.sweep.remaining_time import RemainingTimes
from lra.sweep.summary import RunState, count_states, next_step, results_table, runs_table
from lra.train.stopping import StopRequest
from tasks.base import BENCHMARK

logger = logging.getLogger("lra.sweep")

ALL = "all"
RESULTS = "results"
"""Default folder of the results."""


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(
        prog="python -m lra.sweep",
        description="Carry out many runs: every combination of tasks, mixers, seeds and --grid "
        "values. Run the same command again to continue: finished runs are never repeated, "
        "unfinished ones resume from their checkpoints, and failed ones are listed.",
        epilog="Exit codes: 0 every run is done or at its limit, 1 some runs failed, diverged or "
        "ran out of memory, 2 mistake in the command, or missing data, 3 stopped before the end, "
        "or submitted to a cluster, 130 interrupted twice, or while preparing data.",
    )
    parser.hints = TRAINING_FLAGS
    tasks = parser.add_argument(
        "--tasks", default=ALL,
        help=f"{ALL}, the six of the Long Range Arena (default), or a comma-separated list of "
        "{names}, or FILE.py:CLASS for your own",
    )  # fmt: skip
    name_in_help(tasks, lambda: sorted(TASKS.classes))
    mixers = parser.add_argument(
        "--mixers", default=ALL,
        help=f"{ALL} (default), or a comma-separated list of {{names}}, or FILE.py:CLASS for "
        "your own",
    )  # fmt: skip
    name_in_help(mixers, lambda: sorted(MIXERS.classes))
    parser.add_argument(
        "--seeds", default="0", help="comma-separated list of random seeds (default: 0)"
    )
    add_preset(parser)
    add_overrides(parser, "change a setting of every run; if given twice, the last value counts")
    parser.add_argument(
        "--grid", action="append", default=[], metavar="SECTION.KEY=VALUE,VALUE",
        help="run every value of a setting; several --grid run every combination",
    )  # fmt: skip
    _add_limits(parser)
    parser.add_argument(
        "--device", default="auto",
        help="auto (default: all GPUs, or the CPU if there is none), cpu or cuda:N",
    )  # fmt: skip
    parser.add_argument(
        "--per-device", type=positive_int, help="number of runs at a time on each device (1)"
    )
    parser.add_argument(
        "--launcher", choices=("local", "slurm"), default="local",
        help="run on this machine (default) or submit the runs to Slurm",
    )  # fmt: skip
    parser.add_argument(
        "--cluster", action="append", default=[], metavar="NAME=VALUE",
        help="with --launcher slurm: a parameter of submitit, for example timeout_min=600 or "
        "slurm_partition=gpu",
    )  # fmt: skip
    parser.add_argument(
        "--retry-failed", action="store_true",
        help="also repeat runs that failed or ran out of memory",
    )  # fmt: skip
    parser.add_argument(
        "--dry-run", action="store_true",
        help="check the plan and the data, and print the estimated time, without running anything",
    )  # fmt: skip
    parser.add_argument(
        "--results-dir", type=absolute_path, default=RESULTS,
        help=f"folder for the results, in runs/TASK/MIXER/RUN (default: {RESULTS})",
    )  # fmt: skip
    return parser.parse_args(arguments)


def _add_limits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--max-runs", type=positive_int, default=MOST_RUNS,
        help=f"refuse a sweep of more runs than this ({MOST_RUNS:,})",
    )  # fmt: skip
    parser.add_argument(
        "--max-steps", type=positive_int,
        help="stop each run at this step; a later sweep can resume it",
    )  # fmt: skip
    parser.add_argument(
        "--minutes-per-run", type=non_negative_float,
        help="stop each run after this time, counted over all its sessions; a later sweep can "
        "resume it",
    )  # fmt: skip
    parser.add_argument(
        "--total-minutes", type=non_negative_float,
        help="stop the sweep after this time (preparing data is not counted); the same command "
        "resumes it",
    )  # fmt: skip


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


def _show(lines: Sequence[str]) -> None:
    write_out("\n".join([*lines, ""]))


def _show_sentences(*sentences: str) -> None:
    _show([line for text in sentences for line in wrap_words(text, terminal_width())])


def _read_states(runs: Sequence[PlannedRun], limits: Limits) -> list[RunState]:
    return [RunState.read(run, limits) for run in runs]


def _report(runs: Sequence[PlannedRun], limits: Limits, options: argparse.Namespace) -> int:
    """Print the state of every run, the results and the next step; return the exit code."""
    states = _read_states(runs, limits)
    width = terminal_width()
    results = results_table(states, width)
    _show(["", *runs_table(states, width), *([""] if results else []), *results, ""])
    report = f"{' '.join(command_words('report'))} --preset {options.preset}"
    if options.results_dir != make_absolute(RESULTS):
        report += f" --results-dir {options.results_dir}"
    _show_sentences(count_states(states), f"next: {next_step(states, report)}")
    found = {one.state for one in states}
    if found & {*OPEN, "running"}:
        return STOPPED
    return 0 if found <= {"done", "at its limit"} else INCOMPLETE


def _preview(
    runs: Sequence[PlannedRun],
    opened: Sequence[PlannedRun],
    limits: Limits,
    options: argparse.Namespace,
) -> int:
    """Print the plan, its data and its time without carrying anything out; return the exit code."""
    (first, *_) = make_slots(options.device, 1)
    estimates = RemainingTimes(options.results_dir, torch.device(first.device), limits)
    _show([*runs_table(_read_states(runs, limits), terminal_width(), estimates.text), ""])
    for name, what in SweepData(opened).check().items():
        _show_sentences(f"data of {name}: {what or 'ready'}")
    _show_sentences(estimates.total(opened), "next: the same command without --dry-run")
    return 0


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
    if options.launcher != "local":
        from lra.sweep.cluster import read_parameters

        read_parameters(options.launcher, options.cluster)
    limits = Limits(max_steps=options.max_steps, minutes=options.minutes_per_run)
    runs = _plan(options)
    states = (*OPEN, *RETRIED) if options.retry_failed else OPEN
    before = [(run, run.state(limits)[0]) for run in runs]
    if options.dry_run:
        return _preview(runs, [run for run, state in before if state in states], limits, options)
    opened = [run for run, state in before if state in (*states, "running")]
    logger.info(f"{len(runs)} runs planned, {len(opened)} to carry out")
    data = SweepData(opened)
    left = data.check()
    if options.retry_failed:
        for run in runs:
            run.forget_failure()
    if options.launcher != "local":
        free = [run for run, state in before if state in states]
        _submit(free, left, limits, options)
    elif opened:
        data.prepare()
        logger.info(
            f"each run writes to log.txt in its folder under {options.results_dir / 'runs'}"
        )
        stop = StopRequest(options.total_minutes, time_flag="--total-minutes")
        slots = make_slots(options.device, options.per_device or 1)
        stopped = LocalSweep(opened, limits, slots, stop, states).execute()
        if stopped:
            logger.info(f"stopped by {stopped}")
    return _report(runs, limits, options)


def _submit(
    runs: Sequence[PlannedRun],
    left: Mapping[str, str],
    limits: Limits,
    options: argparse.Namespace,
) -> None:
    """Submit jobs for runs, and list them.

    Args:
        left: what is left to prepare, by the name of the data set.
    """
    from lra.sweep.cluster import make_executor, submit

    executor = make_executor(options.launcher, options.results_dir / "jobs", options.cluster)
    for name, what in left.items():
        if what:
            logger.info(
                f"data of {name}: the first job will {what}; to do it now, run python -m "
                f"lra.prepare"
            )
    jobs = submit(runs, limits, options.device, executor)
    for run, job in jobs:
        logger.info(f"{run.name}: job {job.job_id}")
    logger.info(
        f"{len(jobs)} jobs submitted; {len(runs) - len(jobs)} runs were in the queue already"
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    options = parse_arguments(arguments)
    return run_command("lra.sweep", lambda: sweep(options))


if __name__ == "__main__":
    sys.exit(main())
