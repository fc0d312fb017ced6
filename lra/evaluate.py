"""Evaluate trained models out of distribution: `python -m lra.evaluate --help`."""

import argparse
import itertools
import logging
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lra.api.recompose import find_changed_code, request_of
from lra.api.trained import TrainedRun, load_finished
from lra.common.errors import UserError
from lra.config.request import Change, combine, list_changes, parse_alternatives
from lra.config.schema import RunConfig
from lra.record.evaluation import EvaluationRecord, evaluation_order, evaluations_of, results_dir_of
from lra.record.run import RunRecord
from lra.record.schema import DataRecord
from lra.resolve import resolve
from lra.runtime.cli import (
    Parser,
    absolute_path,
    add_flags,
    command_words,
    length_list,
    make_main,
    positive_int,
    whole_number,
)
from lra.runtime.console import terminal_width, wrap_command, wrap_words, write_out
from lra.runtime.environment import describe_machine, use_threads
from lra.runtime.repository import git_state
from lra.runtime.tables import MISSING, plain_matrix

logger = logging.getLogger("lra.evaluate")

EXAMPLES = 2000
"""Number of examples in a freshly drawn test set, unless another one is asked for."""


SEED = "data_seed"
"""The option of a task that draws its data which seeds the draw."""


def seed_change(seed: int) -> Change:
    """Return the change that draws a test set by a seed."""
    return Change("task", SEED, seed, f"--data-seed {seed}")


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
    add = parser.add_argument
    add("--run", type=absolute_path, required=True, action="append",
        help="folder of a finished run, for example results/runs/listops/tnn/RUN; may be given "
        "several times")  # fmt: skip
    add("--lengths", type=length_list,
        help="comma-separated lengths of the longest sequence, in positions")  # fmt: skip
    add("--vary", action="append", default=[], metavar="task.KEY=VALUE,VALUE",
        help="evaluate with each of these values of a task option; several --vary evaluate every "
        "combination")  # fmt: skip
    add("--examples", type=positive_int,
        help=f"examples of a new test set (default: {EXAMPLES:,})")  # fmt: skip
    add("--data-seed", type=whole_number, metavar="N",
        help="seed of a new test set (default: that of the training data plus 1)")  # fmt: skip
    add("--again", action="store_true", help="repeat evaluations that already have a record")
    add_flags(parser, "--trust-code", "--device", "--threads", "--data-dir")
    return parser.parse_args(arguments)


def _table(runs: Sequence[TrainedRun], width: int) -> list[str]:
    """Write a row for each run, with its score as trained and on other data."""
    pairs = [(run.record, evaluations_of(run.folder)[0]) for run in runs]
    columns = sorted((record for _, records in pairs for record in records), key=evaluation_order)
    rows: list[dict[str, str]] = []
    for run, records in pairs:
        scored = {record.label: _scored(record) for record in records}
        for measured, text in _scored(run).items():
            rows.append(
                {"run": f"{run.mixer}/{run.run_id}"}
                | ({} if run.result.is_accuracy else {"measured": measured})
                | {"as trained": text}
                | {c.label: scored.get(c.label, {}).get(measured, MISSING) for c in columns}
            )
    return plain_matrix(rows, width)


def _scored(record: RunRecord | EvaluationRecord) -> dict[str, str]:
    """Write each measure of a result."""
    return {m.name: m.text(m.of(record.result)) for m in record.result.measures}


def run(options: argparse.Namespace) -> int:
    """Carry out a command line; return the exit code."""
    use_threads(options.threads)
    choices = [parse_alternatives(text, "--vary") for text in options.vary]
    if options.data_seed is not None:
        choices.append((seed_change(options.data_seed),))
    if options.lengths is None and not choices:
        raise UserError(
            "expected at least one of --lengths, --vary and --data-seed, --lengths 2000 for example"
        )
    conditions = [
        OtherData(length=length, changes=tuple(changes), examples=options.examples)
        for *changes, length in combine("evaluations", *choices, options.lengths or [None])
    ]
    runs = [
        load_finished(
            folder, data_dir=options.data_dir, trust_code=options.trust_code, device=options.device
        )
        for folder in options.run
    ]
    for trained, other in itertools.product(runs, conditions):
        if options.again or not is_measured(trained, other):
            record = evaluate_on(trained, other)
            _report(record, record.save(trained.folder))
    width = terminal_width()
    caption = "Test accuracy in percent; of other goals, what is measured:"
    lines = [*wrap_words(caption, width), "", *_table(runs, width), ""]
    results_dir = results_dir_of(runs[0].folder)
    if results_dir is not None:
        lines += wrap_command("next:", command_words("report", results_dir=results_dir), width)
    write_out("\n".join([*lines, ""]))
    return 0


def _report(record: EvaluationRecord, path: Path) -> None:
    """Log the score of an evaluation, beside those of trivial baselines."""
    result = record.result
    first = result.measures[0]
    baselines = ", ".join(f"{name} {first.text(v)}" for name, v in first.beneath(result).items())
    loss = "not finite" if record.loss is None else f"{record.loss:.4g}"
    logger.info(
        f"{record.mixer}, {record.label}: {result.text} of {result.test_total:,} {result.targets}, "
        f"loss {loss} ({baselines}); record: {path}"
    )


@dataclass(frozen=True, kw_only=True)
class OtherData:
    """How the data of an evaluation differs from the data of the training."""

    length: int | None
    """Positions of the longest sequence; None: as in training."""
    changes: tuple[Change, ...]
    """Changed options of the task."""
    examples: int | None
    """Size of a freshly drawn test set; None: EXAMPLES."""

    @property
    def values(self) -> dict[str, Any]:
        """Values of the changed options as records hold them, by full name."""
        return {c.name: c.value for c in sorted(self.changes, key=lambda change: change.text)}


def compose_other(run: TrainedRun, other: OtherData) -> RunConfig:
    """Compose the settings of a run for other data.

    Raises: UserError for changes of anything but the task; DataError for a task without such data.
    """
    for change in other.changes:
        if change.section != "task":
            raise UserError(
                f"{change.origin}: only options of the task can differ from the run's; expected "
                f"task.KEY=VALUE"
            )
    config = resolve(request_of(run.record, other.changes))
    task = config.build_task()
    trained_seed = run.record.settings.get(f"task.{SEED}")
    for change in other.changes:
        if change.key == SEED and (not task.draws_data or change.value == trained_seed):
            raise UserError(
                f"{change.origin}: expected a task that draws its data, and another seed than that "
                f"of the training data ({trained_seed})"
            )
    if other.examples is not None and not task.draws_data:
        raise UserError(
            f"--examples {other.examples}: {run.record.task} draws no new examples, and all of its "
            f"test set is used; leave it out"
        )
    examples = other.examples or EXAMPLES
    fresh = task.fresh(config.task.model_dump(), length=other.length, examples=examples)
    for change in other.changes:
        if change.key in fresh and change.key != SEED:
            raise UserError(
                f"{change.origin}: a fresh test set comes with its own {change.key}; leave it out"
            )
    drawn = list_changes({"task": fresh}, "a fresh test set")
    return resolve(request_of(run.record, [*drawn, *other.changes]))


def is_measured(run: TrainedRun, other: OtherData) -> bool:
    """Whether this run has a record of an evaluation on this data, with as many examples.

    One of changed code is none: that of the run may be back, or the code have changed again.
    """
    if find_changed_code(run.folder, run.record) is not None:
        return False
    examples = other.examples or (EXAMPLES if run.config.build_task().draws_data else None)
    return any(
        (record.length, record.changes) == (other.length, other.values)
        and not record.has_changed_code
        and examples in (None, record.data.sizes["test"])
        for record in evaluations_of(run.folder)[0]
    )


def evaluate_on(run: TrainedRun, other: OtherData) -> EvaluationRecord:
    """Evaluate the best model of a run on the test set of other data.

    Raises: UserError as `compose_other` and `TrainedRun.load_model` do.
    """
    record, device = run.record, run.device
    task = compose_other(run, other).build_task()
    model = run.load_model(task.info)
    dataset = task.prepare(run.data_dir)
    test = dataset.splits["test"]
    # A forward pass has about as many positions as in training.
    longer = max(1.0, task.info.max_length / record.length)
    batch_size = max(1, int((record.micro_batch or record.batch_size) / longer))
    evaluator = run.evaluator(model, batch_size, f"evaluating on {len(test)} examples")
    start = time.perf_counter()
    with run.config.mixer_component.explain_errors("the evaluation failed"):
        score = evaluator.score(test, scorer := run.scorer_of(task.info))
    seconds = time.perf_counter() - start
    return EvaluationRecord(
        **record.model_dump(include={"run_id", "task", "mixer", "seed", "config_hash"}),
        has_changed_code=find_changed_code(run.folder, record) is not None,
        length=other.length,
        changes=other.values,
        trained_length=record.length,
        result=scorer.describe(score, dataset, {}),
        loss=score.loss if math.isfinite(score.loss) else None,
        examples_per_second=score.total / seconds,
        **describe_machine(device),
        precision=evaluator.precision,
        git=git_state(),
        data=DataRecord.model_validate(dataset),
    )


main = make_main("lra.evaluate", parse_arguments, run)

if __name__ == "__main__":
    sys.exit(main())
