"""The command line of the benchmark: `python -m lra.bench --help`."""

import argparse
import itertools
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from lra.bench.case import WARMUP_ROUNDS, Case
from lra.bench.operators import PRODUCT, WINDOW, DecodingCase, OperatorCase
from lra.bench.rounds import measure
from lra.bench.steps import StepCase
from lra.common.progress import progress
from lra.common.threads import choose_waiting
from lra.config.registry import MIXERS
from lra.config.request import Change, RunRequest, combine, parse_alternatives, parse_changes
from lra.record.benchmark import BenchRecord
from lra.report.names import RowNames
from lra.report.tables.speeds import speed_tables
from lra.report.tables.terminal import write_table
from lra.runtime.cli import (
    ALL,
    OWN_CLASS,
    Parser,
    absolute_path,
    add_flags,
    command_words,
    length_list,
    list_names,
    make_main,
    name_list,
    positive_int,
    whole_number,
)
from lra.runtime.console import as_typed, terminal_width, wrap_command, write_out
from lra.runtime.environment import choose_device, use_threads
from lra.runtime.tables import count_nouns

TASK = "task"
"""Argument of --lengths that selects the task's own sequences."""


def list_steps(options: argparse.Namespace, length: int | None) -> list[Case]:
    """List the models to measure at a length: 0 for the task's longest, None for its own data."""
    changes = parse_changes(options.overrides)
    if options.batch_size is not None:
        # A mixer's micro-batch is of its own batch, and may be larger than this one.
        origin = f"--batch-size {options.batch_size}"
        whole = Change("train", "micro_batch", None, "a batch size of its own")
        size = Change("train", "batch_size", options.batch_size, origin)
        changes = (whole, *changes, size)
    mixers = sorted(MIXERS.classes) if options.mixers == [ALL] else options.mixers
    varied = tuple(parse_alternatives(text, "--vary") for text in options.vary)
    request = RunRequest(
        task=options.task, mixer="", preset=options.preset, protocol=options.protocol
    )
    return [
        StepCase(
            mode=options.command,
            mixer=name,
            device=options.device,
            request=replace(request, mixer=name, changes=(*changes, *values)),
            length=length,
            data_dir=options.data_dir,
            varied=varied,
        )
        for *values, name in combine("measurements", *varied, mixers)
    ]


def list_parts(options: argparse.Namespace, length: int | None) -> list[Case]:
    """List the parts of mixers to measure at a length: for op or, without any part, for decode."""
    shared: dict[str, Any] = {
        "device": options.device, "length": length, "dim": options.dim,
        "changes": parse_changes(options.overrides),
    }  # fmt: skip
    if options.command == "decode":
        shared["longest"] = max(options.lengths)
        kinds = itertools.product(options.mixers, ("recurrence", "prefix"))
        return [DecodingCase(mixer=name, part=part, **shared) for name, part in kinds]
    shared["batch_size"] = options.batch_size
    kinds = itertools.product(options.mixers, options.parts)
    return [OperatorCase(mixer=name, part=part, **shared) for name, part in kinds]


class Command(NamedTuple):
    """What a command measures."""

    text: str
    list_cases: Callable[[argparse.Namespace, int | None], list[Case]]
    mixers: str
    lengths: str | None = None
    """None: the task's longest."""


CLASSIFIERS = "tnn,ski-tnn,fd-tnn,transformer,s4"
COMMANDS = {
    "step": Command("time the training steps of a whole model", list_steps, CLASSIFIERS),
    "forward": Command("time the evaluation of a whole model", list_steps, CLASSIFIERS),
    "op": Command(
        "time the forward and backward pass of a mixer, or of a part of it, without a model",
        list_parts, "tnn,ski-tnn,fd-tnn,s4", "1024,2048,4096,16384",
    ),
    "decode": Command(
        "time one decoding step of a causal mixer: by its recurrence, and by a full pass over all "
        "positions so far",
        list_parts, "tnn,fd-tnn,s4,s4d,dss", "256,1024,4096",
    ),
}  # fmt: skip


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(
        prog="python -m lra.bench",
        description="Measure the speed and the memory of mixers. Each mixer runs in its own "
        "process, and every round times each of them once, so that other load on the machine "
        "affects all of them. Every measurement is saved as a record in --out, and report.py shows "
        "all records.",
        epilog="Exit codes: 0 done, 2 mistake in the command, 5 out of memory, 130 interrupted. "
        "python -m lra.bench COMMAND --help lists the flags of a command.",
    )
    commands = parser.add_subparsers(dest="command", required=True, parser_class=Parser)
    for name, command in COMMANDS.items():
        text = f"{command.text[0].upper()}{command.text[1:]}."
        added = commands.add_parser(name, help=command.text, description=text)
        if command.lengths is None:
            _add_model_flags(added)
        else:
            _add_mixer_flags(added, name, command.lengths)
        _add_common_flags(added, name, command.mixers)
    return parser.parse_args(arguments)


def _add_model_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--task", default="listops",
        help=f"task that the model is for (default: %(default)s), of {list_names('tasks')}, or "
        f"your own: {OWN_CLASS}")  # fmt: skip
    add_flags(parser, "--preset", "--protocol", "--set", "--data-dir")
    add("--lengths", default=[0],
        type=lambda text: [None] if text == TASK else length_list(text),
        help="comma-separated lengths of synthetic sequences, in positions (default: the longest "
        f"of the task), or {TASK} for the sequences of the task itself")  # fmt: skip
    add("--batch-size", type=positive_int,
        help="number of examples in a batch (default: as in training)")  # fmt: skip
    add("--vary", action="append", default=[], metavar="SECTION.KEY=VALUE,VALUE",
        help="measure each of these values of a setting in the same rounds; several --vary measure "
        "every combination")  # fmt: skip


def _add_mixer_flags(parser: argparse.ArgumentParser, command: str, lengths: str) -> None:
    """Add the flags of mixers without a task."""
    add = parser.add_argument
    least = WINDOW if command == "decode" else 1
    add("--lengths", type=partial(length_list, least=least), default=lengths,
        help="comma-separated sequence lengths in positions (default: %(default)s)")  # fmt: skip
    add("--dim", type=positive_int, default=64,
        help="number of channels (default: %(default)s)")  # fmt: skip
    add("--set", action="append", default=[], metavar="mixer.KEY=VALUE", dest="overrides",
        help="change an option of the mixers")  # fmt: skip
    if command == "op":
        add("--parts", type=name_list, default="mixing",
            help="comma-separated parts of the mixers: mixing (default), kernel or "
            "whole")  # fmt: skip
        add("--batch-size", type=positive_int, default=4,
            help="number of examples in a batch (default: %(default)s)")  # fmt: skip


def _add_common_flags(parser: argparse.ArgumentParser, command: str, mixers: str) -> None:
    add = parser.add_argument
    product = f"; {PRODUCT} is the product with a given kernel over all lags"
    also = {"op": product, "decode": ""}.get(command, f"; {ALL} for every mixer")
    add("--mixers", type=name_list, default=mixers,
        help=f"comma-separated list (default: %(default)s) of {list_names('mixers')}, or "
        f"FILE.py:CLASS for your own{also}")  # fmt: skip
    parser.set_defaults(compare=None)
    if command != "decode":
        add("--compare", choices=["reference"],
            help="also time the reference implementation of each mixer, written as in published "
            "code")  # fmt: skip
    add("--repeats", type=partial(whole_number, least=2), default=5,
        help="number of measured rounds, after the warm-up (default: %(default)s)")  # fmt: skip
    add("--device", default="cpu", help="cpu (default), cuda or cuda:N")
    add_flags(parser, "--threads")
    add("--out", type=absolute_path, default="results/bench",
        help="folder for the records (default: results/bench)")  # fmt: skip


def measure_groups(options: argparse.Namespace) -> list[BenchRecord]:
    """Measure the cases of each length in interleaved rounds, and save the records."""
    list_cases = COMMANDS[options.command].list_cases
    groups = [list_cases(options, length) for length in sorted(options.lengths)]
    choose_device(options.device)
    for case in itertools.chain(*groups):
        case.settings()  # raises mistakes before anything is measured
    records: list[BenchRecord] = []
    total = sum(map(len, groups)) * (WARMUP_ROUNDS + options.repeats)
    with progress("measuring", total=total, unit="rounds") as bar:
        for cases in groups:
            for record in measure(cases, options.repeats, compare=bool(options.compare), bar=bar):
                record.save(options.out)
                records.append(record)
    return records


def run(options: argparse.Namespace) -> int:
    """Carry out a command line; return the exit code."""
    choose_waiting()  # for the processes that it starts
    use_threads(options.threads)
    records = measure_groups(options)
    names = RowNames([], records)
    for table in speed_tables(records, names, names.of_mixer(records[0])):
        write_out(f"{write_table(table, table.caption)}\n\n")
    lines = [f"{count_nouns(len(records), 'record')} in {options.out}"]
    out = Path(as_typed(str(options.out)))
    if out.name == "bench":  # the report reads no other folder of a results folder
        lines += wrap_command(
            "next:", command_words("report", results_dir=out.parent), terminal_width()
        )
    write_out("\n".join([*lines, ""]))
    return 0


main = make_main("lra.bench", parse_arguments, run)

if __name__ == "__main__":
    sys.exit(main())
