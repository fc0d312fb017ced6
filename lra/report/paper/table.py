"""A table for a paper: numbers, deviations and notes, in LaTeX that fits a column."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lra.report.boards.ranking import BEST, SECOND
from lra.report.paper.latex import POINTS, breakable, escape, known_letters, text_width

DAGGER = "†"
_SYMBOLS = {DAGGER: r"\dagger"}
_MARKS = {BEST: r"\textbf{%s}", SECOND: r"\underline{%s}", "": "%s"}
_DEVIATION = {"small": "scriptsize", "footnotesize": "scriptsize", "scriptsize": "tiny"}
"""Size of the font of deviations, by that of the table."""
_NOTE_EM = 0.55
"""Width of a raised symbol, in sizes of the table's font."""
_THIN_EM = 0.17
"""Width of the space before a deviation, in sizes of the table's font."""


@dataclass(frozen=True)
class Entry:
    """A number of the table, as text."""

    number: str
    deviation: str = ""
    """Standard deviation; empty if there is none."""
    notes: str = ""
    """Symbols of the notes on it, a character each."""
    mark: str = ""
    """BEST, SECOND or nothing."""


@dataclass(frozen=True)
class Line:
    """A row of the table."""

    label: str
    entries: Sequence[Entry]
    comment: str = ""
    """What stands behind it in the file, unseen in print."""


@dataclass(frozen=True)
class Arrangement:
    """How a table is set."""

    size: str
    """Command that chooses the font, a key of POINTS."""
    separation: int
    """Space on each side of a column, in points."""
    stacked: bool
    """Whether deviations stand below their numbers, not beside them."""
    letters: int
    """Most letters of a label's line."""


_LARGE = [("small", 6), ("small", 4), ("footnotesize", 4), ("footnotesize", 3)]
_SMALLEST = [("scriptsize", 3), ("scriptsize", 2)]
_LETTERS = (200, 44, 34, 26, 20, 16)
ARRANGEMENTS = [
    Arrangement(size, separation, stacked, letters)
    for sizes in (_LARGE, _SMALLEST)
    for stacked, letters, (size, separation) in itertools.product((False, True), _LETTERS, sizes)
]
"""Arrangements from the roomiest to the narrowest."""


@dataclass(frozen=True)
class PaperTable:
    """A table for a paper."""

    slug: str
    caption: str
    columns: Sequence[str]
    """Headings; the first is that of the labels."""
    groups: Mapping[str, Sequence[Line]]
    """Lines by the heading of their group; an empty heading is not shown."""
    notes: Mapping[str, str]
    """What each symbol stands for."""

    @property
    def lines(self) -> list[Line]:
        """The lines of all groups."""
        return [line for lines in self.groups.values() for line in lines]

    def width(self, arrangement: Arrangement) -> float:
        """Estimate how wide the table is when set so, in points."""
        size = arrangement.size
        parts = [_label(line.label, arrangement) for line in self.lines]
        widths = [
            max(
                text_width(self.columns[0], size),
                *(text_width(texts[0], size) for texts in parts),
                *(POINTS[size] + text_width(text, size) for texts in parts for text in texts[1:]),
            )
        ]
        for j, heading in enumerate(self.columns[1:]):
            entries = [line.entries[j] for line in self.lines]
            number = max(text_width(e.number, size, bold=e.mark == BEST) for e in entries)
            suffix = max(_suffix_width(e, arrangement) for e in entries)
            below = max(_deviation_width(e, size) for e in entries) if arrangement.stacked else 0.0
            widths.append(max(text_width(heading, size), max(number, below) + suffix))
        return sum(widths) + 2 * arrangement.separation * (len(widths) - 1)

    def fitting(self, width: float) -> Arrangement:
        """Choose the roomiest arrangement that is at most so many points wide, or the narrowest."""
        fits = (one for one in ARRANGEMENTS if self.width(one) <= width)
        return next(fits, min(ARRANGEMENTS, key=self.width))

    def latex(self, width: float) -> str:
        """Write the table in LaTeX, for a column of so many points."""
        chosen = self.fitting(width)
        headings = " & ".join(map(escape, self.columns))
        parts = [
            "% Needs \\usepackage{booktabs}. Made by `report.py --paper`: about "
            f"{self.width(chosen):.0f} pt wide, for a column of {width:g} pt.",
            "\\begin{table}[tb]",
            "\\centering",
            "\\setlength{\\emergencystretch}{3em}\\setlength{\\belowcaptionskip}{4pt}",
            f"\\caption{{{self._caption()}}}",
            f"\\label{{tab:{self.slug}}}",
            f"\\{chosen.size}\\setlength{{\\tabcolsep}}{{{chosen.separation}pt}}",
            f"\\begin{{tabular}}{{@{{}}l{'r' * (len(self.columns) - 1)}@{{}}}}",
            "\\toprule",
            f"{headings} \\\\",
        ]
        widest = self._widest_suffixes(chosen)
        for heading, lines in self.groups.items():
            parts.append("\\midrule")
            if heading:
                span = f"\\multicolumn{{{len(self.columns)}}}{{@{{}}l@{{}}}}"
                parts.append(f"{span}{{\\emph{{{escape(heading)}}}}} \\\\")
            parts += [text for line in lines for text in _rows(line, chosen, widest)]
        parts += ["\\bottomrule", "\\end{tabular}", "\\end{table}"]
        return "\n".join(parts) + "\n"

    def _caption(self) -> str:
        notes = [f"{_raised(symbol)}{breakable(text)}" for symbol, text in self.notes.items()]
        return breakable(self.caption) + (f" {'; '.join(notes)}." if notes else "")

    def _widest_suffixes(self, arrangement: Arrangement) -> list[str]:
        """Return, for each column, what stands behind its number where that is widest."""
        return [
            _suffix(
                max(
                    (line.entries[j] for line in self.lines),
                    key=lambda entry: _suffix_width(entry, arrangement),
                ),
                arrangement,
            )
            for j in range(len(self.columns) - 1)
        ]


def _label(text: str, arrangement: Arrangement) -> list[str]:
    return textwrap.wrap(known_letters(text), arrangement.letters) or [""]


def _raised(notes: str) -> str:
    symbols = "".join(_SYMBOLS.get(note, rf"\mathrm{{{note}}}") for note in notes)
    return f"$^{{{symbols}}}$" if notes else ""


def _deviation(entry: Entry, size: str) -> str:
    return f"{{\\{_DEVIATION[size]}$\\pm${entry.deviation}}}" if entry.deviation else ""


def _deviation_width(entry: Entry, size: str) -> float:
    return text_width(f"±{entry.deviation}", _DEVIATION[size]) if entry.deviation else 0.0


def _suffix(entry: Entry, arrangement: Arrangement) -> str:
    """Write what stands behind a number: its deviation and its notes."""
    beside = "" if arrangement.stacked else _deviation(entry, arrangement.size)
    return ("\\," + beside if beside else "") + _raised(entry.notes)


def _suffix_width(entry: Entry, arrangement: Arrangement) -> float:
    points = POINTS[arrangement.size]
    width = _NOTE_EM * points * len(entry.notes)
    if entry.deviation and not arrangement.stacked:
        width += _THIN_EM * points + _deviation_width(entry, arrangement.size)
    return width


def _rows(line: Line, arrangement: Arrangement, widest: Sequence[str]) -> list[str]:
    """Write a line of the table, on as many rows as its label and its deviations need."""
    labels = [escape(text) for text in _label(line.label, arrangement)]
    labels = [labels[0], *(f"\\quad {text}" for text in labels[1:])]
    numbers, below = [], []
    for entry, room in zip(line.entries, widest, strict=True):
        suffix = _suffix(entry, arrangement)
        # Behind each number of a column is the same room, so that their digits stand in line.
        if suffix != room:
            suffix = (f"\\rlap{{{suffix}}}" if suffix else "") + f"\\phantom{{{room}}}"
        numbers.append(_MARKS[entry.mark] % escape(entry.number) + suffix)
        deviation = _deviation(entry, arrangement.size)
        below.append(deviation + f"\\phantom{{{room}}}" * bool(deviation and room))
    cells = [numbers, *([below] if arrangement.stacked and any(below) else [])]
    rows = []
    for label, texts in itertools.zip_longest(labels, cells):
        rows.append(" & ".join([label or "", *(texts or [])]) + " \\\\")
    rows[0] += f" % {line.comment}" if line.comment else ""
    return rows
