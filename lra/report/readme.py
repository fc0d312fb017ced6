"""The part of the README that is made from records."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from lra.errors import UserError
from lra.files import write_atomically
from lra.report.accuracy import accuracy_table
from lra.report.boards import Board, boards
from lra.report.bubbles import bubble_pictures
from lra.report.build import DEFAULT_BASELINE
from lra.report.drawing import Looks, Picture
from lra.report.results import Results
from lra.report.speed import speed_boards, speed_table

START, END = "<!-- made by report.py from results/ -->", "<!-- end -->"
FIGURE = "readme-bubbles.svg"
"""In the results folder."""


def _main_boards(results: Results) -> list[Board]:
    return [board for board in boards(results.records) if board.is_main]


def _bubbles(results: Results, found: Sequence[Board]) -> Picture | None:
    looks = Looks(method for board in found for method in board.rows)
    return next(
        (
            picture
            for board in found
            for picture in bubble_pictures(board, DEFAULT_BASELINE, looks, "readme")
        ),
        None,
    )


def readme_block(results: Results) -> str:
    """Write what stands between the two markers: the main accuracy tables, speeds, a figure."""
    found = _main_boards(results)
    parts = []
    tables = [accuracy_table(board, "accuracy") for board in found]
    tables += [
        speed_table(board, DEFAULT_BASELINE, "speed") for board in speed_boards(results.records)
    ]
    for table in tables:
        parts.append(f"**{table.title}.** {table.caption}\n\n{table.markdown()}")
    picture = _bubbles(results, found)
    if picture is not None:
        image = f"![{picture.title}]({results.folder.name}/{FIGURE})"
        parts.append(f"{image}\n\n**{picture.title}.** {picture.caption}\n")
    return "\n".join(parts) if parts else "No runs yet.\n"


def split_readme(readme: Path) -> tuple[str, str, str]:
    """Cut a README at its markers: what is before, between and after them.

    Raises: UserError if the markers are not there once each, in order.
    """
    text = readme.read_text(encoding="utf-8")
    found = re.fullmatch(
        rf"(.*{re.escape(START)}\n)(.*)({re.escape(END)}\n.*)", text, flags=re.DOTALL
    )
    if found is None or text.count(START) != 1:
        raise UserError(f"{readme}: expected one line {START} and one line {END} after it")
    return found[1], found[2], found[3]


def check_readme(results: Results, readme: Path) -> list[str]:
    """Return where the README's block first differs from the records; nothing if it agrees."""
    _, block, _ = split_readme(readme)
    have, want = block.splitlines(), readme_block(results).splitlines()
    for number, (old, new) in enumerate(zip(have, want, strict=False), start=1):
        if old != new:
            return [f"line {number} of the block is", old, "the records give", new]
    if len(have) != len(want):
        return [f"the block has {len(have)} lines, the records give {len(want)}"]
    return []


def write_readme(results: Results, readme: Path) -> None:
    """Put the block and its figure in place."""
    before, _, after = split_readme(readme)
    write_atomically(readme, (before + readme_block(results) + after).encode())
    picture = _bubbles(results, _main_boards(results))
    if picture is not None:
        write_atomically(results.folder / FIGURE, picture.files()[f"{picture.slug}.svg"])
