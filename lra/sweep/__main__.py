"""The command line of sweeps: `python -m lra.sweep --help`."""

from __future__ import annotations

import argparse
import importlib
import logging
import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from lra.config.registry import MIXERS
from lra.config.settings_files import tasks_with_preset
from lra.runtime.cli import INCOMPLETE, STOPPED, name_list, run_command, whole_numbers
from lra.runtime.console import terminal_width, wrap_command, wrap_words, write_out
from lra.runtime.environment import choose_device
from lra.runtime.launch import command_words
from lra.sweep.arguments import parse_arguments
from lra.sweep.data import SweepData
from lra.sweep.plan import OPEN, RETRIED, Limits, PlannedRun, SweepOptions, plan
from lra.sweep.remaining_time import RemainingTimes
from lra.sweep.run_process import write_command
from lra.sweep.summary import RunState, count_states, next_step, results_table, runs_table
from lra.sweep.work import Launcher, LaunchOptions
from tasks.base import BENCHMARK

logger = logging.getLogger("lra.sweep")

LAUNCHERS = {
    "local": ("lra.sweep.local", "LocalLauncher"),
    "slurm": ("lra.sweep.slurm", "SlurmLauncher"),
    "ray": ("lra.sweep.ray_cluster", "RayLauncher"),
}
"""Module and class of each launcher; it is imported only when it is used."""


def _plan(options: argparse.Namespace) -> list[PlannedRun]:
    every = tasks_with_preset(BENCHMARK, options.preset)
    tasks = name_list(options.tasks, "--tasks", every)
    if tasks == every and (left_out := [task for task in BENCHMARK if task not in every]):
        logger.info(f"without {', '.join(left_out)}, which has no preset {options.preset}")
    mixers = name_list(options.mixers, "--mixers", sorted(MIXERS.classes))
    if options.print_commands:
        tasks, mixers = list(map(_with_whole_path, tasks)), list(map(_with_whole_path, mixers))
    return plan(
        SweepOptions(
            tasks=tasks,
            mixers=mixers,
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


def _with_whole_path(spec: str) -> str:
    """Write a FILE.py:CLASS so that it is found from any folder; other names stay as they are."""
    file, _, name = spec.rpartition(":")
    return f"{Path(file).absolute()}:{name}" if file.endswith(".py") else spec


def _show(lines: Sequence[str]) -> None:
    write_out("\n".join([*lines, ""]))


def _show_sentences(*sentences: str) -> None:
    _show([line for text in sentences for line in wrap_words(text, terminal_width())])


def _report(
    runs: Sequence[PlannedRun], data: SweepData, limits: Limits, options: argparse.Namespace
) -> int:
    """Print the state of every run, the results and the next step; return the exit code."""
    data.refuse_if_none_is_ready(runs)
    states = [RunState.read(run, limits) for run in data.ready(runs)]
    width = terminal_width()
    results = results_table(states, width)
    _show(["", *runs_table(states, width), *([""] if results else []), *results, ""])
    left_out = _describe_left_out(runs, data)
    _show_sentences(count_states(states), *left_out)
    if (step := next_step(states)) is not None:
        _show_sentences(f"next: {step}")
    else:
        flags = ["--preset", options.preset]
        report = command_words("report", *flags, results_dir=options.results_dir)
        _show(wrap_command("next:", report, width))
    found = {one.state for one in states}
    if found & {*OPEN, "running"}:
        return STOPPED
    return 0 if found <= {"done", "at its limit"} and not left_out else INCOMPLETE


def _describe_left_out(runs: Sequence[PlannedRun], data: SweepData) -> list[str]:
    """Say which runs are left out, why, and how to get their data: a text for each data set."""
    counts = Counter(filter(None, map(data.fault_of, runs)))
    return [
        f"left out: {name} ({count} run{'s' * (count != 1)}), until its data is there: "
        f"{data.faults[name]}"
        for name, count in counts.items()
    ]


def _preview(
    runs: Sequence[PlannedRun],
    opened: Sequence[PlannedRun],
    limits: Limits,
    options: argparse.Namespace,
) -> int:
    """Print the plan, its data and its time without carrying anything out; return the exit code."""
    device = "auto" if options.launcher != "local" else options.device
    estimates = RemainingTimes(choose_device(device), limits)
    states = [RunState.read(run, limits) for run in runs]
    _show([*runs_table(states, terminal_width(), estimates.text), ""])
    data = SweepData(opened)
    if options.hand_back is not None:
        _show_sentences("each node prepares its own data")
    else:
        for name, what in data.check().items():
            _show_sentences(f"data of {name}: {what or 'ready'}")
        data.refuse_if_none_is_ready(runs)
    left_out = _describe_left_out(runs, data)
    total = estimates.total(data.ready(opened))
    _show_sentences(total, *left_out, "next: the same command without --dry-run")
    return INCOMPLETE if left_out else 0


def _print_commands(runs: Sequence[PlannedRun], limits: Limits, options: argparse.Namespace) -> int:
    """Print the command of each run, a line for each, for any folder; return the exit code."""
    for run in runs:
        arguments = [*run.arguments(), "--device", options.device, *limits.flags(run.folder)]
        command = shlex.join(write_command(arguments, options.gpus_per_run or 1))
        write_out(f"{command}\n", whole_paths=True)
    return 0


def make_launcher(name: str, options: LaunchOptions) -> Launcher:
    """Make a launcher of `LAUNCHERS`.

    Raises: UserError if a package is missing that it needs, or an option is wrong.
    """
    module, launcher = LAUNCHERS[name]
    return getattr(importlib.import_module(module), launcher)(options)


def sweep(options: argparse.Namespace) -> int:
    """Carry out a command line; return the exit code."""
    limits = Limits(max_steps=options.max_steps, minutes=options.minutes_per_run)
    states = (*OPEN, *RETRIED) if options.retry_failed else OPEN
    if options.print_commands:  # for machines with other devices
        runs = _plan(options)
        free = [run for run in runs if run.state(limits)[0] in states]
        return _print_commands(free, limits, options)
    if options.device != "auto" and options.launcher == "local":
        choose_device(options.device)
    launch = LaunchOptions(
        device=options.device,
        per_device=options.per_device or 1,
        gpus_per_run=options.gpus_per_run or 1,
        cluster=options.cluster,
        ray_address=options.ray_address,
        hand_back=options.hand_back,
        results_dir=options.results_dir,
        limits=limits,
        total_minutes=options.total_minutes,
        states=states,
    )
    launcher = make_launcher(options.launcher, launch)
    runs = _plan(options)
    before = [(run, run.state(limits)[0]) for run in runs]
    if options.dry_run:
        free = [run for run, state in before if state in states]
        return _preview(runs, free, limits, options)
    opened = [run for run, state in before if state in (*states, "running")]
    logger.info(f"{len(runs)} runs planned, {len(opened)} to carry out")
    data = SweepData(opened)
    if options.hand_back is None:  # otherwise nodes have data folders of their own
        data.check()
    for run in runs if options.retry_failed else ():
        run.forget_failure()
    ready = data.ready(opened)
    if ready and (stopped := launcher.carry_out(ready, data)):
        logger.info(f"stopped by {stopped}")
    return _report(runs, data, limits, options)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command("lra.sweep", lambda: sweep(parse_arguments(arguments)))


if __name__ == "__main__":
    sys.exit(main())
