"""Notes on the numbers of a table: how many seeds they are of, and what else holds for them."""

from __future__ import annotations

import statistics
import string
from collections.abc import Collection, Iterable

from lra.report.tables.table import Column, Entry


def letters(number: int) -> str:
    """Name a note by its number, from 0: a to z, then aa to az, and so on."""
    alphabet = string.ascii_lowercase
    high, low = divmod(number, len(alphabet))
    return f"{alphabet[high - 1] if high else ''}{alphabet[low]}"


def count_seeds(seeds: int) -> str:
    """Write a number of seeds."""
    return "1 seed" if seeds == 1 else f"{seeds} seeds"


def seed_counts(columns: Iterable[Column]) -> list[int]:
    """List how many seeds the numbers of some columns are of, for those that are of any."""
    return [entry.seeds for column in columns for entry in column.entries if entry.seeds]


def usual_seeds(counts: Collection[int]) -> int:
    """Return the count of seeds that most numbers have, of equals the largest; 0 for no counts."""
    return statistics.mode(sorted(counts, reverse=True)) if counts else 0


def describe_seeds(usual: int, counts: Collection[int]) -> str:
    """Write a sentence on how many seeds numbers are of; those with another count have a note.

    Args:
        usual: the count that needs no note.
        counts: the counts of all numbers.
    """
    if max(counts, default=1) == 1:
        return "Each number is from one seed."
    if len(set(counts)) == 1:
        return f"Each number is the mean ± standard deviation over {count_seeds(usual)}."
    if usual == 1:
        return "Numbers are from one seed or, where marked, means ± standard deviations over more."
    return f"Numbers are means ± standard deviations over {count_seeds(usual)} where not marked."


def notes_on(entry: Entry, usual: int) -> list[str]:
    """List the notes on an entry: its remarks, and its seeds where they are not the usual ones."""
    is_usual = entry.seeds in (0, usual)
    return [*entry.remarks, *([] if is_usual else [count_seeds(entry.seeds)])]
