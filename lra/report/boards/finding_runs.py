"""The runs behind the findings of results/README.md, beside those of the leaderboard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from lra.record.run import RunRecord
from lra.report.boards.board import Board
from lra.report.boards.results import Results
from lra.report.boards.row_names import changes_of

FINDINGS = Path(__file__).resolve().parents[3] / "results" / "findings"
"""Folder of the findings' runs, a results folder for each."""

Conditions = Mapping[str, Sequence[RunRecord]]
"""Runs by the condition that they were made under."""


def finding_results(name: str) -> Results | None:
    """Read the results folder of a finding; None where it is not there."""
    folder = FINDINGS / name
    return Results(folder) if folder.is_dir() else None


def beside_leaderboard(board: Board, condition: str, others: Conditions) -> Conditions:
    """Put the leaderboard's runs of the same tasks, mixers and seeds before those of conditions.

    Args:
        board: the board of the leaderboard.
        condition: what the leaderboard's runs are called.
        others: the finding's own runs.
    """
    wanted = {(run.task, run.mixer, run.seed) for runs in others.values() for run in runs}
    plain = [run for run in board.records if not changes_of(run) and run.label is None]
    return {
        condition: [run for run in plain if (run.task, run.mixer, run.seed) in wanted],
        **others,
    }


def by_pretraining(results: Results) -> Conditions:
    """Sort pretrained runs by the steps of their pretraining, relative to those of training."""
    found: dict[float, list[RunRecord]] = {}
    for run in results.records:
        if before := run.pretraining:
            found.setdefault(before.steps / (run.total_steps - before.steps), []).append(run)
    return {f"pretrained for {ratio:g} x the steps": found[ratio] for ratio in sorted(found)}
