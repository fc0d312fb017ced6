"""The part of the README that is made from records."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from lra.errors import UserError
from lra.files import write_atomically
from lra.report.accuracy import accuracy_table
from lra.report.boards import boards
from lra.report.bubbles import bubble_pictures
from lra.report.build import DEFAULT_BASELINE
from lra.report.drawing import Looks, Picture
from lra.report.results import Results
from lra.report.speed import memory_table, speed_boards, speed_table

START, END = "<!-- made by report.py from results/ -->", "<!-- end -->"


@dataclass(frozen=True)
class Block:
    """What stands between the two markers, and the figure that it shows."""

    text: str
    figure: Path | None
    """Its name tells what numbers it was drawn from, so that a stale one is noticed."""
    picture: Picture | None


def make_block(results: Results, readme: Path) -> Block:
    """Write the main accuracy tables and the speeds, and choose a bubble plot."""
    found = [board for board in boards(results.records) if board.is_main]
    tables = [accuracy_table(board, "accuracy") for board in found]
    memory = ""
    for board in speed_boards(results.records):
        tables.append(speed_table(board, DEFAULT_BASELINE, "speed"))
        memory += memory_table(board, DEFAULT_BASELINE, "memory").markdown()
    parts = [f"**{table.title}.** {table.caption}\n\n{table.markdown()}" for table in tables]
    looks = Looks(method for board in found for method in board.rows)
    pictures = [p for b in found for p in bubble_pictures(b, DEFAULT_BASELINE, looks, "readme")]
    if not pictures:
        return Block("\n".join(parts) or "No runs yet.\n", None, None)
    picture = pictures[0]
    digest = hashlib.sha256("".join([*parts, memory]).encode()).hexdigest()[:8]
    figure = results.folder / f"bubbles-{digest}.svg"
    link = Path(os.path.relpath(figure.resolve(), readme.resolve().parent)).as_posix()
    parts.append(f"![{picture.title}]({link})\n\n**{picture.title}.** {picture.caption}\n")
    return Block("\n".join(parts), figure, picture)


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
    _, text, _ = split_readme(readme)
    block = make_block(results, readme)
    have, want = text.splitlines(), block.text.splitlines()
    for number, (old, new) in enumerate(zip(have, want, strict=False), start=1):
        if old != new:
            return [f"line {number} of the block is", old, "the records give", new]
    if len(have) != len(want):
        return [f"the block has {len(have)} lines, the records give {len(want)}"]
    if block.figure is not None and not block.figure.is_file():
        return [f"there is no figure {block.figure}"]
    return []


def write_readme(results: Results, readme: Path) -> None:
    """Put the block in place, and its figure for that of earlier records."""
    before, _, after = split_readme(readme)
    block = make_block(results, readme)
    if block.figure is not None and block.picture is not None:
        write_atomically(block.figure, block.picture.files()[f"{block.picture.slug}.svg"])
    write_atomically(readme, (before + block.text + after).encode())
    for old in results.folder.glob("bubbles-" + "[0-9a-f]" * 8 + ".svg"):
        if old != block.figure:
            old.unlink()
