"""The command line of the benchmark: `python -m lra.bench --help`."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from common.progress import progress
from lra.bench.case import WARMUP_ROUNDS, Case
from lra.bench.operators import PRODUCT, WINDOW, DecodingCase, OperatorCase
from lra.bench.rounds import measure
from lra.bench.steps import CASES
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
from lra.runtime.console import as_typed, terminal_width, wrap_command, write_out
from lra.runtime.environment import choose_device, use_threads
from lra.runtime.errors import UserError
from lra.runtime.launch import command_words
from lra.runtime.threads import choose_waiting

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
        "--out", type=absolute_path, default="results/bench",
        help="folder for the records (default: results/bench)",
    )  # fmt: skip
    compared.add_argument(
        "--compare", choices=["reference"],
        help="also time the reference implementation of each mixer, written as in published code",
    )  # fmt: skip

    def add(name: str, text: str, *parents: Parser) -> Parser:
        description = f"{text[0].upper()}{text[1:]}."
        return commands.add_parser(
            name, parents=[common, *parents], help=text, description=description
        )

    _add_classifier_flags(add("step", "time the training steps of a whole model", compared))
    _add_classifier_flags(add("forward", "time the evaluation of a whole model", compared))
    text = "time the forward and backward pass of a mixer, or of a part of it, without a model"
    _add_operator_flags(add("op", text, compared))
    text = (
        "time one decoding step of a causal mixer: by its recurrence, and by a full pass over all "
        "positions so far"
    )
    decoding = add("decode", text)
    _add_mixers(decoding, "tnn,fd-tnn,s4,s4d,dss")
    _add_mixer_flags(decoding, "256,1024,4096")
    decoding.set_defaults(compare=None)
    return parser.parse_args(arguments)


def _add_classifier_flags(parser: argparse.ArgumentParser) -> None:
    task = parser.add_argument(
        "--task", default="listops",
        help="task that the model is for (default: %(default)s), of {names}, or your own: "
        f"{OWN_CLASS}",
    )  # fmt: skip
    name_in_help(task, lambda: sorted(TASKS.classes))
    add_preset(parser)
    _add_mixers(parser, "tnn,ski-tnn,fd-tnn,transformer,s4", f"; {ALL} for every mixer")
    parser.add_argument(
        "--lengths",
        help="comma-separated lengths of synthetic sequences, in positions (default: the longest "
        f"of the task), or {TASK} for the sequences of the task itself",
    )
    parser.add_argument(
        "--batch-size", type=positive_int,
        help="number of examples in a batch (default: as in training)",
    )  # fmt: skip
    add_overrides(parser, "change a setting")
    parser.add_argument(
        "--vary", action="append", default=[], metavar="SECTION.KEY=VALUE,VALUE",
        help="measure each of these values of a setting in the same rounds; several --vary measure "
        "every combination",
    )  # fmt: skip


def _add_operator_flags(parser: argparse.ArgumentParser) -> None:
    product = f"; {PRODUCT} is the product with a given kernel over all lags"
    _add_mixers(parser, "tnn,ski-tnn,fd-tnn,s4", product)
    parser.add_argument(
        "--parts", default="mixing",
        help="comma-separated parts of the mixers: mixing (default), kernel or whole",
    )  # fmt: skip
    parser.add_argument(
        "--batch-size", type=positive_int, default=4,
        help="number of examples in a batch (default: %(default)s)",
    )  # fmt: skip
    _add_mixer_flags(parser, "1024,2048,4096,16384")


def _add_mixers(parser: argparse.ArgumentParser, names: str, also: str = "") -> None:
    mixers = parser.add_argument(
        "--mixers", default=names,
        help="comma-separated list (default: %(default)s) of {names}, or FILE.py:CLASS for your "
        f"own{also}",
    )  # fmt: skip
    name_in_help(mixers, lambda: sorted(MIXERS.classes))


def _add_mixer_flags(parser: argparse.ArgumentParser, lengths: str) -> None:
    """Add the flags of mixers without a task."""
    parser.add_argument(
        "--lengths", default=lengths,
        help="comma-separated sequence lengths in positions (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--dim", type=positive_int, default=64,
        help="number of channels (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--set", action="append", default=[], metavar="mixer.KEY=VALUE", dest="overrides",
        help="change an option of the mixers",
    )  # fmt: skip


Groups = Sequence[Sequence[Case]]
"""The cases to measure, in a group for each length, which has its own rounds."""


def list_classifiers(options: argparse.Namespace) -> Groups:
    """List the classifiers to measure."""
    changes = parse_changes(options.overrides)
    if options.batch_size is not None:
        # A mixer's micro-batch is of its own batch, and may be larger than this one.
        texts = ("train.micro_batch=null", f"train.batch_size={options.batch_size}")
        whole, size = parse_changes(texts, "--batch-size")
        changes = (whole, *changes, size)
    alternatives = [parse_alternatives(text, "--vary") for text in options.vary]
    mixers = name_list(options.mixers, "--mixers", sorted(MIXERS.classes))
    lengths: Sequence[int | None] = [None] if options.lengths == TASK else [0]
    if options.lengths not in (TASK, None):
        lengths = _read_lengths(options)
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


def list_operators(options: argparse.Namespace) -> Groups:
    """List the parts of mixers to measure."""
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
        for length in _read_lengths(options)
    ]


def list_decodings(options: argparse.Namespace) -> Groups:
    """List the causal mixers to measure."""
    lengths = _read_lengths(options, WINDOW)
    return [
        [
            DecodingCase(
                mixer=name,
                device=options.device,
                part=part,
                length=length,
                longest=max(lengths),
                dim=options.dim,
                changes=parse_changes(options.overrides),
            )
            for name in name_list(options.mixers, "--mixers")
            for part in ("recurrence", "prefix")
        ]
        for length in lengths
    ]


def _read_lengths(options: argparse.Namespace, least: int = 1) -> list[int]:
    return sorted(whole_numbers(options.lengths, "--lengths", least))


COMMANDS: dict[str, Callable[[argparse.Namespace], Groups]] = {
    "step": list_classifiers,
    "forward": list_classifiers,
    "op": list_operators,
    "decode": list_decodings,
}


def measure_groups(options: argparse.Namespace, groups: Groups) -> list[BenchRecord]:
    """Measure each group of cases in interleaved rounds, and save the records."""
    if options.repeats < 2:  # noqa: PLR2004
        raise UserError(f"--repeats {options.repeats}: expected at least 2, for quartiles")
    choose_device(options.device)
    for cases in groups:
        for case in cases:
            case.settings()  # raises mistakes before anything is measured
    records: list[BenchRecord] = []
    total = sum(map(len, groups)) * (WARMUP_ROUNDS + options.repeats)
    with progress("measuring", total=total, unit="rounds") as bar:
        for cases in groups:
            compare = options.compare is not None
            for record in measure(cases, options.repeats, compare=compare, bar=bar):
                record.save(options.out)
                records.append(record)
    return records


def run(options: argparse.Namespace) -> int:
    """Carry out a command line; return the exit code."""
    choose_waiting()  # for the processes that it starts
    use_threads(options.threads)
    records = measure_groups(options, COMMANDS[options.command](options))
    names = RowNames([], records)
    for table in speed_tables(records, names, names.of_mixer(records[0])):
        fitted = fit_table(table)
        legend, caption = wrap(" ".join(fitted.legend)), wrap(table.caption)
        parts = filter(None, [wrap(table.title), fitted.text, legend, caption])
        write_out("\n\n".join([*parts, "", ""]))
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
    return run_command("lra.bench", lambda: run(parse_arguments(arguments)))


if __name__ == "__main__":
    sys.exit(main())
