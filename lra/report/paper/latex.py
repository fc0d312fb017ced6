"""Text for LaTeX: escaped, and how wide Computer Modern will set it."""

from __future__ import annotations

import functools
import re
import string
from pathlib import Path
from typing import Any

POINTS = {"normalsize": 10, "small": 9, "footnotesize": 8, "scriptsize": 7, "tiny": 5}
"""Sizes of fonts of `article` at 10 points, by the commands that choose them."""
_WIDENING = {10: 1.0, 9: 1.028, 8: 1.063, 7: 1.139, 6: 1.223, 5: 1.362}
"""Width of a digit in ems over that at 10 points: smaller fonts are cut wider (cmr9 to cmr5)."""
_BOLD = 1.15
"""Width of a digit in bold (cmbx10) over that of cmr10."""
_MEASURED = string.ascii_letters + string.digits + ".,:;()[]=+-/% "
"""Characters that stand at their own places in cmr10; others count as an m."""

_ESCAPES = str.maketrans(
    {c: f"\\{c}" for c in "&%$#_{}"}
    | {
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "\\": r"\textbackslash{}",
        # LaTeX's usual encoding, OT1, has other characters in these places.
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': "''",
        "±": r"$\pm$",
    }
)
_KNOWN = "".join(c for c in map(chr, range(0x20, 0x100)) if c not in "«»ÐÞðþ")
"""Characters that pdfLaTeX has without further packages."""


def known_letters(text: str) -> str:
    """Write characters that pdfLaTeX has no letters for by their codes."""
    return "".join(c if c in _KNOWN else f"[U+{ord(c):04X}]" for c in text)


def escape(text: str) -> str:
    """Write text so that pdfLaTeX sets it as it stands, but for letters that it does not have."""
    return known_letters(text).translate(_ESCAPES)


def breakable(text: str) -> str:
    """Escape running text, and let lines end within its long words."""
    parts = re.split(r"(?<=[=_./,:-])(?=\w)", text)
    return r"\allowbreak ".join(map(escape, parts))


@functools.cache
def _font() -> Any:
    import matplotlib as mpl
    from matplotlib.ft2font import FT2Font

    font = FT2Font(str(Path(mpl.get_data_path(), "fonts", "ttf", "cmr10.ttf")))
    font.set_size(POINTS["normalsize"], 72)
    return font


@functools.cache
def _letter(letter: str) -> float:
    """Measure a character at 10 points, in points."""
    shown = letter if letter in _MEASURED else "m"
    return _font().load_char(ord(shown)).linearHoriAdvance / 2**16


def text_width(text: str, size: str, *, bold: bool = False) -> float:
    """Estimate the width of unescaped text in points; no kerning, so rather too wide.

    Args:
        text: what is set on one line.
        size: a key of POINTS.
        bold: whether it is in bold.
    """
    points = POINTS[size]
    natural = sum(_letter(letter) for letter in known_letters(text)) * points / POINTS["normalsize"]
    return natural * _WIDENING[points] * (_BOLD if bold else 1.0)
