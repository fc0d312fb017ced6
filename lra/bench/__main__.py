"""The command line of the benchmark: `python -m lra.bench --help`."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from lra.bench.decoding import LENGTHS as DECODED_LENGTHS
from lra.bench.decoding import MIXERS as DECODED_MIXERS
from lra.bench.decoding import decode
from lra.bench.operators import PRODUCT, OperatorCase
from lra.bench.rounds import Case, measure, units
from lra.bench.steps import CASES
from lra.record.benchmark import BenchRecord
from lra.runtime.cli import Parser, add_overrides, carry_out, positive_int, whole_numbers
from lra.runtime.console import write_out
from lra.runtime.environment import choose_device
from lra.runtime.errors import UserError
from tasks.progress import progress

logger = logging.getLogger("lra.bench")

MIXERS = "tnn,ski-tnn,fd-tnn,transformer,s4"
OPERATOR_LENGTHS = [1024, 2048, 4096, 16384]
OPERATOR_BATCH = 4
CHANNELS = 64
TASK = "task"
"""In place of lengths: sequences as the task has them."""


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(
        prog="python -m lra.bench",
        description="Measure mixers in turns in one process: medians with quartiles, peak memory "
        "of a process of its own, arithmetic, and what a training step's time goes to. Records "
        "go to --out, and report.py tabulates them. "
        "step: training steps of a task's classifier. "
        "forward: an evaluation of it. "
        "op: a part of a mixer of default options alone, forward and backward. "
        "decode: what one more position costs a causal mixer, by its recurrence and by mixing "
        "all positions so far again.",
    )
    parser.add_argument("--mode", choices=MODES, default="step", help="step (default)")
    parser.add_argument(
        "--mixers",
        help=f"names, comma-separated ({MIXERS}; decode: {DECODED_MIXERS}); op: also {PRODUCT}, "
        f"the product with a given kernel of all lags",
    )
    parser.add_argument(
        "--lengths",
        help="positions, comma-separated; step and forward: of synthetic sequences (the task's "
        f"longest), or {TASK} for the task's own data",
    )
    parser.add_argument(
        "--compare", choices=["reference"], help="time each beside the published code's way"
    )
    parser.add_argument("--task", help="step, forward: its classifier (listops)")
    parser.add_argument("--preset", help="step, forward: paper (default), quick or budget")
    parser.add_argument("--protocol", help="step, forward: s4 (default) or lra")
    add_overrides(parser, "change a setting, of the mixers alone for op and decode")
    parser.add_argument(
        "--batch-size", type=positive_int, help=f"step, forward (the task's), op ({OPERATOR_BATCH})"
    )
    parser.add_argument("--parts", help="op: mixing (default), kernel or whole")
    parser.add_argument("--dim", type=positive_int, help=f"op, decode: channels ({CHANNELS})")
    parser.add_argument("--repeats", type=positive_int, default=5, help="turns (%(default)s)")
    parser.add_argument("--device", default="cpu", help="cpu (default), cuda or cuda:N")
    parser.add_argument(
        "--out", type=Path, default=Path("results/bench"), help="for records (results/bench)"
    )
    return parser.parse_args(arguments)


def _settle(options: argparse.Namespace) -> None:
    """Refuse flags that the mode has no use for, and give the others their defaults."""
    of_task = {"task": "listops", "preset": "paper", "protocol": "s4"}
    of_mixer = {"parts": "mixing", "dim": CHANNELS}
    idle = set(of_task) if options.mode in ("op", "decode") else set(of_mixer)
    if options.mode == "decode":
        idle |= {"parts", "batch_size", "compare"}
    for name in sorted(idle):
        if getattr(options, name) is not None:
            flag = name.replace("_", "-")
            raise UserError(f"--{flag} has no effect with --mode {options.mode}; leave it out")
    for name, default in {**of_task, **of_mixer}.items():
        if getattr(options, name) is None:
            setattr(options, name, default)


def _lengths(text: str) -> list[int]:
    return sorted(whole_numbers(text, "--lengths", 1))


def _names(text: str) -> list[str]:
    return list(dict.fromkeys(name.strip() for name in text.split(",")))


def _classifiers(options: argparse.Namespace) -> list[list[Case]]:
    """Lay up classifiers: those of each length take turns."""
    overrides = list(options.overrides)
    if options.batch_size is not None:
        overrides.append(f"train.batch_size={options.batch_size}")
    lengths: Sequence[int | None]
    if options.lengths == TASK:
        lengths = [None]
    elif options.lengths is not None:
        lengths = _lengths(options.lengths)
    else:
        lengths = [0]
    made: list[list[Case]] = []
    for length in lengths:
        cases: list[Case] = []
        for name in _names(options.mixers or MIXERS):
            case = CASES[options.mode](
                mixer=name,
                device=options.device,
                task=options.task,
                preset=options.preset,
                protocol=options.protocol,
                overrides=tuple(overrides),
                length=length,
                data_dir=options.data_dir,
            )
            case.settings()  # mistakes come to light before anything is measured
            cases.append(case)
        made.append(cases)
    return made


def _operators(options: argparse.Namespace) -> list[list[Case]]:
    """Lay up parts of mixers: those of each length take turns."""
    lengths = OPERATOR_LENGTHS if options.lengths is None else _lengths(options.lengths)
    made: list[list[Case]] = []
    for length in lengths:
        cases: list[Case] = []
        for name in _names(options.mixers or "tnn,ski-tnn,fd-tnn,s4"):
            for part in _names(options.parts):
                case = OperatorCase(
                    mixer=name,
                    device=options.device,
                    part=part,
                    length=length,
                    batch_size=options.batch_size or OPERATOR_BATCH,
                    dim=options.dim,
                    overrides=tuple(options.overrides),
                )
                case.settings()  # mistakes come to light before anything is measured
                cases.append(case)
        made.append(cases)
    return made


def _in_turns(options: argparse.Namespace) -> list[BenchRecord]:
    from lra.report.benchmarks import bench_boards, benchmark_tables

    if options.repeats < 2:  # noqa: PLR2004
        raise UserError(f"--repeats {options.repeats}: expected at least 2, for quartiles")
    choose_device(options.device)
    groups = (_operators if options.mode == "op" else _classifiers)(options)
    records: list[BenchRecord] = []
    total = sum(map(len, groups)) * units(options.repeats)
    with progress("measuring", total=total, unit="turns") as bar:
        for cases in groups:
            compare = options.compare is not None
            for record in measure(cases, options.repeats, compare=compare, bar=bar):
                record.save(options.out)
                records.append(record)
    for board in bench_boards(records):
        for table in benchmark_tables(board, records[0].method, "bench"):
            write_out(f"\n{table.title}\n\n{table.caption}\n\n{table.markdown()}")
    return records


def _decode(options: argparse.Namespace) -> list[BenchRecord]:
    lengths = DECODED_LENGTHS if options.lengths is None else _lengths(options.lengths)
    records = decode(options, _names(options.mixers or DECODED_MIXERS), lengths)
    for record in records:
        record.save(options.out)
    return records


MODES = {"step": _in_turns, "forward": _in_turns, "op": _in_turns, "decode": _decode}


def bench(options: argparse.Namespace) -> int:
    """Carry a command line out; return the exit code."""
    _settle(options)
    records = MODES[options.mode](options)
    logger.info(f"{len(records)} records in {options.out}")
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    options = parse_arguments(arguments)
    return carry_out("lra.bench", lambda: bench(options))


if __name__ == "__main__":
    sys.exit(main())
