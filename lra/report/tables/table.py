"""A table, and how it is written: Markdown, LaTeX, HTML, CSV."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lra.report.boards.ranking import BEST, SECOND
from lra.report.tables.markdown import escape
from lra.runtime.console import csv_table, markdown_table

_MARKDOWN = {BEST: "**{}**", SECOND: "<u>{}</u>"}
_LATEX = {BEST: "textbf:--rwrap;", SECOND: "underline:--rwrap;"}
_LATEX_ESCAPES = str.maketrans(
    {c: f"\\{c}" for c in "&%$#_{}"}
    | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"}
)
LATEX_PACKAGES = "% needs \\usepackage{booktabs}\n"


@dataclass(frozen=True)
class Table:
    """A table of text, with marks and links for some cells; the first column names the row."""

    slug: str
    """The table's name in files and links."""
    title: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    marks: Mapping[tuple[int, int], str] = field(default_factory=dict)
    """Marks, BEST or SECOND, by (row, column)."""
    links: Mapping[tuple[int, int], str] = field(default_factory=dict)
    """Anchors on the page of the runs that a number is made from, by (row, column)."""
    facts: Sequence[Mapping[str, object]] = ()
    """The unrounded numbers, for each a line of the CSV file by column."""

    def _frame(self) -> Any:
        import pandas as pd

        return pd.DataFrame([list(row) for row in self.rows], columns=list(self.columns), dtype=str)

    def markdown(self) -> str:
        """Write the table in Markdown, without title and caption."""
        rows = [list(map(escape, row)) for row in self.rows]
        for (i, j), mark in self.marks.items():
            rows[i][j] = _MARKDOWN[mark].format(rows[i][j])
        return markdown_table(list(map(escape, self.columns)), rows)

    def latex(self) -> str:
        """Write the table in LaTeX, which needs the package booktabs."""
        frame = self._frame()
        marks = frame.copy()
        marks[:] = ""
        for (i, j), mark in self.marks.items():
            marks.iloc[i, j] = _LATEX[mark]
        styler = frame.style.format(escape="latex").format_index(escape="latex", axis=1)
        text = styler.apply(lambda _: marks, axis=None).hide(axis="index")
        return LATEX_PACKAGES + text.to_latex(
            hrules=True,
            column_format="l" + "r" * (len(self.columns) - 1),
            caption=f"{self.title}. {self.caption}".translate(_LATEX_ESCAPES),
            label=f"tab:{self.slug}",
            position="t",
            position_float="centering",
        )

    def html(self) -> str:
        """Write the table in HTML; numbers link to their runs."""
        head = "".join(f"<th>{html.escape(column)}</th>" for column in self.columns)
        body = "\n".join(
            f"<tr>{''.join(self._td(i, j) for j in range(len(row)))}</tr>"
            for i, row in enumerate(self.rows)
        )
        return (
            f'<table class="sortable">\n<thead><tr>{head}</tr></thead>\n'
            f"<tbody>\n{body}\n</tbody>\n</table>"
        )

    def _td(self, i: int, j: int) -> str:
        text = html.escape(self.rows[i][j])
        if (i, j) in self.links:
            text = f'<a href="#{html.escape(self.links[i, j])}">{text}</a>'
        mark = f' class="{self.marks[i, j]}"' if (i, j) in self.marks else ""
        return f"<td{mark}>{text}</td>"

    def with_columns(self, names: Sequence[str]) -> Table:
        """Return the table of these columns, in this order."""
        places = [list(self.columns).index(name) for name in names]
        return dataclasses.replace(
            self,
            columns=list(names),
            rows=[[row[j] for j in places] for row in self.rows],
            marks={(i, places.index(j)): m for (i, j), m in self.marks.items() if j in places},
            links={(i, places.index(j)): a for (i, j), a in self.links.items() if j in places},
        )

    def csv(self) -> str:
        """Write the unrounded numbers as CSV, one number per line."""
        import pandas as pd

        return csv_table(pd.DataFrame(list(self.facts)))
