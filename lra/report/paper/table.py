"""A table for a paper, which LaTeX measures and shrinks to its column."""

from __future__ import annotations

import math
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from lra.report.boards.cells import AT_CHANCE
from lra.report.boards.ranking import rounded
from lra.report.tables.latex import (
    EN_DASH,
    MARKS,
    breakable,
    escape,
    replace_unknown,
    tabular,
)
from lra.report.tables.notes import notes_on
from lra.report.tables.table import Column, Entry

_DAGGER = "$\\dagger$"
_SEPARATION = 4
"""Space on each side of a column, in points."""
_NARROW, _WIDE = " .,:;()[]'fijlrt", string.ascii_uppercase + "mw=+%&"
_NARROW_WIDTH, _WIDE_WIDTH, _OTHER_WIDTH, _SMALL_WIDTH = 3.7, 8.0, 5.3, 4.2
"""Generous widths of characters in points, at `small`; the last is at `scriptsize`."""
_SHRINKAGE = 6 / 7
"""The most that a table may shrink: `scriptsize` has 7 points, and letters need 6."""
_LABEL_WIDTH = 110
"""How wide labels may be in points before they go on in a further line, if room is scarce."""
_INDENT = 9
"""Width of a `quad`, by which further lines of a label are indented, in points."""


@dataclass(frozen=True)
class PaperEntry:
    """An entry of the table as it is printed."""

    number: str
    deviation: str
    """Standard deviation; empty if there is none."""
    symbols: Sequence[str]
    """Symbols of the notes on it, in LaTeX."""
    mark: str
    """BEST, SECOND or nothing."""

    @property
    def digits(self) -> int:
        """Digits before the decimal point; 0 if it is no number."""
        whole = self.number.partition(".")[0]
        return len(whole) if whole.isdigit() else 0

    @property
    def small_width(self) -> float:
        """A generous width of the deviation and the symbols, in points."""
        signs = 2 if self.deviation else 0
        return _SMALL_WIDTH * (len(self.deviation) + signs + len(self.symbols))

    def latex(self, digits: int) -> str:
        """Write the entry in LaTeX, with room for so many digits before the decimal point."""
        missing = digits - self.digits if self.digits else 0
        padding = f"\\phantom{{{'0' * missing}}}" if missing else ""
        deviation = f"\\,{{\\scriptsize$\\pm${self.deviation}}}" if self.deviation else ""
        symbols = f"\\textsuperscript{{\\scriptsize {''.join(self.symbols)}}}"
        text = MARKS[self.mark] % escape(self.number)
        return padding + text + deviation + (symbols if self.symbols else "")


@dataclass(frozen=True)
class PaperTable:
    """A table for a paper."""

    slug: str
    caption: str
    columns: Sequence[Column]
    """The first one names the rows."""
    groups: Mapping[str, int]
    """How many rows each group has, by its heading; an empty heading is not shown."""
    comments: Mapping[int, str]
    """Comments above rows in the file, unseen in print."""
    usual_seeds: int = 0
    """The number of seeds that the caption tells; other numbers are notes."""

    @cached_property
    def _symbols(self) -> dict[str, str]:
        """The symbol of each note: a dagger for chance level, letters for others by row."""
        rows = zip(*(column.entries for column in self.columns), strict=True)
        notes = {
            note: "" for row in rows for entry in row for note in notes_on(entry, self.usual_seeds)
        }
        others = [note for note in notes if note != AT_CHANCE]
        chance = {AT_CHANCE: _DAGGER} if AT_CHANCE in notes else {}
        return chance | dict(zip(others, string.ascii_letters, strict=False))

    @cached_property
    def _entries(self) -> list[list[PaperEntry]]:
        """The entries of each column but the first."""
        return [
            [
                PaperEntry(
                    _number(entry, column.digits),
                    "" if entry.deviation is None else rounded(entry.deviation, column.digits),
                    [self._symbols[note] for note in notes_on(entry, self.usual_seeds)],
                    column.marks.get(i, ""),
                )
                for i, entry in enumerate(column.entries)
            ]
            for column in self.columns[1:]
        ]

    def latex(self, width: float) -> str:
        """Write the table in LaTeX, for a column of so many points.

        It is one float or, where letters would be smaller than 6 points, several, each with some
        of the columns.
        """
        parts, label_room = self._split(width / _SHRINKAGE)
        lines = ["% Needs \\usepackage{booktabs,graphicx}. Made by `report.py --paper`."]
        for i, part in enumerate(parts):
            lines += [
                "\\begin{table}[tb]",
                "\\centering",
                "\\setlength{\\emergencystretch}{3em}\\setlength{\\belowcaptionskip}{4pt}",
                f"\\caption{{{self._caption(i)}}}",
                f"\\label{{tab:{self.slug}{f'-{i + 1}' if i else ''}}}",
                f"\\small\\setlength{{\\tabcolsep}}{{{_SEPARATION}pt}}",
                "% LaTeX measures the table, and shrinks it if it is wider than the column.",
                f"\\sbox0{{{self._tabular(part, label_room)}}}",
                "\\ifdim\\wd0>\\linewidth\\resizebox{\\linewidth}{!}{\\usebox0}\\else\\usebox0\\fi",
                "\\end{table}",
            ]
        return "\n".join(lines) + "\n"

    def _split(self, room: float) -> tuple[list[range], float]:
        """Choose the columns of each part, by index, and how wide labels may be in points.

        Args:
            room: how wide a part may be before it is shrunk, in points.
        """
        widths = [
            2 * _SEPARATION
            + max(
                _width(column.name),
                max(_width(entry.number) for entry in entries)
                + max(entry.small_width for entry in entries),
            )
            for column, entries in zip(self.columns[1:], self._entries, strict=True)
        ]
        parts, label_room = [], room
        for count in range(1, len(widths) + 1):
            step = math.ceil(len(widths) / count)
            starts = range(0, len(widths), step)
            parts = [range(start, min(start + step, len(widths))) for start in starts]
            left = room - max(sum(widths[j] for j in part) for part in parts)
            label_room = max(left, _LABEL_WIDTH)
            if max(_label_width(label, label_room) for label in self.columns[0].texts) <= left:
                break
        return parts, label_room

    def _caption(self, part: int) -> str:
        if part:
            return f"Further columns of Table~\\ref{{tab:{self.slug}}}."
        notes = [f"\\textsuperscript{{{s}}}{breakable(text)}" for text, s in self._symbols.items()]
        return breakable(self.caption) + (f" {'; '.join(notes)}." if notes else "")

    def _tabular(self, part: range, label_room: float) -> str:
        digits = {j: max(entry.digits for entry in self._entries[j]) for j in part}
        labels, groups, end = self.columns[0].texts, [], 0
        for heading, count in self.groups.items():
            rows = []
            if heading:
                span = f"\\multicolumn{{{len(part) + 1}}}{{@{{}}l@{{}}}}"
                rows.append([f"{span}{{\\emph{{{escape(heading)}}}}}"])
            for i in range(end, end + count):
                label, *rest = map(escape, _wrap(labels[i], label_room))
                comment = f"% {self.comments[i]}\n" if i in self.comments else ""
                cells = [self._entries[j][i].latex(digits[j]) for j in part]
                rows += [[comment + label, *cells], *([f"\\quad {text}"] for text in rest)]
            groups.append(rows)
            end += count
        headings = [self.columns[0], *(self.columns[j + 1] for j in part)]
        names = [escape(column.name) for column in headings]
        return tabular(f"@{{}}{'l' * len(names)}@{{}}", names, groups)


def _number(entry: Entry, digits: int) -> str:
    """Write a number, or what stands in its place: a word or, where notes say why, a dash."""
    if entry.value is not None:
        return rounded(entry.value, digits)
    return EN_DASH if entry.text is None or entry.remarks else entry.text


def _wrap(label: str, width: float) -> list[str]:
    """Break a label into lines of so many points: at spaces, in long words behind a = too."""
    lines = [""]
    for word in re.findall(r"\s*\S+", replace_unknown(label)):
        for part in re.split("(?<==)", word) if _width(word) > width - _INDENT else [word]:
            if lines[-1] and _width(lines[-1] + part) > width - _INDENT * (len(lines) > 1):
                lines.append("")
            lines[-1] += part if lines[-1] else part.lstrip()
    return lines


def _label_width(label: str, room: float) -> float:
    first, *rest = map(_width, _wrap(label, room))
    return max([first, *(_INDENT + width for width in rest)])


def _width(text: str) -> float:
    """Return a generous width of a text at `small`, in points."""
    return sum(
        _NARROW_WIDTH if c in _NARROW else _WIDE_WIDTH if c in _WIDE else _OTHER_WIDTH
        for c in replace_unknown(text)
    )
