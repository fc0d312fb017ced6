"""Speed and memory: a table per device, in the form of Table 2 of the Long Range Arena."""

from __future__ import annotations

from dataclasses import dataclass

from lra.report.boards.speeds import BUSY, Speed, SpeedBoard
from lra.report.tables.table import Table
from lra.runtime.console import MISSING

BUSY_NOTE = " Busy: measured beside other processes, which slow it down."


def marked(text: str, *, busy: bool) -> str:
    """Mark a number that hangs on time if it was measured on a busy machine."""
    return f"{text}, {BUSY}" if busy else text


def speed_table(board: SpeedBoard, relative_to: str, slug: str) -> Table:
    """Tabulate steps per second, and how they compare with those of the mixer `relative_to`."""
    return _table(board, relative_to, slug, _PER_SECOND)


def memory_table(board: SpeedBoard, relative_to: str, slug: str) -> Table:
    """Tabulate peak memory in MiB, and how it compares with that of the mixer `relative_to`."""
    return _table(board, relative_to, slug, _MEMORY)


def tables_of(board: SpeedBoard, relative_to: str) -> list[Table]:
    """Make the tables of a board that have anything in them."""
    tables = [
        speed_table(board, relative_to, f"speed-{board.slug}"),
        memory_table(board, relative_to, f"memory-{board.slug}"),
    ]
    return [table for table in tables if table.facts or table.slug.startswith("speed-")]


@dataclass(frozen=True)
class _Quantity:
    title: str
    name: str
    digits: int
    takes_time: bool
    """Whether a busy machine changes it."""


_PER_SECOND = _Quantity("steps per second", "steps_per_second", 2, takes_time=True)
_MEMORY = _Quantity("peak memory in MiB", "peak_memory_mib", 0, takes_time=False)


def _table(board: SpeedBoard, relative_to: str, slug: str, quantity: _Quantity) -> Table:
    places = board.places
    compared_with = board.rows.get(relative_to, {})
    rows: list[list[str]] = []
    links: dict[tuple[int, int], str] = {}
    facts: list[dict[str, object]] = []
    any_busy = False
    for i, (method, cells) in enumerate(board.rows.items()):
        rows.append([method])
        for j, place in enumerate(places, start=1):
            speed, against = cells.get(place), compared_with.get(place)
            value = getattr(speed, quantity.name, None)
            base = getattr(against, quantity.name, None)
            relative = value / base if value is not None and base else None
            text = _text(speed, value, relative, quantity.digits)
            busy = speed is not None and value is not None and quantity.takes_time and speed.busy
            any_busy |= busy
            rows[i].append(marked(text, busy=busy))
            if speed is not None and speed.link:
                links[i, j] = speed.link
            if value is not None:
                facts.append(
                    {
                        "device": board.device,
                        "setting": board.title,
                        "mixer": method,
                        **place.facts,
                        quantity.name: value,
                        "low_quartile": getattr(speed, "low", None),
                        "high_quartile": getattr(speed, "high", None),
                        f"relative_to_{relative_to}": relative,
                    }
                )
    in_brackets = f" In brackets: relative to {relative_to}." if compared_with else ""
    return Table(
        slug=slug,
        title=f"{board.title}, {board.device}: {quantity.title}",
        caption=board.note + in_brackets + (BUSY_NOTE if any_busy else ""),
        columns=["mixer", *map(str, places)],
        rows=rows,
        links=links,
        facts=facts,
    )


def _text(speed: Speed | None, value: float | None, relative: float | None, digits: int) -> str:
    if value is None:
        return (speed.words if speed else "") or MISSING
    text = f"{value:,.{digits}f}"
    if relative is not None:
        text += f" ({relative:.2f} x)"
    return f"{text}, {speed.words}" if speed is not None and speed.words else text
