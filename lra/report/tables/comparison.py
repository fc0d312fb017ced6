"""Two mixers on the same test examples, as text for the terminal."""

from __future__ import annotations

from lra.report.boards.comparison import RESAMPLES, SIGNIFICANCE, ComparedRows, Comparisons
from lra.report.tables.table import Table, text_columns
from lra.report.tables.terminal import fit_table, wrap

_NOISE = (
    "A difference is within noise if its 95 % interval includes 0 or if p is above "
    f"{SIGNIFICANCE:g}."
)
_ONE_SEED = (
    f"The 95 % interval of one seed is from {RESAMPLES:,} bootstrap resamples of the test "
    "examples, and p is from McNemar's exact test. Neither covers the spread over seeds: the "
    "verdict is about this pair of runs."
)
_SEVERAL_SEEDS = (
    "The 95 % interval of several seeds covers both the test examples and the spread over seeds: "
    "it is a t-interval whose variance adds that of examples and that of seeds (two-way random "
    "effects, Satterthwaite's degrees of freedom), and p is from the same t-test."
)


def describe_comparisons(made: Comparisons) -> str:
    """Write the comparisons for the terminal: a table for each board, and what was left out."""
    groups: dict[str, list[ComparedRows]] = {}
    for row in made.rows:
        groups.setdefault(f"{row.first} less {row.second}. {row.board.name}", []).append(row)
    parts: list[str] = []
    for name, rows in groups.items():
        names = ["task", "points", "95 % interval", "seeds", "p", "verdict"]
        table = Table("compare", "", "", text_columns(names, [_texts(row) for row in rows]))
        fitted = fit_table(table, names)
        title = wrap(f"{name}: difference of test accuracy in percentage points")
        parts += [title, fitted.text, *fitted.legend]
    if made.left_out:
        parts.append("\n".join(["Not compared:", *(wrap(f"  {t}", "    ") for t in made.left_out)]))
    parts.append(wrap(f"{_NOISE} {_intervals(made)}"))
    return "\n\n".join(parts)


def _texts(row: ComparedRows) -> list[str]:
    found = row.found
    return [
        row.task,
        f"{found.difference:+.2f}",
        f"{found.low:+.2f} to {found.high:+.2f}",
        str(len(found.seeds)),
        f"{found.p_value:.2g}",
        row.verdict,
    ]


def _intervals(made: Comparisons) -> str:
    """Say how the intervals of these comparisons are computed."""
    counts = [len(row.found.seeds) for row in made.rows]
    return " ".join([_ONE_SEED] * (1 in counts) + [_SEVERAL_SEEDS] * (max(counts) > 1))
