"""Tables for a paper, in LaTeX that measures itself."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from lra.report.scores import AT_CHANCE, BEST, SECOND, rounded
from lra.report.tables.table import Column, Entry, Table
from lra.report.tables.terminal import letters, notes_on, seed_counts, usual_seeds

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
MARKS = {BEST: r"\textbf{%s}", SECOND: r"\underline{%s}", "": "%s"}
"""How a number is set, by its rank in the column."""
EN_DASH = "\N{EN DASH}"
_ESCAPES = (
    {c: f"\\{c}" for c in "&%$#_{}"}
    # After the end of a row these two would be arguments of LaTeX's `\\`.
    | {c: f"{{{c}}}" for c in "[*"}
    # LaTeX's usual encoding, OT1, has other characters in the places of the last four.
    | {
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "\\": r"\textbackslash{}",
        "±": r"$\pm$",
        EN_DASH: "--",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': r"\texttt{\char34}",
    }
)
_SPECIAL = re.compile(rf"[{re.escape(''.join(_ESCAPES))}]|([-'`,])(?=\1)|[?!](?=`)")
"""Characters to escape, and those that LaTeX joins with the next one, as -- to a dash."""
_KNOWN = EN_DASH + "".join(
    c for c in map(chr, range(0x20, 0x100)) if c.isprintable() and c not in "«»ÐÞðþ"
)
"""Characters that pdfLaTeX has without further packages."""


def replace_unknown(text: str) -> str:
    """Write characters that pdfLaTeX has no letters for by their codes."""
    return "".join(c if c in _KNOWN else f"[U+{ord(c):04X}]" for c in text)


def escape(text: str) -> str:
    """Write text so that pdfLaTeX sets it as it stands, but for letters that it does not have."""
    return _SPECIAL.sub(
        lambda found: _ESCAPES.get(found[0], f"{found[0]}{{}}"), replace_unknown(text)
    )


def breakable(text: str) -> str:
    """Escape running text, and let lines end within its long words."""
    parts = re.split(r"(?<=[=_./,:-])(?=\w)", text)
    return r"\allowbreak ".join(map(escape, parts)).replace(r" \%", r"~\%")


def write_table(
    table: Table, groups: Mapping[str, int], comments: Mapping[str, str], digits: int
) -> str:
    """Write a table, with a rule above each group of rows, as `FIT` takes it.

    Args:
        table: the table. Its caption says of how many seeds most numbers are; others have a note.
        groups: numbers of rows by the heading above them; that of the first group is empty.
        comments: by name of a row, what a comment before it says, such as its source.
        digits: decimals of numbers.
    """
    names, *columns = table.columns
    usual = usual_seeds(seed_counts(columns))
    symbols = _symbols(columns, usual)
    cells = [_write_cells(column, symbols, usual, digits) for column in columns]
    rows = [
        (f"% {comments[name]}\n" if name in comments else "")
        + " & ".join([escape(name), *(column[i] for column in cells)])
        for i, name in enumerate(names.texts)
    ]
    lines = [
        f"\\begin{{tabular}}{{@{{}}{'l' * len(table.columns)}@{{}}}}", "\\toprule",
        " & ".join(escape(column.name) for column in table.columns) + " \\\\",
    ]  # fmt: skip
    start = 0
    for heading, count in groups.items():
        if count:
            title = f"\\multicolumn{{{len(table.columns)}}}{{@{{}}l@{{}}}}{{\\emph{{{heading}}}}}"
            group = [*([title] if heading else []), *rows[start : start + count]]
            lines += ["\\midrule", *(f"{row} \\\\" for row in group)]
            start += count
    tabular = "\n".join([*lines, "\\bottomrule", "\\end{tabular}"])
    notes = [f"\\textsuperscript{{{mark}}}{breakable(text)}" for text, mark in symbols.items()]
    caption = breakable(f"{table.title}. {table.caption}") + (
        f" {'; '.join(notes)}." if notes else ""
    )
    caption = f"\\caption{{{caption}}}\\label{{tab:{table.slug}}}"
    return f"{FIT}\\fittable{{{table.slug}}}{{{caption}}}{{%\n{tabular}}}\n"


def _symbols(columns: Sequence[Column], usual: int) -> dict[str, str]:
    """Give each note a symbol: a dagger for chance level, letters for the others, row by row."""
    rows = zip(*(column.entries for column in columns), strict=True)
    notes = dict.fromkeys(n for row in rows for entry in row for n in notes_on(entry, usual))
    others = [note for note in notes if note != AT_CHANCE]
    chance = {AT_CHANCE: _DAGGER} if AT_CHANCE in notes else {}
    return chance | {note: letters(number) for number, note in enumerate(others)}


def _write_cells(column: Column, symbols: Mapping[str, str], usual: int, digits: int) -> list[str]:
    """Write the entries of a column, with digits of equal value below each other."""
    numbers = [_write_number(entry, digits) for entry in column.entries]
    before = [len(whole) if (whole := n.partition(".")[0]).isdigit() else 0 for n in numbers]
    marks = column.marks
    cells: list[str] = []
    for i, (entry, number) in enumerate(zip(column.entries, numbers, strict=True)):
        missing = "0" * (max(before) - before[i]) if before[i] else ""
        notes = notes_on(entry, usual)
        found = ",".join(symbol for note, symbol in symbols.items() if note in notes)
        cells.append("".join([
            f"\\phantom{{{missing}}}" if missing else "",
            MARKS[marks.get(i, "")] % escape(number),
            "" if entry.deviation is None else
            f"\\,{{\\scriptsize$\\pm${rounded(entry.deviation, digits)}}}",
            f"\\textsuperscript{{\\scriptsize {found}}}" if found else "",
        ]))  # fmt: skip
    return cells


def _write_number(entry: Entry, digits: int) -> str:
    """Write a number; without one, its text or, where a note says why, a dash."""
    if entry.value is not None:
        return rounded(entry.value, digits)
    return EN_DASH if entry.text is None or entry.remarks else entry.text
