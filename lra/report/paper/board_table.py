"""A board's table for a paper: what is equal of all numbers is said once, in the caption."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lra.report.boards.averages import AVERAGES, mean_over
from lra.report.boards.board import Board
from lra.report.boards.ranking import rounded
from lra.report.boards.slugs import slugify
from lra.report.paper.choice import BASELINES, PUBLISHED
from lra.report.paper.table import PaperTable
from lra.report.published.rows import FAIL, PublishedRow
from lra.report.tables.accuracy import accuracy_columns, caption_of
from lra.report.tables.notes import describe_seeds, seed_counts, usual_seeds
from lra.report.tables.table import Column, Entry, number_entry, text_column

_AS_PRINTED = (
    "as printed by the sources, on their own hardware and protocol, not ranked; "
    f"{FAIL}: at chance, or not trained."
)


def tabulate_board(
    board: Board,
    names: Sequence[str],
    precision: int,
    baselines: Mapping[str, Mapping[str, float]],
    published: Sequence[PublishedRow],
) -> PaperTable:
    """Tabulate a board's accuracies for a paper.

    Args:
        board: a board with the rows to show.
        names: columns, tasks and keys of AVERAGES.
        precision: decimal digits.
        baselines: accuracies of trivial baselines in percent, by name and then by task.
        published: published results to show beneath.
    """
    trivial = {
        name: by_task for name, by_task in baselines.items() if not by_task.keys().isdisjoint(names)
    }
    own = {column.name: column for column in accuracy_columns(board, trivial)}
    rows = [*board.rows, *trivial]
    columns = [own.get(name, text_column(name, [None] * len(rows))) for name in names]
    seeds = seed_counts(columns)
    usual = usual_seeds(seeds)
    conditions = {task: text for task, text in board.conditions.items() if task in names}
    caption = caption_of(replace(board, conditions=conditions), describe_seeds(usual, seeds))
    groups = {"": board.rows, f"trivial {BASELINES}": trivial, PUBLISHED: published}
    return PaperTable(
        slug=f"accuracy-{slugify(board.preset)}-{slugify(board.protocol)}",
        caption=f"{board.name}. {caption}" + (f" Published: {_AS_PRINTED}" if published else ""),
        columns=[
            text_column("mixer", [*rows, *(row.method for row in published)]),
            *(
                replace(
                    column,
                    entries=[*column.entries, *_entries(published, column.name, precision)],
                    digits=precision,
                )
                for column in columns
            ),
        ],
        groups={heading: len(group) for heading, group in groups.items() if group},
        usual_seeds=usual,
        comments=_sources(published, len(rows)),
    )


def tabulate_published(
    rows: Sequence[PublishedRow], names: Sequence[str], precision: int
) -> PaperTable:
    """Tabulate published results apart, for boards of presets that they do not compare with."""
    return PaperTable(
        slug="published",
        caption=f"Published test accuracy in percent on the full tasks, {_AS_PRINTED}",
        columns=[
            text_column("method", [row.method for row in rows]),
            *(Column(name, _entries(rows, name, precision), precision) for name in names),
        ],
        groups={"": len(rows)},
        comments=_sources(rows, 0),
    )


def _sources(rows: Sequence[PublishedRow], start: int) -> dict[int, str]:
    return {i: row.source for i, row in enumerate(rows, start)}


def _entries(rows: Sequence[PublishedRow], name: str, precision: int) -> list[Entry]:
    """Write published results, with no more digits than the source prints.

    Args:
        rows: published rows.
        name: a task, or a key of AVERAGES, which are recomputed.
        precision: decimal digits.
    """
    if name in AVERAGES:
        return [number_entry(mean_over(AVERAGES[name], row.values)) for row in rows]
    entries = []
    for row in rows:
        text, value = row.printed.get(name) or None, row.values.get(name)
        if text is not None and value is not None:
            text = rounded(value, min(precision, len(text.partition(".")[2])))
        entries.append(Entry(text))
    return entries
