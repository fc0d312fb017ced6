"""Speed and memory: a table per device, in the form of Table 2 of the Long Range Arena."""

from __future__ import annotations

from dataclasses import dataclass

from lra.report.boards.speeds import BUSY, Speed, SpeedBoard
from lra.report.tables.table import Column, Entry, Table, name_column

BUSY_NOTE = " Busy means that other processes slowed the measurement down."


def speed_table(board: SpeedBoard, relative_to: str, slug: str) -> Table:
    """Tabulate steps per second, and how they compare with those of the mixer `relative_to`."""
    return _table(board, relative_to, slug, _PER_SECOND)


def memory_table(board: SpeedBoard, relative_to: str, slug: str) -> Table:
    """Tabulate peak memory in MiB, and how it compares with that of the mixer `relative_to`."""
    return _table(board, relative_to, slug, _MEMORY)


def speed_and_memory_tables(board: SpeedBoard, relative_to: str) -> list[Table]:
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
    compared_with = board.rows.get(relative_to, {})
    columns = [name_column("mixer", board.rows, board.own_rows)]
    facts: list[dict[str, object]] = []
    for workload in board.workloads:
        against = _amount(compared_with.get(workload), quantity)
        speeds = {method: cells.get(workload) for method, cells in board.rows.items()}
        entries = [_entry(speed, against, quantity) for speed in speeds.values()]
        columns.append(Column(str(workload), entries, quantity.digits))
    for method, cells in board.rows.items():
        for workload in board.workloads:
            speed = cells.get(workload)
            value = _amount(speed, quantity)
            base = _amount(compared_with.get(workload), quantity)
            if speed is None or value is None:
                continue
            facts.append(
                {
                    "device": board.device,
                    "setting": board.title,
                    "mixer": method,
                    **workload.facts,
                    quantity.name: value,
                    "low_quartile": speed.low,
                    "high_quartile": speed.high,
                    f"relative_to_{relative_to}": value / base if base else None,
                }
            )
    in_brackets = f" The number in brackets is relative to {relative_to}." if compared_with else ""
    is_busy = any(BUSY in entry.remarks for column in columns for entry in column.entries)
    return Table(
        slug=slug,
        title=f"{board.title}, {board.device}: {quantity.title}",
        caption=board.note + in_brackets + (BUSY_NOTE if is_busy else ""),
        columns=columns,
        facts=facts,
    )


def _amount(speed: Speed | None, quantity: _Quantity) -> float | None:
    return None if speed is None else getattr(speed, quantity.name)


def _entry(speed: Speed | None, against: float | None, quantity: _Quantity) -> Entry:
    """Write a speed or a memory, and how it compares with that of another mixer."""
    value = _amount(speed, quantity)
    if speed is None or value is None:
        return Entry(
            (speed.words if speed else "") or None,
            link=speed.link if speed else "",
            is_own=speed is not None and speed.has_own,
        )
    text = f"{value:,.{quantity.digits}f}" + (f" ({value / against:.2f} x)" if against else "")
    remarks = [speed.words] if speed.words else []
    remarks += [BUSY] if speed.busy and quantity.takes_time else []
    return Entry(
        ", ".join([text, *remarks]),
        value,
        remarks=remarks,
        link=speed.link,
        other_links=speed.other_links,
        is_own=speed.has_own,
    )
