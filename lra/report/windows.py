"""The effective windows of the leaderboard's rows: their runs on the task flip-flop."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from lra.goals.distances import DistanceResult
from lra.record.run import RunRecord
from lra.record.schema import select_sections
from lra.report.boards import Board, boards, is_probe, leading_board, rows_at_preset
from lra.report.scores import Cell, Entry
from lra.report.tables.table import Column

WINDOW = "effective window"
LONGER = {"task.distance": 2048, "task.length": 8192, "train.batch_size": 2}
"""Changes of flip-flop at preset budget by which reads ask four times as far back; a step has
equally many positions.
"""
Windows = Mapping[str, Cell]
"""The runs of each row on the data with the longest distances."""


def find_windows(every: Iterable[Board], board: Board) -> Windows:
    """Find the runs on labels by distance at the preset and protocol of a board, by row.

    They are on the data of the preset or, where there are such runs, on longer sequences.
    """
    cells = [
        cell
        for other in every
        if (other.preset, other.protocol) == (board.preset, board.protocol)
        for row in other.rows.values()
        for cell in row.values()
        if all(_longest_of(run) for run in cell.runs)
    ]
    windows: dict[str, Cell] = {}
    for cell in sorted(cells, key=lambda cell: _longest_of(cell.runs[0])):
        run = without_longer(cell.runs[0])
        if run.method in board.rows and not select_sections(run.changes, "task"):
            windows[run.method] = cell
    return windows


def without_longer(run: RunRecord) -> RunRecord:
    """Return a run as if it did not change what `LONGER` has, if it changes all of that."""
    left_out = LONGER if LONGER.items() <= run.changes.items() else {}
    return run.model_copy(update={"changed": [n for n in run.changed if n not in left_out]})


def _longest_of(run: RunRecord) -> int:
    """Return the longest distance, in positions, that a run was tested at; 0 without a test."""
    result = run.result
    if not isinstance(result, DistanceResult) or not result.distances:
        return 0
    return result.distances[-1].distance


def rows_of_leaderboard(records: Sequence[RunRecord]) -> dict[int, str]:
    """Return the row of the leaderboard that each run counts in, by the `id` of its record."""
    every = boards([run for run in records if not is_probe(run)])
    board = leading_board([board for board in every if board.is_of_accuracy])
    if board is None:
        return {}
    rows = rows_at_preset(board)
    counted = [(row, cell) for row, cells in rows.items() for cell in cells.values()]
    counted += find_windows(every, replace(board, rows=rows)).items()
    return {id(run): row for row, cell in counted for run in cell.runs}


def window_entries(windows: Windows) -> dict[str, Entry]:
    """Write the window of each row."""
    measures = {row: cell.runs[0].result.measures[0] for row, cell in windows.items()}
    return {row: windows[row].entry(measures[row], shows_spread=False) for row in windows}


def window_column(windows: Windows, rows: Iterable[str]) -> Column:
    """Make the column of rows' windows, which have no rank: many end at the longest distance."""
    entries = window_entries(windows)
    known = [entries.get(row, Entry()) for row in rows]
    return Column(WINDOW, [Entry(entry.text, entry.value) for entry in known], digits=0)


def describe_windows(windows: Windows) -> str:
    """Say after how many steps windows were measured, and up to which distance; empty without."""
    runs = [cell.runs[0] for cell in windows.values()]
    if not runs:
        return ""
    *shorter, longest = sorted({_longest_of(run) for run in runs})
    steps = " and ".join(f"{number:,}" for number in sorted({run.steps for run in runs}))
    held = sum((entry.value or 0) >= longest for entry in window_entries(windows).values())
    sentences = [
        f"The {WINDOW} is the largest distance, in positions, up to which a mixer remembers a "
        f"value (task flip-flop, after {steps} steps).",
        f"{held} of {len(runs)} mixers hold {longest:,}, the longest that was asked for.",
    ]
    if shorter:
        sentences.append(f"Mixers with less than {shorter[-1]:,} were asked for no longer ones.")
    return " ".join(sentences)
