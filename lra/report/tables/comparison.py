"""Two mixers on the same test examples: the table for the page, and sentences for the terminal."""

from __future__ import annotations

from dataclasses import replace

from lra.report.boards.comparison import RESAMPLES, SIGNIFICANCE, ComparedRows, Comparisons
from lra.report.boards.slugs import run_anchor
from lra.report.tables.table import Table, text_columns
from lra.report.tables.terminal import fit_table, wrap
from lra.runtime.console import MISSING

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


def comparison_table(made: Comparisons, slug: str) -> Table:
    """Tabulate the comparisons that were asked for."""
    names = ["difference", "board", "task", "points", "95 % interval", "verdict", "over seeds",
             "only first right", "only second right", "p"]  # fmt: skip
    columns = text_columns(names, [_texts(row) for row in made.rows])
    links = [run_anchor(row.board.rows[row.first][row.task].runs[0]) for row in made.rows]
    points = [
        replace(entry, link=link) for entry, link in zip(columns[3].entries, links, strict=True)
    ]
    columns[3] = replace(columns[3], entries=points)
    left_out = f" Not compared: {'; '.join(made.left_out)}." if made.left_out else ""
    return Table(
        slug=slug,
        title=_title(made),
        caption="Difference of test accuracy in percentage points, in the mean over the seeds that "
        f"both mixers have, on the same test examples. {_NOISE} {_intervals(made)} The column over "
        "seeds has the standard deviation of the difference. The next two columns count the "
        "examples that only one of the two gets right, summed over seeds."
        f"{left_out}",
        columns=columns,
        facts=[
            {
                "first": row.first,
                "second": row.second,
                "board": row.board.name,
                "task": row.task,
                **vars(row.found),
            }
            for row in made.rows
        ],
    )


def describe_comparisons(made: Comparisons) -> str:
    """Write the comparisons for the terminal: a table for each board, and what was left out."""
    groups: dict[str, list[ComparedRows]] = {}
    for row in made.rows:
        groups.setdefault(f"{row.first} less {row.second}. {row.board.name}", []).append(row)
    parts: list[str] = []
    for name, rows in groups.items():
        names = ["task", "points", "95 % interval", "seeds", "p", "verdict"]
        table = Table("compare", "", "", text_columns(names, [_short_texts(row) for row in rows]))
        fitted = fit_table(table, names)
        title = wrap(f"{name}: difference of test accuracy in percentage points")
        parts += [title, fitted.text, *fitted.legend]
    if made.left_out:
        parts.append("\n".join(["Not compared:", *(wrap(f"  {t}", "    ") for t in made.left_out)]))
    parts.append(wrap(f"{_NOISE} {_intervals(made)}"))
    return "\n\n".join(parts)


def _short_texts(row: ComparedRows) -> list[str]:
    _, _, task, points, interval, verdict, _, _, _, p_value = _texts(row)
    return [task, points, interval, str(len(row.found.seeds)), p_value, verdict]


def _title(made: Comparisons) -> str:
    return f"{made.given[0]} against {', '.join(made.given[1:])}"


def _intervals(made: Comparisons) -> str:
    """Say how the intervals of these comparisons are computed."""
    counts = [len(row.found.seeds) for row in made.rows]
    return " ".join([_ONE_SEED] * (1 in counts) + [_SEVERAL_SEEDS] * (max(counts) > 1))


def _texts(row: ComparedRows) -> list[str]:
    found = row.found
    deviation = MISSING if found.seed_deviation is None else f"± {found.seed_deviation:.2f}"
    return [
        f"{row.first} less {row.second}",
        row.board.name,
        row.task,
        f"{found.difference:+.2f}",
        f"{found.low:+.2f} to {found.high:+.2f}",
        row.verdict,
        f"{deviation} (n={len(found.seeds)})",
        f"{found.only_first:,}",
        f"{found.only_second:,}",
        f"{found.p_value:.2g}",
    ]
