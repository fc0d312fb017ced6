"""Tables of published results, averages recomputed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from lra.report.boards.averages import AVERAGES, mean_over
from lra.report.published.rows import PublishedRow, published_perplexities
from lra.report.tables.accuracy import RANKS
from lra.report.tables.table import Column, Entry, Table, number_entry, text_column
from tasks.base import BENCHMARK


def published_table(rows: Sequence[PublishedRow]) -> Table:
    """Tabulate published results, their averages recomputed."""
    texts = {
        "printed average": [row.average_text for row in rows],
        "source": [row.source for row in rows],
        "note": [row.note or None for row in rows],
    }
    columns = [
        text_column("method", [row.method for row in rows]),
        *(_task_column(rows, task) for task in BENCHMARK),
        *(_average_column(rows, name) for name in AVERAGES),
        *(text_column(name, found) for name, found in texts.items()),
    ]
    return Table(
        slug="published",
        title="Published results",
        caption="Test accuracy in percent, as the source printed it for its own protocol. "
        "results/sources.yaml lists the sources by their keys. FAIL means that the "
        "source reports chance level, or that the model could not be trained. The averages over "
        "five and six tasks are computed from the row, if it has all of them. The printed average "
        "stands next to them, with the tasks that give it.",
        columns=columns,
        facts=[
            {"method": row.method, "task": task, "accuracy": text, "source": row.source}
            for row in rows
            for task, text in row.printed.items()
        ],
    )


def _task_column(rows: Sequence[PublishedRow], task: str) -> Column:
    entries = [Entry(row.printed[task] or None, row.values[task], is_ranked=True) for row in rows]
    return Column(task, entries)


def _average_column(rows: Sequence[PublishedRow], name: str) -> Column:
    """Recompute an average of published rows; a row with a hole has none."""
    means = [mean_over(AVERAGES[name], row.values) for row in rows]
    return Column(name, [number_entry(mean, is_ranked=True) for mean in means])


def suite_table(rows: Sequence[PublishedRow]) -> Table:
    """Tabulate the published rows whose method is a mixer of the suite or a variant of one."""
    return replace(
        published_table(rows).with_columns(["method", *BENCHMARK, "source"]),
        slug="published-of-the-suite",
        title="Published results of these methods",
        caption="Test accuracy in percent on the full tasks, as the source printed it for its own "
        "protocol. results/sources.yaml lists the sources by their keys. FAIL means that "
        "the source reports chance level, or that the model could not be trained. The methods are "
        "mixers of this suite or variants of them. The page of `python report.py` has all rows of "
        "results/published.csv.",
    )


def perplexity_table(tasks: Collection[str]) -> Table | None:
    """Tabulate published perplexities of tasks; None if there are none."""
    rows = published_perplexities(tasks)
    if not rows:
        return None
    of = " and ".join(dict.fromkeys(f"{row['corpus']} a {row['unit']}" for row in rows))
    return Table(
        slug="published-perplexities",
        title="Published perplexities",
        caption=f"Perplexity on {of}, as the source printed it. results/sources.yaml lists the "
        f"sources by their keys. These perplexities cannot be compared with bits per byte, or with "
        f"perplexities of bytes or words. {RANKS}",
        columns=[
            text_column("method", [row["method"] for row in rows]),
            _perplexity_column("validation", [row["valid"] for row in rows]),
            _perplexity_column("test", [row["test"] for row in rows]),
            text_column("million parameters", [row["parameters_millions"] or None for row in rows]),
            text_column("source", [row["source"] for row in rows]),
            text_column("note", [row["note"] or None for row in rows]),
        ],
        facts=rows,
    )


def _perplexity_column(name: str, printed: Sequence[str]) -> Column:
    entries = [Entry(text, float(text), is_ranked=True) for text in printed]
    return Column(name, entries, lowest_is_best=True)
