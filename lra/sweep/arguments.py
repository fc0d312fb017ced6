"""The flags of sweeps."""

import argparse
import logging
import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from lra.common.errors import UserError
from lra.common.strict_yaml import LARGEST, parse_yaml
from lra.common.untrusted import read_text
from lra.config.layers import tasks_with_preset
from lra.config.registry import MIXERS
from lra.config.request import RunRequest, parse_changes
from lra.runtime.cli import (
    ALL,
    Parser,
    add_flags,
    list_names,
    name_list,
    non_negative_float,
    positive_int,
    whole_number,
    whole_numbers,
)
from lra.sweep.plan import Limits, SweepOptions
from lra.tasks.base import BENCHMARK

logger = logging.getLogger("lra.sweep")

IDLE = {"local": ("cluster",), "slurm": ("total_minutes", "per_device")}
"""Flags that have no effect with a launcher."""
COMBINED = ("tasks", "mixers", "seeds", "preset", "protocol", "overrides", "grid")
"""Flags that make the combinations of a sweep, and have no effect with a file of runs."""


process_count = partial(whole_number, least=1, most=1024)
"""Reads a number of processes that one machine can carry out at a time."""


def parse_arguments(arguments: list[str] | None) -> SweepOptions:
    """Read the command line.

    Raises: UserError for a flag that has no effect with others, for wrong lists, and for a mistake
        in a file of runs.
    """
    parser = Parser(
        prog="python -m lra.sweep",
        allow_abbrev=False,  # --gpus would be taken for --gpus-per-run
        description="Carry out many runs: every combination of tasks, mixers, seeds and --grid "
        "values, or the runs of a file in its order. Run the same command again to continue: "
        "finished runs are never repeated, unfinished ones resume from their checkpoints, and "
        "failed ones are listed.",
        epilog="Exit codes: 0 every run is done or at its limit, 1 some runs failed, diverged, "
        "ran out of memory or were left out without their data, 2 mistake in the command, or no "
        "data for any run, 3 stopped before the end, or submitted to a cluster, 130 interrupted "
        "twice, or while preparing data.",
    )
    _add_runs(parser)
    _add_limits(parser)
    _add_machines(parser)
    values, defaults = vars(parser.parse_args(arguments)), vars(parser.parse_args([]))
    file = values.pop("runs")
    idle = {f"--launcher {values['launcher']}": IDLE[values["launcher"]]}
    idle |= {} if file is None else {"--runs": COMBINED}
    for other, names in idle.items():
        for name in names:
            if values[name] != defaults[name]:
                flag = "set" if name == "overrides" else name.replace("_", "-")
                raise UserError(f"--{flag} has no effect with {other}")
    every = tasks_with_preset(BENCHMARK, values["preset"])
    if values["tasks"] == [ALL] and (missing := [task for task in BENCHMARK if task not in every]):
        logger.info(f"without {', '.join(missing)}, which has no preset {values['preset']}")
    tasks, mixers = values.pop("tasks"), values.pop("mixers")
    tasks = every if tasks == [ALL] else tasks
    mixers = sorted(MIXERS.classes) if mixers == [ALL] else mixers
    if values["print_commands"]:
        tasks, mixers = list(map(_with_whole_path, tasks)), list(map(_with_whole_path, mixers))
        values["preset"] = _with_whole_path(values["preset"])
    return SweepOptions(
        tasks=tasks,
        mixers=mixers,
        listed=None if file is None else _read_runs(file),
        cluster=_read_cluster(values.pop("cluster")),
        limits=Limits(max_steps=values.pop("max_steps"), minutes=values.pop("minutes_per_run")),
        **values,
    )


def _with_whole_path(spec: str) -> str:
    """Write FILE.py:CLASS and FILE.yaml so that any folder finds them; other names stay."""
    if spec.endswith(".yaml"):
        return str(Path(spec).absolute())
    file, _, name = spec.rpartition(":")
    return f"{Path(file).absolute()}:{name}" if file.endswith(".py") else spec


def _read_runs(file: Path) -> list[tuple[RunRequest, int]]:
    """Read a file of runs: a line has arguments of run_task.py; # begins a comment.

    Raises: UserError for an empty file and for text that is no line of words; argparse ends the
        program for wrong arguments, whose line it names.
    """
    runs: list[tuple[RunRequest, int]] = []
    for number, line in enumerate(read_text(file, largest=LARGEST).splitlines(), 1):
        source = f"{file}, line {number}"
        parser = Parser(prog=source, add_help=False, allow_abbrev=False)
        parser.add_argument("--task", required=True)
        parser.add_argument("--mixer", required=True)
        add_flags(parser, "--preset", "--protocol", "--set")
        parser.add_argument("--seed", type=whole_number, default=0)
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            raise UserError(f"{source}: {error}") from None
        if words:
            run = parser.parse_args(words)
            request = RunRequest(
                task=run.task, mixer=run.mixer, preset=run.preset, protocol=run.protocol,
                changes=parse_changes(run.overrides, f"{source}: --set"),
            )  # fmt: skip
            runs.append((request, run.seed))
    if not runs:
        raise UserError(f"{file} has no runs; expected a line like: --task listops --mixer tnn")
    return runs


def _read_cluster(texts: Sequence[str]) -> dict[str, Any]:
    """Read what each run asks of a cluster.

    Raises: UserError for a text that is not NAME=VALUE.
    """
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (equals and name):
            raise UserError(f"--cluster {text}: expected NAME=VALUE, for example timeout_min=600")
        values[name] = parse_yaml(value, f"--cluster {text}")
    return values


def _add_runs(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--tasks", type=name_list, default=ALL,
        help=f"{ALL}, those of the Long Range Arena that have the preset (default), or a "
        f"comma-separated list of {list_names('tasks')}, or FILE.py:CLASS for your "
        "own")  # fmt: skip
    add("--mixers", type=name_list, default=ALL,
        help=f"{ALL} (default), or a comma-separated list of {list_names('mixers')}, or "
        "FILE.py:CLASS for your own")  # fmt: skip
    add("--seeds", type=whole_numbers, default="0",
        help="comma-separated list of random seeds (default: 0)")  # fmt: skip
    add_flags(parser, "--preset", "--protocol", "--set", "--data-dir", "--results-dir")
    add("--grid", action="append", default=[], metavar="SECTION.KEY=VALUE,VALUE",
        help="run every value of a setting; several --grid run every combination")  # fmt: skip
    add("--runs", type=Path, metavar="FILE",
        help="carry out the runs of a file, the first ones first: each line has the --task, "
        "--mixer, --preset, --protocol, --set and --seed of a run; # begins a "
        "comment")  # fmt: skip


def _add_limits(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--max-steps", type=positive_int,
        help="stop each run at this step; a later sweep can resume it")  # fmt: skip
    add("--minutes-per-run", type=non_negative_float,
        help="stop each run after this time, counted over all its sessions; a later sweep can "
        "resume it")  # fmt: skip
    add("--total-minutes", type=non_negative_float,
        help="stop the sweep after this time (preparing data is not counted); the same command "
        "resumes it")  # fmt: skip
    add("--retry-failed", action="store_true",
        help="also repeat runs that failed or ran out of memory")  # fmt: skip
    add("--dry-run", action="store_true",
        help="check the plan and the data, and print the estimated time, without running "
        "anything")  # fmt: skip
    add("--print-commands", action="store_true",
        help="print the command of every run that the sweep would carry out, for another "
        "system")  # fmt: skip


def _add_machines(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("where the runs are carried out").add_argument
    add("--device", default="auto",
        help="auto (default: all GPUs, or the CPU if there is none), cpu or cuda:N")  # fmt: skip
    add("--per-device", type=process_count, default=1,
        help="number of runs at a time on each device (1)")  # fmt: skip
    add("--gpus-per-run", type=process_count, metavar="N", default=1,
        help="divide each run between N GPUs of a machine, by torchrun (1)")  # fmt: skip
    add("--launcher", choices=list(IDLE), default="local",
        help="local: this machine (default); slurm: submit the runs to Slurm")  # fmt: skip
    add("--cluster", action="append", default=[], metavar="NAME=VALUE",
        help="what each job asks of Slurm: a parameter of submitit, for example timeout_min=600 or "
        "slurm_partition=gpu")  # fmt: skip
