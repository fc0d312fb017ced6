"""The command line of sweeps: `python -m lra.sweep --help`."""

import logging
import shlex
import sys
from collections.abc import Sequence

from lra.common.progress import duration
from lra.runtime.cli import INCOMPLETE, STOPPED, command_words, make_main
from lra.runtime.console import terminal_width, wrap_command, wrap_words, write_out
from lra.runtime.environment import choose_device, device_name
from lra.sweep.arguments import parse_arguments
from lra.sweep.data import SweepData
from lra.sweep.local import LocalLauncher
from lra.sweep.plan import OPEN, RETRIED, PlannedRun, SweepOptions, plan
from lra.sweep.slurm import SlurmLauncher
from lra.sweep.summary import (
    RunState,
    count_states,
    describe_time,
    runs_table,
    seconds_left,
    write_results,
)

logger = logging.getLogger("lra.sweep")

LAUNCHERS = {"local": LocalLauncher, "slurm": SlurmLauncher}


def sweep(options: SweepOptions) -> int:
    """Carry out a command line; return the exit code."""
    launcher = None if options.print_commands else LAUNCHERS[options.launcher](options)
    runs = plan(options)
    states = [(run, run.state(options.limits)[0]) for run in runs]
    ready = [run for run, state in states if state in options.states]
    if launcher is None:  # for machines with other devices
        for run in ready:
            command = run.command(options.device, options.gpus_per_run, options.limits)
            write_out(f"{shlex.join(command)}\n", whole_paths=True)
        return 0
    if options.dry_run:
        return _preview(runs, ready, options)
    opened = [run for run, state in states if state in (*options.states, "running")]
    logger.info(f"{len(runs)} runs planned, {len(opened)} to carry out")
    data = SweepData(opened)
    data.check()
    for run in runs if options.retry_failed else ():
        run.forget_failure()
    ready = data.ready(opened)
    if ready and (stopped := launcher.carry_out(ready, data)):
        logger.info(f"stopped by {stopped}")
    return _report(runs, data, options)


def _preview(
    runs: Sequence[PlannedRun], opened: Sequence[PlannedRun], options: SweepOptions
) -> int:
    """Print the plan, its data and its time without carrying anything out; return the exit code."""
    device = device_name(choose_device(options.device if options.launcher == "local" else "auto"))

    def time_left(run: PlannedRun) -> str:
        seconds = seconds_left(run, options.limits, device)
        return "unknown" if seconds is None else f"about {duration(seconds)}"

    states = [RunState.read(run, options.limits) for run in runs]
    _show([*runs_table(states, terminal_width(), time_left), ""])
    data = SweepData(opened)
    names: dict[str, list[str]] = {}
    for name, what in data.check().items():
        names.setdefault(what or "ready", []).append(name)
    _show_sentences(*(f"data of {', '.join(names[what])}: {what}" for what in names))
    data.refuse_if_none_is_ready(runs)
    time = describe_time([seconds_left(run, options.limits, device) for run in data.ready(opened)])
    left_out = data.describe_faults(has_reasons=False)  # which messages have
    _show_sentences(time, *left_out, "next: the same command without --dry-run")
    return INCOMPLETE if data.faults else 0


def _report(runs: Sequence[PlannedRun], data: SweepData, options: SweepOptions) -> int:
    """Print the state of every run, the results and the next step; return the exit code."""
    data.refuse_if_none_is_ready(runs)
    states = [RunState.read(run, options.limits) for run in data.ready(runs)]
    width = terminal_width()
    _show(["", *runs_table(states, width)])
    write_out(f"{write_results(states, options.results_dir)}\n")
    _show_sentences(count_states(states), *data.describe_faults())
    kinds = {run_state.state for run_state in states}
    if kinds & {*OPEN, "running"}:
        _show_sentences("next: the same command continues with the unfinished runs")
        return STOPPED
    if kinds & {*RETRIED}:
        _show_sentences("next: the same command with --retry-failed tries the failed runs again")
    else:
        presets = {run.config.preset for run in runs}
        flags = ["--preset", *presets] if len(presets) == 1 else []
        report = command_words("report", *flags, results_dir=options.results_dir)
        _show(wrap_command("next:", report, width))
    return 0 if kinds <= {"done", "at its limit"} and not data.faults else INCOMPLETE


def _show(lines: Sequence[str]) -> None:
    write_out("\n".join([*lines, ""]))


def _show_sentences(*sentences: str) -> None:
    _show([line for text in sentences for line in wrap_words(text, terminal_width())])


main = make_main("lra.sweep", parse_arguments, sweep)

if __name__ == "__main__":
    sys.exit(main())
