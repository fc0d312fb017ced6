"""Train a token mixer on a Long Range Arena task: `python run_task.py --help`."""

from __future__ import annotations

import argparse
import functools
import logging
import os
import sys
from typing import TYPE_CHECKING

from lra.common.threads import choose_waiting
from lra.runtime.cli import (
    DIVERGED,
    OUT_OF_MEMORY,
    OWN_CLASS,
    STOPPED,
    Parser,
    add_flags,
    list_names,
    make_main,
    non_negative_float,
    positive_int,
    whole_number,
)
from lra.runtime.console import is_launched, set_message_level, terminal_width, write_out

if TYPE_CHECKING:
    from lra.classifier.classifier import Classifier
    from lra.config.schema import RunConfig

EXIT_CODES = {"done": 0, "stopped": STOPPED, "diverged": DIVERGED, "oom": OUT_OF_MEMORY}


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(
        description="Train a token mixer on a task, test it, and save the result as a record.",
        epilog="Exit codes: 0 done; 2 mistake in the command or the data; 3 stopped, the same "
        "command resumes the run; 4 diverged; 5 out of memory; 6 another process works on the same "
        "run; 130 interrupted twice, or before there was anything to save.",
    )
    add = parser.add_argument
    add("--task", required=True, help=f"{list_names('tasks')}, or your own: {OWN_CLASS}, "
        "or a data set: tfds:NAME or hf:NAME")  # fmt: skip
    add("--mixer", required=True, help=f"{list_names('mixers')}, or your own: {OWN_CLASS}")
    add_flags(parser, "--preset", "--protocol", "--set", "--data-dir", "--results-dir")
    add("--match-params", metavar="MIXER",
        help="choose model.dim so that the number of parameters is within 5 %% of this "
        "mixer's")  # fmt: skip
    add("--pretrain", metavar="OBJECTIVE",
        help="train on the task's inputs before training on its labels: masked predicts hidden "
        "positions, next predicts the next one; change its settings with --set "
        "pretrain.KEY=VALUE")  # fmt: skip
    add("--seed", type=whole_number, default=0,
        help="random seed of initial weights, order of examples and dropout (default: "
        "0)")  # fmt: skip
    add_flags(parser, "--device", "--threads")
    add("--precision", help="fp32, or bf16 to compute matrix products in bfloat16")
    add("--max-steps", type=positive_int,
        help="stop the run at this step; the same command resumes it")  # fmt: skip
    add("--max-minutes", type=non_negative_float,
        help="stop the run after this time (preparing data is not counted); the same command "
        "resumes it")  # fmt: skip
    add("--stop-with", type=positive_int, metavar="PID",
        help="stop the run when the process with this number has ended; the same command "
        "resumes it")  # fmt: skip
    add("--resume", choices=("auto", "never"), default="auto",
        help="auto (default): resume the run of these settings if there is one; never: start "
        "another run")  # fmt: skip
    add("--label", metavar="NAME",
        help="name of the run in tables, in place of its changed settings; a finished run is "
        "renamed")  # fmt: skip
    add("--verbose", action="store_true", help="also print messages about internals")
    add("--show-config", action="store_true",
        help="print all settings of the run and its estimated time, and exit")  # fmt: skip
    return parser.parse_args(arguments)


def configure(options: argparse.Namespace) -> RunConfig:
    """Resolve the configuration that a command line asks for."""
    from lra.config.request import Change, RunRequest, parse_changes
    from lra.resolve import match_parameters, resolve

    changes = parse_changes(options.overrides)
    named = {"precision": ("train", "precision"), "pretrain": ("pretrain", "objective")}
    for flag, (section, key) in named.items():
        if (value := getattr(options, flag)) is not None:
            changes += (Change(section, key, value, f"--{flag} {value}"),)
    request = RunRequest(
        task=options.task,
        mixer=options.mixer,
        preset=options.preset,
        protocol=options.protocol,
        changes=changes,
    )
    if options.match_params is not None:
        request = match_parameters(request, options.match_params)
    return resolve(request)


def estimate(options: argparse.Namespace, config: RunConfig) -> str:
    """Say how long a run will take, or what is not known of it."""
    from lra.common.errors import UserError
    from lra.runtime.environment import choose_device, device_name
    from lra.train.stopping import StopRequest
    from lra.train.training_time import estimate_time

    try:
        here = device_name(choose_device(options.device))
    except UserError as error:  # the settings can be shown for a device of another machine
        return f"not known: {error}"
    stop = StopRequest(options.max_minutes, options.max_steps)
    return estimate_time(config, here, stop)[1]


def run(options: argparse.Namespace, classifier: type[Classifier] | None = None) -> int:
    """Carry a command line out; return the exit code.

    Args:
        classifier: what is trained; None: the classifier of the suite.
    """
    choose_waiting()  # before torch is imported
    from lra.runtime.environment import use_threads
    from lra.schema import row_label

    if options.verbose:
        set_message_level(logging.DEBUG)
    if is_launched() and int(os.environ["RANK"]) > 0:  # another process prints
        set_message_level(logging.CRITICAL)
    if options.label is not None:
        row_label(options.label, "--label")
    config = configure(options)
    use_threads(options.threads)
    if options.show_config:
        write_out(f"{config.show()}# estimated time: {estimate(options, config)}\n")
        return 0
    return train(options, config, classifier)


def train(
    options: argparse.Namespace, config: RunConfig, classifier: type[Classifier] | None
) -> int:
    """Make the run, together with other processes of torchrun; return the exit code."""
    from lra.classifier.classifier import Classifier
    from lra.report.run_screen import write_screen
    from lra.runtime.distributed import join_processes, local_device
    from lra.runtime.environment import choose_device
    from lra.train.run import Run
    from lra.train.run_record import common_facts
    from lra.train.stopping import StopRequest

    device = choose_device(local_device(options.device))
    list_facts = functools.partial(common_facts, config, options.seed, device)
    folders = {"results_dir": options.results_dir, "data_dir": options.data_dir}
    with join_processes(device, list_facts) as group:
        record = Run(
            config=config,
            seed=options.seed,
            device=device,
            stop=StopRequest(options.max_minutes, options.max_steps, options.stop_with),
            group=group,
            resume=options.resume,
            label=options.label,
            classifier=classifier or Classifier,
            **folders,
        ).execute()
        if group.is_main_process:
            flags = [] if options.device == "auto" else ["--device", options.device]
            write_out(write_screen(**folders, record=record, width=terminal_width(), flags=flags))
        if group.world_size > 1 and record.status == "stopped":
            return 0  # torchrun starts whatever else again
        return EXIT_CODES[record.status]


main = make_main("run_task.py", parse_arguments, run)

if __name__ == "__main__":
    sys.exit(main())
