"""Tables for a paper, in LaTeX that measures itself."""

import re
from collections.abc import Mapping

from lra.report.tables.table import Column, Table
from lra.report.tables.terminal import Notes, short_text
from lra.runtime.tables import rounded
from lra.statistics import BEST, TIED

FIT = r"""% Needs \usepackage{booktabs,graphicx}. Made by `report.py --paper`.
\ifdefined\fitbox\else\newsavebox{\fitbox}\fi
% \fittable{caption}{tabular}: LaTeX measures the table, which shrinks if it is too wide. If it
% would shrink by more than a seventh, it spans both columns of a page that has two.
\providecommand{\fittable}[2]{\begingroup
  \sbox\fitbox{\small\setlength{\tabcolsep}{4pt}#2}%
  \ifdim.858\wd\fitbox>\columnwidth\def\fitstar{*}\else\def\fitstar{}\fi
  \begin{table\fitstar}[tb]\centering\setlength{\emergencystretch}{3em}#1\par\vspace{6pt}%
  \ifdim\wd\fitbox>\linewidth\resizebox{\linewidth}{!}{\usebox\fitbox}\else\usebox\fitbox\fi
  \end{table\fitstar}\endgroup}
"""
"""What stands at the top of each table's file, so that a paper can use one table alone."""
MARKS = {BEST: r"\textbf{%s}", TIED: r"\underline{%s}", "": "%s"}
"""How a number is set, by its rank in the column."""
EN_DASH = "\N{EN DASH}"
_ESCAPES = {c: f"\\{c}" for c in "&%$#_{}"} | {
    # LaTeX's usual encoding, OT1, has other characters in the places of some of these.
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
_KNOWN = EN_DASH + "".join(
    c for c in map(chr, range(0x20, 0x100)) if c.isprintable() and c not in "«»ÐÞðþ"
)
"""Characters that pdfLaTeX has without further packages."""


def escape(text: str) -> str:
    """Write text so that pdfLaTeX shows it unchanged, and letters that it lacks by their codes."""
    known = (c if c in _KNOWN else f"[U+{ord(c):04X}]" for c in text)
    return "".join(_ESCAPES.get(c, c) for c in "".join(known))


def breakable(text: str) -> str:
    """Escape running text, and let lines end within its long words."""
    parts = re.split(r"(?<=[=_./,:-])(?=\w)", text)
    return r"\allowbreak ".join(map(escape, parts)).replace(r" \%", r"~\%")


def write_table(table: Table, groups: Mapping[str, int], comments: Mapping[str, str]) -> str:
    """Write a table with a rule above each group of rows, as `FIT` takes it.

    Args:
        table: the table. Its caption says of how many seeds most numbers are; others have a note.
        groups: numbers of rows by the heading above them; that of the first group is empty.
        comments: by name of a row, a comment before it, such as its source.
    """
    names, *columns = table.columns
    chances = {entry.chance: r"$\dagger$" for c in columns for entry in c.entries if entry.chance}
    notes = Notes(columns, chances)
    cells = [_write_cells(column, notes) for column in columns]
    rows = [
        (f"% {comments[name]}\n" if name in comments else "")
        + " & ".join([escape(name), *(column[i] for column in cells)])
        for i, name in enumerate(names.texts)
    ]
    heads = " & ".join(escape(column.name) for column in table.columns)
    width = len(table.columns)
    lines = [f"\\begin{{tabular}}{{@{{}}{'l' * width}@{{}}}}", "\\toprule", f"{heads} \\\\"]
    for heading, count in groups.items():
        title = f"\\multicolumn{{{width}}}{{@{{}}l@{{}}}}{{\\emph{{{heading}}}}}"
        group, rows = rows[:count], rows[count:]
        lines += ["\\midrule"] if group else []
        lines += [f"{row} \\\\" for row in ([title] if heading and group else []) + group]
    tabular = "\n".join([*lines, "\\bottomrule", "\\end{tabular}"])
    explained = [
        f"\\textsuperscript{{{symbol}}}{breakable(note)}" for note, symbol in notes.symbols.items()
    ]
    caption = breakable(f"{table.title}. {table.caption}")
    caption += f" {'; '.join(explained)}." if explained else ""
    return f"{FIT}\\fittable{{\\caption{{{caption}}}\\label{{tab:{table.slug}}}}}{{%\n{tabular}}}\n"


def _write_cells(column: Column, notes: Notes) -> list[str]:
    """Write the entries of a column, with digits of equal value below each other."""
    digits = column.digits
    numbers = [
        short_text(entry) or EN_DASH if entry.value is None else rounded(entry.value, digits)
        for entry in column.entries
    ]
    before = [len(whole) if (whole := n.partition(".")[0]).isdigit() else 0 for n in numbers]
    cells: list[str] = []
    for i, (entry, number) in enumerate(zip(column.entries, numbers, strict=True)):
        missing = "0" * (max(before) - before[i]) if before[i] else ""
        text = f"\\phantom{{{missing}}}" if missing else ""
        text += MARKS[column.marks.get(i, "")] % escape(number)
        if entry.deviation is not None:
            text += f"\\,{{\\scriptsize$\\pm${rounded(entry.deviation, digits)}}}"
        if marks := notes.marks(entry):
            text += f"\\textsuperscript{{\\scriptsize {','.join(marks)}}}"
        cells.append(text)
    return cells
