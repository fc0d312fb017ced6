"""Text and tabulars for LaTeX."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from lra.report.boards.ranking import BEST, SECOND

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
    return r"\allowbreak ".join(map(escape, parts))


def tabular(
    alignment: str, headings: Sequence[str], groups: Iterable[Sequence[Sequence[str]]]
) -> str:
    """Write rows of cells, each in LaTeX already, with a rule above each group of rows.

    Args:
        alignment: the columns as `tabular` takes them, such as "lrr".
        headings: a text for each column.
        groups: rows; a row may have fewer cells than there are columns.
    """
    lines = [f"\\begin{{tabular}}{{{alignment}}}", "\\toprule", _row(headings)]
    for rows in groups:
        lines += ["\\midrule", *map(_row, rows)]
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}"])


def _row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + " \\\\"
