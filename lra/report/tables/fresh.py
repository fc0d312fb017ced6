"""The accuracies on new examples, by which maintainers give the mark *fresh*."""

import statistics

from lra.report.data import Data
from lra.report.scores import group_by
from lra.report.tables.table import Table, text_column
from lra.runtime.tables import rounded


def fresh_tables(data: Data) -> list[Table]:
    """Tabulate accuracies on the test set and on new examples; no table without any."""
    runs = [run for run in data.records if "fresh" in run.marks]
    rows: list[tuple[str, ...]] = []
    for (task, name), same in sorted(group_by(runs, lambda r: (r.task, data.names.of(r))).items()):
        first = round(statistics.mean(run.test_accuracy or 0.0 for run in same), 2)
        second = round(statistics.mean(run.marks["fresh"].fresh[run.name] for run in same), 2)
        numbers = rounded(first, 2), rounded(second, 2), rounded(second - first, 2, "+")
        rows.append((name, task, *numbers))
    headings = ("mixer", "task", "test set", "new examples", "difference")
    columns = [text_column(*pair) for pair in zip(headings, zip(*rows, strict=True), strict=False)]
    caption = "Accuracy of the same weights in percent, the mean over seeds."
    return [Table("fresh", "Test set and new examples", caption, columns)] if rows else []
