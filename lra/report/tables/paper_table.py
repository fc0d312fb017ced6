"""Tables of accuracies for a paper, in LaTeX that measures itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from lra.report.boards.averages import AVERAGES, mean_over
from lra.report.boards.board import Board
from lra.report.boards.cells import AT_CHANCE
from lra.report.boards.ranking import rounded
from lra.report.boards.slugs import slugify
from lra.report.published.rows import FAIL, PublishedRow
from lra.report.tables.accuracy import accuracy_columns, caption_of
from lra.report.tables.latex import EN_DASH, MARKS, breakable, escape, tabular
from lra.report.tables.notes import describe_seeds, letters, notes_on, seed_counts, usual_seeds
from lra.report.tables.table import Column, Entry, number_entry, text_column

_PUBLISHED_NOTE = (
    "as printed by the sources, on their own hardware and protocol, not ranked; "
    f"{FAIL}: at chance, or not trained."
)
_DAGGER = r"$\dagger$"
FIT = r"""% Needs \usepackage{booktabs,graphicx}. Made by `report.py --paper`.
\ifdefined\fitbox\else\newsavebox{\fitbox}\newsavebox{\fitcaption}\fi
% \fittable{name}{caption}{tabular}: LaTeX measures the table. Its smallest letters have 7 pt, so it
% may shrink to 6/7. If that is not enough, it spans both columns (of two) or is turned.
\providecommand{\fittable}[3]{\begingroup
  \sbox\fitbox{\small\setlength{\tabcolsep}{4pt}#3}%
  \ifdim.858\wd\fitbox>\columnwidth\def\fitstar{*}\else\def\fitstar{}\fi
  \begin{table\fitstar}[tb]\centering
  \sbox\fitcaption{\parbox{\linewidth}{\setlength{\emergencystretch}{3em}#2}}%
  \usebox\fitcaption\par\vspace{6pt}%
  \ifdim.858\wd\fitbox>\linewidth
    \dimen0=\dimexpr\textheight-\ht\fitcaption-\dp\fitcaption-36pt\relax
    \sbox\fitbox{\rotatebox{90}{\usebox\fitbox}}\dimen2=\wd\fitbox
    \ifdim.858\ht\fitbox>\dimen0 \dimen2=\maxdimen\fi
    \ifdim\ht\fitbox>\dimen0 \sbox\fitbox{\resizebox{!}{\dimen0}{\usebox\fitbox}}\fi
    \ifdim\dimen2>1.165\linewidth
      \PackageWarning{report.py --paper}{#1: letters are smaller than 6 pt.\MessageBreak
        Choose fewer rows or columns with --rows and --columns}\fi
  \fi
  \ifdim\wd\fitbox>\linewidth\resizebox{\linewidth}{!}{\usebox\fitbox}\else\usebox\fitbox\fi
  \end{table\fitstar}\endgroup}
"""
"""What stands at the top of each table's file, so that a paper can use one table alone."""


@dataclass(frozen=True)
class PaperTable:
    """A table for a paper."""

    slug: str
    """The name of its file."""
    latex: str


def tabulate_board(
    board: Board,
    names: Sequence[str],
    precision: int,
    baselines: Mapping[str, Mapping[str, float]],
    published: Sequence[PublishedRow],
) -> PaperTable:
    """Tabulate a board's accuracies.

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
    by_name = {column.name: column for column in accuracy_columns(board, trivial)}
    rows = [*board.rows, *trivial]
    columns = [by_name.get(name, text_column(name, [None] * len(rows))) for name in names]
    seeds = seed_counts(columns)
    usual = usual_seeds(seeds)
    conditions = {task: text for task, text in board.conditions.items() if task in names}
    caption = caption_of(replace(board, conditions=conditions), describe_seeds(usual, seeds))
    if published:
        caption += f" Published: {_PUBLISHED_NOTE}"
    return _write_table(
        f"accuracy-{slugify(board.preset)}-{slugify(board.protocol)}",
        f"{board.name}. {caption}",
        text_column("mixer", [*rows, *(row.method for row in published)]),
        [
            replace(
                column,
                entries=[*column.entries, *_published_entries(published, column.name, precision)],
                digits=precision,
            )
            for column in columns
        ],
        groups={"": len(board.rows), "trivial baselines": len(trivial)},
        published=published,
        usual=usual,
    )


def tabulate_published(
    rows: Sequence[PublishedRow], names: Sequence[str], precision: int
) -> PaperTable:
    """Tabulate published results alone, for boards of presets that they do not compare with."""
    return _write_table(
        "published",
        f"Published test accuracy in percent on the full tasks, {_PUBLISHED_NOTE}",
        text_column("method", [row.method for row in rows]),
        [Column(name, _published_entries(rows, name, precision), precision) for name in names],
        groups={},
        published=rows,
        usual=0,
    )


def _published_entries(rows: Sequence[PublishedRow], name: str, precision: int) -> list[Entry]:
    """Write published results, with no more digits than the source prints; recompute averages."""
    if name in AVERAGES:
        return [number_entry(mean_over(AVERAGES[name], row.values)) for row in rows]
    entries = []
    for row in rows:
        text, value = row.printed.get(name) or None, row.values.get(name)
        if text is not None and value is not None:
            text = rounded(value, min(precision, len(text.partition(".")[2])))
        entries.append(Entry(text))
    return entries


def _write_table(
    slug: str,
    caption: str,
    labels: Column,
    columns: Sequence[Column],
    *,
    groups: Mapping[str, int],
    published: Sequence[PublishedRow],
    usual: int,
) -> PaperTable:
    """Write a table.

    Args:
        slug: its name.
        caption: its caption, without the notes on numbers.
        labels: the first column.
        columns: the other columns.
        groups: numbers of rows by the heading above them, before the published rows.
        published: the last rows; a comment in the file names the source of each.
        usual: the number of seeds in the caption; other numbers get a note.
    """
    symbols = _symbols(columns, usual)
    cells = zip(*(_write_cells(column, symbols, usual) for column in columns), strict=True)
    sources = [""] * (len(labels.entries) - len(published))
    sources += [f"% {row.source}\n" for row in published]
    rows = iter([
        [source + escape(label), *row]
        for source, label, row in zip(sources, labels.texts, cells, strict=True)
    ])  # fmt: skip
    blocks = []
    all_groups = {**groups, "published" if groups else "": len(published)}
    for heading, count in all_groups.items():
        title = f"\\multicolumn{{{len(columns) + 1}}}{{@{{}}l@{{}}}}{{\\emph{{{heading}}}}}"
        if count:
            blocks.append([*([[title]] if heading else []), *islice(rows, count)])
    headings = [escape(column.name) for column in (labels, *columns)]
    table = tabular(f"@{{}}{'l' * len(headings)}@{{}}", headings, blocks)
    notes = [f"\\textsuperscript{{{s}}}{breakable(text)}" for text, s in symbols.items()]
    text = breakable(caption) + (f" {'; '.join(notes)}." if notes else "")
    text = f"\\caption{{{text}}}\\label{{tab:{slug}}}"
    return PaperTable(slug, f"{FIT}\\fittable{{{slug}}}{{{text}}}{{%\n{table}}}\n")


def _symbols(columns: Sequence[Column], usual: int) -> dict[str, str]:
    """Give each note a symbol: a dagger for chance level, letters for the others, row by row."""
    rows = zip(*(column.entries for column in columns), strict=True)
    notes = dict.fromkeys(n for row in rows for entry in row for n in notes_on(entry, usual))
    others = [note for note in notes if note != AT_CHANCE]
    chance = {AT_CHANCE: _DAGGER} if AT_CHANCE in notes else {}
    return chance | {note: letters(number) for number, note in enumerate(others)}


def _write_cells(column: Column, symbols: Mapping[str, str], usual: int) -> list[str]:
    """Write the entries of a column, with digits of equal value below each other."""
    numbers = [_write_number(entry, column.digits) for entry in column.entries]
    digits = [len(whole) if (whole := n.partition(".")[0]).isdigit() else 0 for n in numbers]
    cells = []
    for i, (entry, number) in enumerate(zip(column.entries, numbers, strict=True)):
        missing = "0" * (max(digits) - digits[i]) if digits[i] else ""
        notes = notes_on(entry, usual)
        marks = ",".join(symbol for note, symbol in symbols.items() if note in notes)
        parts = [
            f"\\phantom{{{missing}}}" if missing else "",
            MARKS[column.marks.get(i, "")] % escape(number),
            "" if entry.deviation is None else
            f"\\,{{\\scriptsize$\\pm${rounded(entry.deviation, column.digits)}}}",
            f"\\textsuperscript{{\\scriptsize {marks}}}" if marks else "",
        ]  # fmt: skip
        cells.append("".join(parts))
    return cells


def _write_number(entry: Entry, digits: int) -> str:
    """Write a number; without one, its text or, where a note says why, a dash."""
    if entry.value is not None:
        return rounded(entry.value, digits)
    return EN_DASH if entry.text is None or entry.remarks else entry.text
