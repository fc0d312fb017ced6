"""The leaderboard as a flat file: a line for each run, with the settings that matter."""

from __future__ import annotations

from lra.record.frame import to_frame
from lra.record.intervals import wilson_interval
from lra.record.run import RunRecord
from lra.report.boards.board import Board
from lra.report.boards.results import Results
from lra.report.tables.leaderboard import best_trivial_baseline, rows_at_preset
from lra.runtime.console import csv_table

COLUMNS = {
    "task": "task",
    "mixer": "mixer",
    "preset": "preset",
    "protocol": "protocol",
    "seed": "seed",
    "status": "status",
    "test_accuracy": "test_accuracy",
    "test_examples": "test_total",
    "val_accuracy": "val_accuracy",
    "best_step": "best_step",
    "steps": "steps",
    "batch_size": "batch_size",
    "learning_rate": "train.lr",
    "weight_decay": "train.weight_decay",
    "channels": "model.dim",
    "blocks": "model.depth",
    "norm": "model.norm",
    "axes": "model.axes",
    "pooling": "model.pooling",
    "positions": "model.positions",
    "longest_sequence": "length",
    "parameters": "params",
    "train_seconds": "train_seconds",
    "steps_per_second": "steps_per_second",
    "peak_memory_mib": "peak_memory_mib",
    "device": "device",
    "precision": "precision",
    "data": "data.source",
    "data_fingerprint": "data.fingerprint",
    "config_hash": "config_hash",
    "run": "run_id",
}
"""The columns of the file, and those of `lra.records` that they are. Accuracies are in percent."""


def leaderboard_csv(results: Results, board: Board) -> str:
    """Write the runs of the leaderboard as CSV, with the 95 % interval of each accuracy (Wilson)
    and the accuracy of the best trivial baseline.
    """
    rows = rows_at_preset(board)
    runs = [run for cells in rows.values() for cell in cells.values() for run in cell.runs]
    runs.sort(key=lambda run: (board.tasks.index(run.task), run.mixer, run.seed, run.run_id))
    frame = to_frame(((results.path(run), run) for run in runs), results.folder)
    chosen = frame.reindex(columns=[*COLUMNS.values()]).set_axis([*COLUMNS], axis="columns")
    place = [*COLUMNS].index("test_accuracy") + 1
    baselines = next(iter(best_trivial_baseline(board).values()), {})
    for name, values in (
        ("best_trivial_baseline", [baselines.get(run.task) for run in runs]),
        ("interval_high", [_interval(run)[1] for run in runs]),
        ("interval_low", [_interval(run)[0] for run in runs]),
    ):
        chosen.insert(place, name, values)
    return csv_table(chosen)


def _interval(run: RunRecord) -> tuple[float | None, float | None]:
    if run.test_accuracy is None or not run.test_examples:
        return None, None
    low, high = wilson_interval(run.test_accuracy / 100, run.test_examples)
    return round(low, 2), round(high, 2)
