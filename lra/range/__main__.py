"""Measure what range of its inputs a trained model uses: `python -m lra.range --help`."""

import argparse
import sys

from lra.api.trained import TrainedRun, load_finished
from lra.common.errors import UserError
from lra.range.influence import EXAMPLES, Influence, measure_influence
from lra.range.order import measure_order
from lra.record.evaluation import results_dir_of
from lra.runtime.cli import Parser, absolute_path, add_flags, command_words, make_main
from lra.runtime.console import terminal_width, wrap_command, wrap_words, write_out
from lra.runtime.environment import use_threads
from lra.runtime.tables import plain_table, rounded
from lra.train.evaluation import Evaluator


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(
        prog="python -m lra.range",
        description="Measure which distances a trained model uses, by replacing inputs of test "
        "examples with those of others, and how much it uses their order, by shuffling them in "
        "blocks. Nothing is trained. docs/range.md explains the numbers.",
        epilog="Exit codes: 0 done, 2 mistake in the command, 5 out of memory, 130 interrupted.",
    )
    parser.add_argument("--run", type=absolute_path, required=True,
        help="folder of a finished run, for example results/runs/listops/tnn/RUN")  # fmt: skip
    add_flags(parser, "--trust-code", "--device", "--threads", "--data-dir")
    return parser.parse_args(arguments)


def measure_range(run: TrainedRun) -> tuple[Influence, dict[int, float]]:
    """Measure what inputs a run uses, and its score by the positions of shuffled blocks.

    Raises: UserError for pairs of sequences, and as `measure_influence` does.
    """
    info, record = run.config.build_task().info, run.record
    if info.towers > 1:
        raise UserError(
            f"--run {run.folder}: {info.name} has {info.towers} sequences per example, expected a "
            f"task with one: between two sequences there is no distance"
        )
    # In single precision, whatever the run trained in: rounding would hide small changes.
    evaluator = Evaluator(
        model=run.model, batch_size=record.micro_batch or record.batch_size, device=run.device,
        precision="fp32", title=f"measuring {run.folder.name}",
    )  # fmt: skip
    test = run.dataset.splits["test"]
    with run.config.mixer_component.explain_errors("the evaluation failed"):
        influence = measure_influence(evaluator, info.goal, test)
        return influence, measure_order(evaluator, run.scorer_of(info), test)


def describe_range(run: TrainedRun, width: int) -> list[str]:
    """Write what `measure_range` returns as lines that fit a width."""
    (influence, scores), record = measure_range(run), run.record
    what, change = "two inputs are replaced", "interaction"
    if run.model.goal.of_positions:
        what, change = "an earlier input is replaced", "total variation"
    octaves = [
        {"distance": f"{first:,} to {2 * first - 1:,}" if first > 1 else "1",
         change: rounded(mean, 5) if mean else "0", "share": f"{rounded(100 * share, 1)} %"}
        for first, mean, share in influence.by_octave()
    ]  # fmt: skip
    low, high, even = (rounded(x, 1) for x in (*influence.interval, influence.even_distance))
    distance, mean = influence.mean_distance, "nothing changes at any distance"
    if distance is not None:
        mean = f"mean distance {rounded(distance, 1)} positions (95 % interval {low} to {high})"
    scorer = run.scorer_of(run.config.build_task().info)
    measured = "accuracy, %" if scorer.has_accuracy else "loss"
    order = [
        {"positions of a block": f"{block:,}" if block < max(scores) else "not shuffled",
         measured: rounded(score, 2)} for block, score in scores.items()
    ]  # fmt: skip
    title = f"{record.task} / {record.mixer} / {record.preset}, seed {record.seed}"
    return [
        *wrap_words(f"{title}: what changes if {what}, in {EXAMPLES} test examples", width),
        "", *plain_table(octaves, width), "",
        *wrap_words(f"{mean}; {even} if all changes were equal", width),
        "", *wrap_words("Order: the score on test examples shuffled in blocks", width),
        "", *plain_table(order, width), "",
    ]  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Carry out a command line; return the exit code."""
    use_threads(options.threads)
    trained = load_finished(
        options.run, data_dir=options.data_dir, trust_code=options.trust_code, device=options.device
    )
    width = terminal_width()
    words = command_words("report", results_dir=results_dir_of(options.run))
    write_out(
        "\n".join([*describe_range(trained, width), *wrap_command("next:", words, width), ""])
    )
    return 0


main = make_main("lra.range", parse_arguments, run)

if __name__ == "__main__":
    sys.exit(main())
