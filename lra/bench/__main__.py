"""The command line of the benchmark: `python -m lra.bench --help`."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from common.progress import progress
from lra.bench.case import Case
from lra.bench.decoding import LENGTHS as DECODED_LENGTHS
from lra.bench.decoding import MIXERS as DECODED_MIXERS
from lra.bench.decoding import decode
from lra.bench.operators import PRODUCT, OperatorCase
from lra.bench.rounds import measure, units
from lra.bench.steps import CASES, StepCase
from lra.config.registry import MIXERS, TASKS
from lra.config.request import RunRequest, parse_alternatives, parse_changes
from lra.record.benchmark import BenchRecord
from lra.report.names import RowNames
from lra.report.tables.speeds import speed_tables
from lra.report.tables.terminal import fit_table, wrap
from lra.runtime.cli import (
    ALL,
    OWN_CLASS,
    Parser,
    absolute_path,
    add_overrides,
    add_preset,
    add_threads,
    name_in_help,
    name_list,
    positive_int,
    run_command,
    whole_numbers,
)
from lra.runtime.console import as_typed, write_out
from lra.runtime.environment import choose_device, use_threads
from lra.runtime.errors import UserError
from lra.runtime.launch import command_words
from lra.runtime.terminal import terminal_width, wrap_command
from lra.runtime.threads import choose_waiting

CLASSIFIER_MIXERS = "tnn,ski-tnn,fd-tnn,transformer,s4"
OPERATOR_MIXERS = "tnn,ski-tnn,fd-tnn,s4"
OPERATOR_LENGTHS = [1024, 2048, 4096, 16384]
OPERATOR_BATCH = 4
CHANNELS = 64
TASK = "task"
"""Argument of --lengths that selects the task's own sequences."""


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
    common, compared = Parser(add_help=False), Parser(add_help=False)
    common.add_argument(
        "--repeats", type=positive_int, default=5,
        help="number of measured rounds, after the warm-up (default: %(default)s)",
    )  # fmt: skip
    common.add_argument("--device", default="cpu", help="cpu (default), cuda or cuda:N")
    add_threads(common)
    common.add_argument(
        "--out",
        type=absolute_path,
        default="results/bench",
        help="folder for the records (default: results/bench)",
    )
    compared.add_argument(
        "--compare", choices=["reference"],
        help="also time the reference implementation of each mixer, written as in published code",
    )  # fmt: skip
    for name, text in (
        ("step", "time the training steps of a whole model"),
        ("forward", "time the evaluation of a whole model"),
    ):
        _add_classifier_flags(
            commands.add_parser(
                name, parents=[common, compared], help=text, description=_as_sentence(text)
            )
        )
    text = "time the forward and backward pass of a mixer, or of a part of it, without a model"
    operators = commands.add_parser(
        "op", parents=[common, compared], help=text, description=_as_sentence(text)
    )
    _add_operator_flags(operators)
    text = (
        "time one decoding step of a causal mixer: by its recurrence, and by a full pass over all "
        "positions so far"
    )
    decoding = commands.add_parser(
        "decode", parents=[common], help=text, description=_as_sentence(text)
    )
    _add_decoding_flags(decoding)
    return parser.parse_args(arguments)


def _as_sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _add_classifier_flags(parser: argparse.ArgumentParser) -> None:
    task = parser.add_argument(
        "--task", default="listops",
        help="task that the model is for (default: %(default)s), of {names}, or your own: "
        f"{OWN_CLASS}",
    )  # fmt: skip
    name_in_help(task, lambda: sorted(TASKS.classes))
    add_preset(parser)
    _add_mixers(parser, CLASSIFIER_MIXERS, f"; {ALL} for every mixer")
    parser.add_argument(
        "--lengths",
        help="comma-separated lengths of synthetic sequences, in positions (default: the longest "
        f"of the task), or {TASK} for the sequences of the task itself",
    )
    parser.add_argument(
        "--batch-size",
        type=positive_int,
        help="number of examples in a batch (default: as in training)",
    )
    add_overrides(parser, "change a setting")
    parser.add_argument(
        "--vary", action="append", default=[], metavar="SECTION.KEY=VALUE,VALUE",
        help="measure each of these values of a setting in the same rounds; several --vary measure "
        "every combination",
    )  # fmt: skip


def _add_operator_flags(parser: argparse.ArgumentParser) -> None:
    _add_mixers(
        parser, OPERATOR_MIXERS, f"; {PRODUCT} is the product with a given kernel over all lags"
    )
    parser.add_argument(
        "--parts", default="mixing",
        help="comma-separated parts of the mixers: mixing (default), kernel or whole",
    )  # fmt: skip
    parser.add_argument(
        "--batch-size", type=positive_int, default=OPERATOR_BATCH,
        help="number of examples in a batch (default: %(default)s)",
    )  # fmt: skip
    _add_mixer_flags(parser, OPERATOR_LENGTHS)


def _add_decoding_flags(parser: argparse.ArgumentParser) -> None:
    _add_mixers(parser, DECODED_MIXERS)
    _add_mixer_flags(parser, DECODED_LENGTHS)


def _add_mixers(parser: argparse.ArgumentParser, names: str, also: str = "") -> None:
    """Add --mixers.

    Args:
        parser: command line to add to.
        names: default mixers, comma-separated.
        also: end of the help text.
    """
    mixers = parser.add_argument(
        "--mixers", default=names,
        help="comma-separated list (default: %(default)s) of {names}, or FILE.py:CLASS for your "
        f"own{also}",
    )  # fmt: skip
    name_in_help(mixers, lambda: sorted(MIXERS.classes))


def _add_mixer_flags(parser: argparse.ArgumentParser, lengths: Sequence[int]) -> None:
    """Add the flags of mixers without a task.

    Args:
        parser: command line to add to.
        lengths: default lengths, in positions.
    """
    parser.add_argument(
        "--lengths", default=",".join(map(str, lengths)),
        help="comma-separated sequence lengths in positions (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--dim", type=positive_int, default=CHANNELS,
        help="number of channels (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--set", action="append", default=[], metavar="mixer.KEY=VALUE", dest="overrides",
        help="change an option of the mixers",
    )  # fmt: skip


def _lengths(text: str) -> list[int]:
    return sorted(whole_numbers(text, "--lengths", 1))


def list_classifiers(options: argparse.Namespace) -> list[list[StepCase]]:
    """List the classifiers to measure, in a group for each length, which has its own rounds."""
    changes = parse_changes(options.overrides)
    if options.batch_size is not None:
        # A mixer's micro-batch is of its own batch, and may be larger than this one.
        texts = ("train.micro_batch=null", f"train.batch_size={options.batch_size}")
        whole, size = parse_changes(texts, "--batch-size")
        changes = (whole, *changes, size)
    alternatives = [parse_alternatives(text, "--vary") for text in options.vary]
    mixers = name_list(options.mixers, "--mixers", sorted(MIXERS.classes))
    lengths: Sequence[int | None]
    if options.lengths == TASK:
        lengths = [None]
    elif options.lengths is not None:
        lengths = _lengths(options.lengths)
    else:
        lengths = [0]
    return [
        [
            CASES[options.command](
                mixer=name,
                device=options.device,
                request=RunRequest(
                    task=options.task,
                    mixer=name,
                    preset=options.preset,
                    protocol=options.protocol,
                    changes=(*changes, *values),
                ),
                length=length,
                data_dir=options.data_dir,
                varied=tuple(alternatives),
            )
            for values in itertools.product(*alternatives)
            for name in mixers
        ]
        for length in lengths
    ]


def _operators(options: argparse.Namespace) -> list[list[Case]]:
    """List the parts of mixers to measure, in a group for each length, which has its own rounds."""
    return [
        [
            OperatorCase(
                mixer=name,
                device=options.device,
                part=part,
                length=length,
                batch_size=options.batch_size,
                dim=options.dim,
                changes=parse_changes(options.overrides),
            )
            for name in name_list(options.mixers, "--mixers")
            for part in name_list(options.parts, "--parts")
        ]
        for length in _lengths(options.lengths)
    ]


def _measure(options: argparse.Namespace, groups: Sequence[Sequence[Case]]) -> list[BenchRecord]:
    """Measure groups of cases, each in interleaved rounds, and print tables of them."""
    if options.repeats < 2:  # noqa: PLR2004
        raise UserError(f"--repeats {options.repeats}: expected at least 2, for quartiles")
    choose_device(options.device)
    for cases in groups:
        for case in cases:
            case.settings()  # raises mistakes before anything is measured
    records: list[BenchRecord] = []
    total = sum(map(len, groups)) * units(options.repeats)
    with progress("measuring", total=total, unit="rounds") as bar:
        for cases in groups:
            compare = options.compare is not None
            for record in measure(cases, options.repeats, compare=compare, bar=bar):
                record.save(options.out)
                records.append(record)
    names = RowNames([], records)
    for table in speed_tables(records, names, names.of_mixer(records[0])):
        fitted = fit_table(table)
        legend, caption = wrap(" ".join(fitted.legend)), wrap(table.caption)
        parts = filter(None, [wrap(table.title), fitted.text, legend, caption])
        write_out("\n\n".join([*parts, "", ""]))
    return records


def _decode(options: argparse.Namespace) -> list[BenchRecord]:
    records = decode(options, name_list(options.mixers, "--mixers"), _lengths(options.lengths))
    for record in records:
        record.save(options.out)
    return records


COMMANDS: dict[str, Callable[[argparse.Namespace], list[BenchRecord]]] = {
    "step": lambda options: _measure(options, list_classifiers(options)),
    "forward": lambda options: _measure(options, list_classifiers(options)),
    "op": lambda options: _measure(options, _operators(options)),
    "decode": _decode,
}


def bench(options: argparse.Namespace) -> int:
    """Carry out a command line; return the exit code."""
    choose_waiting()  # for the processes that it starts
    use_threads(options.threads)
    records = COMMANDS[options.command](options)
    lines = [f"{len(records)} record{'s' * (len(records) != 1)} in {options.out}"]
    out = Path(as_typed(str(options.out)))
    if out.name == "bench":  # the report reads no other folder of a results folder
        lines += wrap_command(
            "next:", command_words("report", results_dir=out.parent), terminal_width()
        )
    write_out("\n".join([*lines, ""]))
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command("lra.bench", lambda: bench(parse_arguments(arguments)))


if __name__ == "__main__":
    sys.exit(main())
