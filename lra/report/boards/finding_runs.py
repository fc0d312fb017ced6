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
    return Results(folder, is_alone=True) if folder.is_dir() else None


def finding_attempts(name: str) -> list[Results]:
    """Read the results folders of a finding whose runs were made again with equal settings."""
    folders = sorted((FINDINGS / name).glob("attempt-*"))
    return [Results(folder, is_alone=True) for folder in folders]


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
    """Sort runs by their pretraining and their steps with labels, relative to those of the others.

    Runs without pretraining are compared with pretrained ones of the same task and mixer.
    """
    labelled = {
        (run.task, run.mixer): run.total_steps - run.pretraining.steps
        for run in results.records
        if run.pretraining
    }
    pretrained: dict[float, list[RunRecord]] = {}
    longer: dict[float, list[RunRecord]] = {}
    for run in results.records:
        steps = labelled.get((run.task, run.mixer))
        if steps and run.pretraining:
            pretrained.setdefault(run.pretraining.steps / steps, []).append(run)
        elif steps:
            longer.setdefault(run.total_steps / steps, []).append(run)
    return {
        **{f"pretrained for {n:g} x the steps": pretrained[n] for n in sorted(pretrained)},
        **{f"labels only, {n:g} x the steps": longer[n] for n in sorted(longer)},
    }
