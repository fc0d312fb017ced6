"""How far a mixer has to see: short convolutions beside full mixers, and permuted pixels."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import itemgetter

from lra.record.run import RunRecord
from lra.report.boards.board import Board
from lra.report.boards.results import Results
from lra.report.boards.row_names import changes_of
from tasks.base import BENCHMARK

CONVOLUTION = "conv"
"""The mixer whose width bounds what a model can see."""


@dataclass
class TaskLocality:
    """Test accuracies in percent on one task, with pixels in their own and in another order."""

    task: str
    convolutions: dict[int, float] = field(default_factory=dict)
    """By the width of the filters, in positions."""
    mixers: dict[str, float] = field(default_factory=dict)
    permuted_convolutions: dict[int, float] = field(default_factory=dict)
    permuted_mixers: dict[str, float] = field(default_factory=dict)
    best: tuple[str, float] = ("", 0.0)
    """The best mixer of the leaderboard, and its accuracy."""


def read_locality(results: Results, shipped: Results, board: Board) -> list[TaskLocality]:
    """Sort the runs of the finding by task, with those of the leaderboard that they compare with.

    Args:
        results: convolutions of other widths, and runs with task.permutation.
        shipped: the results that have the leaderboard's runs.
        board: the board of the leaderboard.
    """
    compared = {CONVOLUTION, *(run.mixer for run in results.records)}
    plain = [
        run for run in board.records if run.seed == 0 and run.label is None and not changes_of(run)
    ]
    of_leaderboard = [run for run in plain if run.mixer in compared]
    found = {task: TaskLocality(task) for task in BENCHMARK}
    for run in plain:
        best = found[run.task].best
        found[run.task].best = max(best, (run.mixer, run.test_accuracy or 0.0), key=itemgetter(1))
    for folder, runs in ((results, results.records), (shipped, of_leaderboard)):
        for run in runs:
            _add(found[run.task], run, folder)
    return [one for one in found.values() if one.convolutions]


def _add(found: TaskLocality, run: RunRecord, folder: Results) -> None:
    if run.test_accuracy is None:
        return
    is_permuted = any(text.startswith("task.permutation=") for text in run.overrides)
    if run.mixer == CONVOLUTION:
        width = folder.settings(run).get("config.mixer.width")
        if isinstance(width, int):
            by_width = found.permuted_convolutions if is_permuted else found.convolutions
            by_width[width] = run.test_accuracy
    else:
        by_mixer = found.permuted_mixers if is_permuted else found.mixers
        by_mixer[run.mixer] = run.test_accuracy
