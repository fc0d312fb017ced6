"""Published accuracies that were repeated in full, and whether they were met."""

import math
import statistics
from collections.abc import Sequence

from lra.record.run import RunRecord, choose_attempts
from lra.report.data import Data
from lra.report.names import run_anchor
from lra.report.published import PublishedRow, published_rows, repeated_row
from lra.report.scores import Entry
from lra.report.tables.table import Column, Table, text_column
from lra.runtime.tables import rounded
from lra.statistics import Z95
from lra.tasks.base import BENCHMARK

_CAPTION = (
    "Accuracy in percent of runs that made all steps with the published settings; ± is the "
    "standard deviation over seeds. A published number is met if it differs by no more than the "
    "tolerance: 1.96 times the root of the summed variances of both test sets and, with several "
    "seeds, of theirs. The published number counts as one run with the spread of ours. The last "
    "column compares our mean with the best trivial baseline on the same data, by 1.96 times the "
    "root of its variance."
)


def repeated_results(data: Data) -> list[tuple[PublishedRow, list[RunRecord]]]:
    """List the published results that finished runs repeat, with a run for each seed.

    Runs whose settings files differed are listed apart.
    """
    order = {row.method: number for number, row in enumerate(published_rows())}
    groups: dict[tuple[str, ...], tuple[PublishedRow, list[RunRecord]]] = {}
    for run in data.records:
        if run.status == "done" and (row := repeated_row(run)) is not None:
            key = row.method, run.task, run.config_hash, run.data.fingerprint
            groups.setdefault(key, (row, []))[1].append(run)
    keys = sorted(groups, key=lambda key: (BENCHMARK.index(key[1]), order[key[0]], key))
    return [(row, choose_attempts(runs)) for row, runs in map(groups.__getitem__, keys)]


def repeated_table(data: Data) -> Table:
    """Compare the published accuracies that were repeated in full with ours."""
    results = repeated_results(data)
    comparisons = [compare(row, runs) for row, runs in results]
    columns = [
        text_column("published row", [row.method for row, _ in results]),
        text_column("task", [_describe_data(row, runs[0]) for row, runs in results]),
        Column("published", [Entry(row.printed[runs[0].task]) for row, runs in results]),
    ]
    for name in ("ours", "difference", "tolerance", "seeds", "verdict", "best trivial baseline"):
        columns.append(Column(name, [entries[name] for entries in comparisons]))
    return Table("repeated", "Published numbers, repeated in full", _CAPTION, columns)


def compare(row: PublishedRow, runs: Sequence[RunRecord]) -> dict[str, Entry]:
    """Compare a published row with runs that differ in seed alone, on their task, by column."""
    is_validation = row.split == "val"
    values = [run.val_accuracy if is_validation else run.test_accuracy for run in runs]
    numbers = [value for value in values if value is not None]
    examples = runs[0].data.sizes["val"] if is_validation else runs[0].result.test_examples
    printed = row.values[runs[0].task]
    assert numbers and examples and printed is not None
    mean = statistics.mean(numbers)
    deviation = statistics.stdev(numbers) if len(numbers) > 1 else None
    over_seeds = 0.0 if deviation is None else deviation**2
    ours = _variance(mean, examples) + over_seeds / len(numbers)
    tolerance = Z95 * math.sqrt(ours + _variance(printed, examples) + over_seeds)
    difference = mean - printed
    anchors = [run_anchor(run) for run in runs]
    spread = "" if deviation is None else f" ± {rounded(deviation, 2)}"
    entries = {
        "ours": Entry(f"{rounded(mean, 2)}{spread}", mean, deviation=deviation, anchors=anchors),
        "difference": Entry(rounded(difference, 2, "+"), difference),
        "tolerance": Entry(rounded(tolerance, 2), tolerance),
        "seeds": Entry(f"{len(runs)} (seed {', '.join(str(run.seed) for run in runs)})"),
        "verdict": Entry("met" if abs(difference) <= tolerance else "not met"),
        "best trivial baseline": Entry(),
    }
    if not is_validation and (best := runs[0].result.best_baseline) is not None:
        name, baseline = best
        margin = Z95 * math.sqrt(ours)
        word = "above" if mean > baseline + margin else "not above"
        word = "below" if mean < baseline - margin else word
        entries["best trivial baseline"] = Entry(f"{word} {rounded(baseline, 2)} ({name})")
    return entries


def _variance(percent: float, examples: int) -> float:
    """Return the variance of an accuracy in percent that so many test examples give."""
    return percent * (100.0 - percent) / examples


def _describe_data(row: PublishedRow, run: RunRecord) -> str:
    """Name the task, the source of its data, and a split other than the test set."""
    split = ", validation" if row.split == "val" else ""
    return f"{run.task} ({run.data.source}{split})"
