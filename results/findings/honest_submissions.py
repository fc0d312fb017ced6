"""Count how many simulated honest submissions fail the mark *fresh*.

    python -m results.findings.honest_submissions

Each submission is a shipped model of ListOps with a test set of 2,000 examples. They are as new to
the model as the 10,000 examples of the mark, so the test at the 5 % level should fail about 5 % of
the submissions. This takes about an hour.
"""

from __future__ import annotations

import dataclasses
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

from lra.api.trained import TrainedRun
from lra.board.marks import FRESH_EXAMPLES, Workplace
from lra.common.progress import progress
from lra.evaluate import OtherData, evaluate_on, seed_change
from lra.record.schema import SHIPPED_RESULTS
from lra.statistics import SIGNIFICANCE, decline_p_value, wilson_interval

SUBMISSIONS, SUBMITTED_EXAMPLES = 200, 2000
FIRST_SEED = 1_000_000
"""First seed of the data; each set of examples has one of its own."""


def measure_accuracy(run: TrainedRun, seed: int, examples: int) -> float:
    """Return the share of right answers to new examples, which are removed afterwards."""
    other = OtherData(length=None, changes=(seed_change(seed),), examples=examples)
    with tempfile.TemporaryDirectory() as folder:
        record = evaluate_on(dataclasses.replace(run, data_dir=Path(folder)), other)
    return (record.test_accuracy or 0.0) / 100


def count_failures(runs: Sequence[TrainedRun], count: int, sizes: tuple[int, int]) -> int:
    """Count the failures among submissions, which are of each run in turn.

    Args:
        sizes: examples of the submitted test set, and of the mark.
    """
    failed = 0
    for number in progress("simulating", range(count), unit="submissions"):
        run, seed = runs[number % len(runs)], FIRST_SEED + 2 * number
        first, second = (measure_accuracy(run, seed + i, size) for i, size in enumerate(sizes))
        failed += decline_p_value(first, sizes[0], second, sizes[1]) < SIGNIFICANCE
    return failed


if __name__ == "__main__":
    folder, cpu = SHIPPED_RESULTS, torch.device("cpu")
    place = Workplace(folder=folder, data_dir=folder, results_dir=folder, device=cpu, number=None)
    runs = [r for r in place.runs() if r.weights.is_file() and r.record.task == "listops"]
    if not runs:
        sys.exit(f"{folder / 'weights'} has no weights of models of ListOps")
    failed = count_failures(runs, SUBMISSIONS, (SUBMITTED_EXAMPLES, FRESH_EXAMPLES))
    low, high = wilson_interval(failed / SUBMISSIONS, SUBMISSIONS)
    print(f"{failed} of {SUBMISSIONS} submissions fail (95 % interval {low:.1f} to {high:.1f} %)")
