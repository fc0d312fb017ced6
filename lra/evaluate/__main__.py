"""Evaluate trained models out of distribution: `python -m lra.evaluate --help`."""

from __future__ import annotations

import argparse
import itertools
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from common.errors import UserError
from lra.api.trained import TrainedRun, load_finished
from lra.config.request import parse_alternatives
from lra.evaluate.out_of_distribution import EXAMPLES, OtherData, evaluate_on, is_measured
from lra.record.evaluation import EvaluationRecord, evaluation_order, evaluations_of
from lra.record.run import RunRecord, results_dir_of
from lra.record.scores import unit_of
from lra.runtime.cli import (
    Parser,
    absolute_path,
    add_trained_model,
    command_words,
    positive_int,
    run_command,
    whole_numbers,
)
from lra.runtime.console import (
    MISSING,
    plain_matrix,
    terminal_width,
    wrap_command,
    wrap_words,
    write_out,
)
from lra.runtime.environment import use_threads

logger = logging.getLogger("lra.evaluate")


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(
        prog="python -m lra.evaluate",
        description="Evaluate the best model of a finished run on data that is longer, deeper or "
        "harder than its training data. Tasks whose data is generated draw a new test set. Text, "
        "Retrieval and lm read their test documents with other options; documents have to be read "
        "as bytes. The results are recorded in the run's folder, and report.py shows them.",
        epilog="Exit codes: 0 done, 2 mistake in the command, 5 out of memory, 130 interrupted "
        "(run the same command again to continue).",
    )
    parser.add_argument(
        "--run", type=absolute_path, required=True, action="append",
        help="folder of a finished run, for example results/runs/listops/tnn/RUN; may be given "
        "several times",
    )  # fmt: skip
    parser.add_argument(
        "--lengths", help="comma-separated lengths of the longest sequence, in positions"
    )
    parser.add_argument(
        "--vary", action="append", default=[], metavar="task.KEY=VALUE,VALUE",
        help="evaluate with each of these values of a task option; several --vary evaluate every "
        "combination",
    )  # fmt: skip
    parser.add_argument(
        "--examples", type=positive_int, help=f"examples of a new test set (default: {EXAMPLES:,})"
    )
    parser.add_argument(
        "--again", action="store_true", help="repeat evaluations that already have a record"
    )
    add_trained_model(parser)
    return parser.parse_args(arguments)


def _conditions(options: argparse.Namespace) -> list[OtherData]:
    if options.lengths is None and not options.vary:
        raise UserError("expected at least one of --lengths and --vary, --lengths 2000 for example")
    lengths: list[int | None] = [None]
    if options.lengths is not None:
        lengths = [*whole_numbers(options.lengths, "--lengths", 1)]
    choices = [parse_alternatives(text, "--vary") for text in options.vary]
    return [
        OtherData(length=length, changes=changes, examples=options.examples)
        for changes in itertools.product(*choices)
        for length in lengths
    ]


def _table(runs: Sequence[TrainedRun], width: int) -> list[str]:
    """Write a row for each run, with its score as trained and on other data."""
    found = [(run.record, evaluations_of(run.folder)[0]) for run in runs]
    columns = sorted((one for _, records in found for one in records), key=evaluation_order)
    rows: list[dict[str, str]] = []
    for run, records in found:
        scored = {one.label: _scored(one) for one in records}
        for measured, text in _scored(run).items():
            rows.append(
                {"run": f"{run.mixer}/{run.run_id}"}
                | ({} if run.positions is None else {"measured": measured})
                | {"as trained": text}
                | {one.label: scored.get(one.label, {}).get(measured, MISSING) for one in columns}
            )
    return plain_matrix(rows, width)


def _scored(record: RunRecord | EvaluationRecord) -> dict[str, str]:
    """Write the accuracy in percent or, where positions are targets, bits and perplexity."""
    scores = record.positions
    if scores is None:
        return {"accuracy": f"{record.test_accuracy:.2f}"}
    numbers = {
        f"bits per {unit_of(scores.text_bytes)}": scores.bits,
        "perplexity": scores.perplexity,
    }
    return {name: MISSING if n is None else f"{n:.3f}" for name, n in numbers.items()}


def run(options: argparse.Namespace) -> int:
    """Carry out a command line; return the exit code."""
    use_threads(options.threads)
    conditions = _conditions(options)
    runs = [
        load_finished(
            folder, data_dir=options.data_dir, trust_code=options.trust_code, device=options.device
        )
        for folder in options.run
    ]
    for trained, other in itertools.product(runs, conditions):
        if options.again or not is_measured(trained, other):
            found = evaluate_on(trained, other)
            _report(found, found.save(trained.folder))
    width = terminal_width()
    caption = "Test accuracy in percent; where every position is a target, bits and perplexity:"
    lines = [*wrap_words(caption, width), "", *_table(runs, width), ""]
    results_dir = results_dir_of(runs[0].folder)
    if results_dir is not None:
        lines += wrap_command("next:", command_words("report", results_dir=results_dir), width)
    write_out("\n".join([*lines, ""]))
    return 0


def _report(found: EvaluationRecord, path: Path) -> None:
    """Log the score of an evaluation, beside those of trivial baselines."""
    baselines = [f"{name} {accuracy:.2f} %" for name, accuracy in found.baselines.items()]
    scores = ""
    if found.positions is not None:
        scores = f", {found.positions.text}"
        baselines += [f"{name} {n:.3f} bits" for name, n in found.positions.baseline_bits.items()]
    loss = "not finite" if found.loss is None else f"{found.loss:.4g} nats"
    logger.info(
        f"{found.mixer}, {found.label}: accuracy {found.test_accuracy:.2f} % of "
        f"{found.test_total:,}, loss {loss}{scores} (trivial baselines: {', '.join(baselines)}); "
        f"record: {path}"
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command("lra.evaluate", lambda: run(parse_arguments(arguments)))


if __name__ == "__main__":
    sys.exit(main())
