"""A table, and how it is written: Markdown, LaTeX, HTML, CSV."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

BEST, SECOND = "best", "second"
_MARKDOWN = {BEST: "**{}**", SECOND: "<u>{}</u>"}
_LATEX = {BEST: "textbf:--rwrap;", SECOND: "underline:--rwrap;"}
_LATEX_ESCAPES = str.maketrans(
    {c: f"\\{c}" for c in "&%$#_{}"}
    | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"}
)
LATEX_PACKAGES = "% needs \\usepackage{booktabs}\n"


@dataclass(frozen=True)
class Table:
    """Text by row and column, with marks and links; both of the shape of the text.

    The first column names the row.
    """

    slug: str
    """Its name in files and links."""
    title: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    marks: Mapping[tuple[int, int], str] = field(default_factory=dict)
    """best or second, by row and column."""
    links: Mapping[tuple[int, int], str] = field(default_factory=dict)
    """Where the number's runs are listed on the page, by row and column."""
    facts: Sequence[Mapping[str, object]] = ()
    """The numbers unrounded, a dict of columns per number."""

    def _frame(self) -> Any:
        import pandas as pd

        return pd.DataFrame([list(row) for row in self.rows], columns=list(self.columns), dtype=str)

    def markdown(self) -> str:
        """Write the table itself, the first column to the left."""
        frame = self._frame().map(lambda text: text.replace("|", "\\|").replace("<", "&lt;"))
        for (i, j), mark in self.marks.items():
            frame.iloc[i, j] = _MARKDOWN[mark].format(frame.iloc[i, j])
        return markdown_of(frame)

    def latex(self) -> str:
        """Write a table environment, for booktabs."""
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
        """Write a table element whose numbers link to their runs."""
        frame = self._frame().map(html.escape)
        classes = frame.copy()
        classes[:] = ""
        for (i, j), anchor in self.links.items():
            frame.iloc[i, j] = f'<a href="#{html.escape(anchor)}">{frame.iloc[i, j]}</a>'
        for (i, j), mark in self.marks.items():
            classes.iloc[i, j] = mark
        styler = frame.style.hide(axis="index").set_td_classes(classes).set_uuid(self.slug)
        styler = styler.format_index(escape="html", axis=1)
        return styler.set_table_attributes('class="sortable"').to_html(cell_ids=False)

    def csv(self) -> str:
        """Write the numbers unrounded, one a line."""
        import pandas as pd

        return pd.DataFrame(list(self.facts)).to_csv(index=False, lineterminator="\n")


def markdown_of(frame: Any) -> str:
    """Write a frame of text in Markdown, the first column to the left."""
    align = ["left", *["right"] * (frame.shape[1] - 1)]
    return frame.to_markdown(index=False, disable_numparse=True, colalign=align) + "\n"


def ranks(values: Sequence[float | None]) -> dict[int, str]:
    """Mark the highest of some numbers, as printed with two digits, and the second.

    All that are equal share a mark; with fewer than two numbers there is no best.
    """
    shown = {i: round(value, 2) for i, value in enumerate(values) if value is not None}
    if len(shown) < 2:  # noqa: PLR2004
        return {}
    order = sorted(set(shown.values()), reverse=True)
    names = dict(zip(order, (BEST, SECOND), strict=False))
    return {i: names[value] for i, value in shown.items() if value in names}
