"""The part of the README that is made from records."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lra.report.accuracy import accuracy_table
from lra.report.benchmarks import against_reference, bench_boards
from lra.report.boards import Board, boards
from lra.report.bubbles import bubbles_by_device
from lra.report.build import DEFAULT_BASELINE
from lra.report.drawing import Looks, Picture
from lra.report.out_of_distribution import transfer_pictures, transfer_table, tried_elsewhere
from lra.report.results import Results
from lra.report.scaling import scaling_pictures
from lra.report.speed import SpeedBoard, memory_table, speed_boards, speed_table
from lra.runtime.errors import UserError
from lra.runtime.files import write_atomically

START, END = "<!-- made by report.py from results/ -->", "<!-- end -->"

_FIGURES = ("bubbles", "elsewhere", "lengths")
"""Kinds of pictures that are shown."""


@dataclass(frozen=True)
class Block:
    """What stands between the two markers, and the figures that it shows."""

    text: str
    figures: Mapping[Path, Picture]
    """Their names tell what numbers they were drawn from, so that a stale one is noticed."""


def make_block(results: Results, readme: Path) -> Block:
    """Write the main accuracy tables and the speeds, and choose plots."""
    found = [board for board in boards(results.records) if board.is_main]
    tables = [accuracy_table(board, "accuracy") for board in found]
    elsewhere = [tried for board in found for tried in tried_elsewhere(results, board)]
    tables += [transfer_table(tried, "r") for tried in elsewhere]
    memory = ""
    for board in speed_boards(results.records):
        tables.append(speed_table(board, DEFAULT_BASELINE, "speed"))
        memory += memory_table(board, DEFAULT_BASELINE, "memory").markdown()
    compared = against_reference(results.bench, "against-reference")
    tables += [compared] if compared else []
    parts = [f"**{table.title}.** {table.caption}\n\n{table.markdown()}" for table in tables]
    measured = bench_boards(results.bench)
    looks = Looks(method for board in [*found, *measured] for method in board.rows)
    digest = hashlib.sha256("".join([*parts, memory, repr(measured)]).encode()).hexdigest()[:8]
    figures: dict[Path, Picture] = {}
    choices = (
        _bubbles(found, looks),
        [p for tried in elsewhere for p in transfer_pictures(tried, looks, "r")][:1],
        _over_lengths(measured, looks)[:1],
    )
    for name, pictures in zip(_FIGURES, choices, strict=True):
        for number, picture in enumerate(pictures, start=1):
            figure = results.folder / f"{name}-{number}-{digest}.svg"
            figures[figure] = picture
            link = Path(os.path.relpath(figure.resolve(), readme.resolve().parent)).as_posix()
            parts.append(f"![{picture.title}]({link})\n\n**{picture.title}.** {picture.caption}\n")
    return Block("\n".join(parts) or "No runs yet.\n", figures)


def _bubbles(found: Sequence[Board], looks: Looks) -> list[Picture]:
    """Choose the first bubble plot of each device, of the first board that has any."""
    for board in found:
        by_device = bubbles_by_device(board, DEFAULT_BASELINE, looks, "r")
        if any(by_device.values()):
            return [pictures[0] for pictures in by_device.values() if pictures]
    return []


def _over_lengths(measured: Sequence[SpeedBoard], looks: Looks) -> list[Picture]:
    """Draw the board of mixing alone that reaches over most lengths."""
    mixing = [b for b in measured if any(place.task == "mixing" for place in b.places)]
    mixing.sort(key=lambda board: -len(board.places))
    return [picture for board in mixing[:1] for picture in scaling_pictures(board, looks, "r")]


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
    missing = [figure for figure in block.figures if not figure.is_file()]
    return [f"there is no figure {figure}" for figure in missing]


def write_readme(results: Results, readme: Path) -> None:
    """Put the block in place, and its figures for those of earlier records."""
    before, _, after = split_readme(readme)
    block = make_block(results, readme)
    for figure, picture in block.figures.items():
        write_atomically(figure, picture.files()[f"{picture.slug}.svg"])
    write_atomically(readme, (before + block.text + after).encode())
    for name in _FIGURES:
        for old in results.folder.glob(f"{name}-[0-9]*-" + "[0-9a-f]" * 8 + ".svg"):
            if old not in block.figures:
                old.unlink()
