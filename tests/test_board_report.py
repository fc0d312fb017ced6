"""Contributed rows in tables: their names, division, marks and ranks; withdrawn ones."""

import shutil
from pathlib import Path

import pytest

import lra
from lra.board.marks import add_mark
from lra.record.run import RunRecord
from lra.report.boards import leading_board
from lra.report.data import Data
from lra.report.leaderboard import leaderboard, leaderboard_csv
from lra.report.page.page import describe_runs
from lra.report.tables.speeds import PresetSpeeds
from made_contributions import SHIPPED, make, shipped_runs
from made_results import save_all


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder with shipped runs, and contributions of some of them."""
    folder = tmp_path_factory.mktemp("results")
    runs = shipped_runs()
    (folder / "shipped").mkdir()
    save_all(folder / "shipped", [run for _, run in runs])
    assert make(folder / "community" / "three", runs) == []
    assert make(folder / "community" / "one", runs[:1]) == []
    for name in ("files", "code"):
        add_mark(folder / "community" / "three", name, [])
    shutil.copytree(folder / "community" / "three", folder / "community" / "gone")
    add_mark(folder / "community" / "gone", "withdrawn", ["It saw the test set."])
    (folder / "community" / "broken").mkdir()
    shutil.copy(SHIPPED / "runs.parquet", folder / "community" / "broken")
    return folder


def test_the_leaderboard_shows_contributed_rows(results: Path) -> None:
    data = Data(results)
    assert ["broken" in fault for fault in data.faults] == [True]
    assert data.leading_board is not None
    table = leaderboard(data.leading_board, PresetSpeeds(), {}, ())
    rows = {name: dict(zip(table.headings, [name, *cells], strict=True))
            for name, *cells in table.rows}  # fmt: skip
    (gone,) = (row for row in rows if "gone" in row)
    assert gone.startswith("~~s4 by gone (withdrawn 20") and gone.endswith(")~~")
    assert list(rows)[:4] == ["s4", "s4 by three", "s4 by one", gone]
    assert [rows[name]["division"] for name in rows][:4] == ["-", "closed", "closed", "closed"]
    assert [rows[name]["code"] for name in rows][:4] == ["-", "yes", "-", "-"]
    (column,) = (column for column in table.columns if column.name == "listops")
    assert [entry.is_ranked for entry in column.entries[:4]] == [True, True, False, False]
    notes = "\n".join(table.notes)
    assert "gone: A mixer, https://example.org/code. Withdrawn: It saw the test set." in notes


def test_contributed_runs_are_nobodys_own(results: Path, tmp_path: Path) -> None:
    data = Data(results)
    assert not any(map(data.is_own, data.records))
    frame = lra.records(results, with_shipped=True)
    assert len(frame) == 10 and True not in frame["is_own"].tolist()
    assert {*frame["contribution"].dropna().str[:4]} == {"one", "thre", "gone"}
    assert len(describe_runs(data, tmp_path)["runs"]) == len(data.records) == 10
    lines = leaderboard_csv(data, data.boards[0]).splitlines()
    assert lines[0].endswith("run,contribution,division,marks")
    assert {line.rsplit(",", 3)[1] for line in lines if line.endswith(",three,closed,files code")}
    assert sum(line.endswith(",,,") for line in lines) == 3


def test_validation_chooses_among_contributed_learning_rates(results: Path) -> None:
    runs = [run for run in Data(results).records if run.contribution is not None]

    def at_rate(run: RunRecord, rate: float) -> RunRecord:
        settings = {**run.settings, "train.lr": rate, "mixer.state_size": 8}
        changed = ["train.lr", "mixer.state_size"]
        return run.model_copy(update={"settings": settings, "changed": changed})

    names = {at_rate(run, rate).method for run in runs for rate in (0.1, 0.2)}
    assert "s4 (mixer.state_size=8) by three" in names and len(names) == 3


def test_contributions_do_not_choose_the_leading_board(results: Path) -> None:
    boards = Data(results).boards
    (board,) = boards
    assert leading_board(boards) is board
    contributed = board.with_rows({name: c for name, c in board.rows.items() if " by " in name})
    assert leading_board([contributed, board]) is board
