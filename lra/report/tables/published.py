"""Tables of published results, averages recomputed."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from lra.report.boards.averages import FIVE, mean_over
from lra.report.boards.ranking import ranks
from lra.report.published.rows import PublishedRow, published_perplexities
from lra.report.tables.table import Table
from lra.runtime.console import MISSING
from tasks.base import BENCHMARK


def published_table(rows: Sequence[PublishedRow]) -> Table:
    """Tabulate published results, their averages recomputed."""
    lines: list[list[str]] = []
    columns: list[list[float | None]] = []
    for row in rows:
        averages = [mean_over(tasks, row.values) for tasks in (FIVE, BENCHMARK)]
        texts = [row.printed[task] or MISSING for task in BENCHMARK]
        texts += [MISSING if value is None else f"{value:.2f}" for value in averages]
        lines.append([row.method, *texts, row.average_text, row.source, row.note or MISSING])
        columns.append([*row.values.values(), *averages])
    marks = {
        (i, j): mark
        for j, values in enumerate(zip(*columns, strict=True), start=1)
        for i, mark in ranks(values).items()
    }
    return Table(
        slug="published",
        title="Published results",
        caption="Test accuracy in percent as printed by the source (keys: results/sources.yaml), "
        "on its own hardware and protocol. FAIL: at chance. The two averages are recomputed, and "
        "a row with a hole has none; beside them the printed one, with the rule that gives it.",
        columns=[
            "method",
            *BENCHMARK,
            "mean of 5",
            "mean of 6",
            "printed average",
            "source",
            "note",
        ],
        rows=lines,
        marks=marks,
        facts=[
            {"method": row.method, "task": task, "accuracy": text, "source": row.source}
            for row in rows
            for task, text in row.printed.items()
        ],
    )


def perplexity_table(tasks: Collection[str]) -> Table | None:
    """Tabulate published perplexities of tasks; None if there are none."""
    rows = published_perplexities(tasks)
    if not rows:
        return None
    marks = {
        (i, j): mark
        for j, column in enumerate(("valid", "test"), start=1)
        for i, mark in ranks([float(row[column]) for row in rows], lowest_is_best=True).items()
    }
    of = " and ".join(dict.fromkeys(f"{row['corpus']} a {row['unit']}" for row in rows))
    return Table(
        slug="published-perplexities",
        title="Published perplexities",
        caption=f"Perplexity on {of}, as printed by the source (keys: results/sources.yaml), on "
        f"its own hardware. It compares neither with bits a byte nor with perplexities of bytes or "
        f"words. The best of a column in bold, the second underlined.",
        columns=["method", "validation", "test", "million parameters", "source", "note"],
        rows=[
            [row[name] or MISSING for name in
             ("method", "valid", "test", "parameters_millions", "source", "note")]
            for row in rows
        ],
        marks=marks,
        facts=rows,
    )  # fmt: skip
