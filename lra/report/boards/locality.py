"""How far a mixer has to see: short convolutions beside full mixers, and permuted pixels."""

from __future__ import annotations

from dataclasses import dataclass, field

from lra.record.frame import settings_of
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


def read_locality(results: Results, board: Board) -> list[TaskLocality]:
    """Sort the runs of the finding by task, with those of the leaderboard that they compare with.

    Args:
        results: convolutions of several widths, and runs with task.permutation.
        board: the board of the leaderboard.
    """
    compared = {run.mixer for run in results.records}
    plain = [run for run in board.records if not changes_of(run) and run.label is None]
    found = {task: TaskLocality(task) for task in BENCHMARK}
    for run in results.records:
        settings = settings_of(results.path(run))
        is_permuted = settings.get("config.task.permutation") is not None
        _add(found[run.task], run, settings.get("config.mixer.width"), is_permuted)
    for run in plain:
        if run.mixer in compared and run.mixer != CONVOLUTION and run.seed == 0:
            _add(found[run.task], run, None, False)
    return [one for one in found.values() if one.convolutions]


def _add(found: TaskLocality, run: RunRecord, width: object, is_permuted: bool) -> None:
    if run.test_accuracy is None:
        return
    if run.mixer == CONVOLUTION:
        assert isinstance(width, int)
        by_width = found.permuted_convolutions if is_permuted else found.convolutions
        by_width[width] = run.test_accuracy
    else:
        by_mixer = found.permuted_mixers if is_permuted else found.mixers
        by_mixer[run.mixer] = run.test_accuracy
