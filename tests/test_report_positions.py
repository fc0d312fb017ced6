"""Tasks whose targets are positions, in the report: bits and perplexity, in tables of their own."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

import report
import run_task
from conftest import tiny_settings
from lra.evaluate.__main__ import _table as evaluation_text
from lra.evaluate.__main__ import main as evaluate_main
from lra.record.scores import PositionScores
from lra.report.boards import Board, boards
from lra.report.data import Data
from lra.report.figures.drawing import style
from lra.report.figures.lines import curve_figures, line_figures
from lra.report.points import bubbles_of_board
from lra.report.styles import assign_styles
from lra.report.tables.evaluations import evaluation_tables
from lra.report.tables.results import position_table
from lra.report.tables.table import Table
from lra.train.scores import position_losses
from made_results import next_token_run, record, save, save_all, save_evaluation, scores

LN2 = math.log(2)
LENGTHS = (512, 2048, 16384)


def rows_of(table: Table) -> dict[str, dict[str, str]]:
    return {row[0]: dict(zip(table.headings, row, strict=True)) for row in table.rows}


@pytest.fixture
def data(tmp_path: Path) -> Data:
    """Runs on a text, evaluated at other lengths, and one on examples of a class."""
    runs = [
        next_token_run(2.0),
        next_token_run(2.1, run_id="abc-s1", seed=1),
        next_token_run(2.5, mixer="s4", steps_per_second=5.0),
        next_token_run(0.0, mixer="dss", status="stopped", positions=PositionScores(val_loss=1.0)),
        record(preset="budget"),
    ]
    save_all(tmp_path, runs)
    for run, bits, grows in zip(runs[:3], (2.0, 2.1, 2.5), (0.5, 0.5, 0.0), strict=True):
        for place, length in enumerate(LENGTHS):
            save_evaluation(tmp_path, run, length, bits + grows * place)
    return Data(tmp_path)


@pytest.fixture
def board(data: Data) -> Board:
    return data.boards[-1]


def test_no_run_is_in_tables_of_accuracies(data: Data) -> None:
    of_examples, of_positions = data.boards
    assert {run.task for run in of_examples.records} == {"listops"}
    assert {run.task for run in of_positions.records} == {"lm"}
    assert of_positions.tasks == ["lm"]
    assert data.leading_board is of_examples


def test_bits_come_first_and_the_lowest_are_the_best(board: Board) -> None:
    table = position_table(board)
    rows = rows_of(table)
    shown = ("bits per byte", "perplexity", "accuracy, %", "validation loss, nats", "minutes")
    assert {row: [rows[row][name] for name in shown] for row in table.methods} == {
        "dss": ["stopped", "-", "-", "1.000", "10.0"],
        "s4": ["2.500 (n=1)", "5.66", "50.00", "1.833", "10.0"],
        "tnn": ["2.050 ± 0.071 (n=2)", "4.14 ± 0.20", "50.00 ± 0.00", "1.521 ± 0.049", "10.0"],
    }
    assert rows["trivial baseline: order-0"]["bits per byte"] == "4.620"
    assert rows["trivial baseline: majority class"]["accuracy, %"] == "17.00"
    assert table.columns[1].marks == {1: "second", 2: "best"}
    assert 0 not in table.columns[4].marks, "the lowest validation loss, but of no result"


def test_a_loss_that_is_not_finite_is_no_number() -> None:
    lost = scores(2.0).model_copy(update={"loss": None, "bits_per_byte": None, "perplexity": None})
    (board,) = boards([next_token_run(2.0, positions=lost), next_token_run(2.0, seed=1)])
    assert rows_of(position_table(board))["tnn"]["bits per byte"] == "2.000 (n=1)"
    assert lost.text == "loss not finite"


def test_other_texts_and_other_tasks_have_tables_of_their_own() -> None:
    other = {"source": "official", "fingerprint": "o" * 64, "sizes": {}}
    changed = next_token_run(1.0, data=other, overrides=["task.corpus=enwik8"])
    found = boards([next_token_run(2.0), changed, next_token_run(2.0, task="periodic")])
    assert [(board.tasks, board.reason) for board in found] == [
        (["lm"], ""), (["lm"], "task.corpus=enwik8"), (["periodic"], ""),
    ]  # fmt: skip
    assert len({position_table(board).slug for board in found}) == 3


def test_bits_are_shown_above_the_lowest_that_any_predictor_needs() -> None:
    found = scores(
        1.35, text_bytes=None, bits_per_byte=None, baseline_bits={"uniform": 4.0},
        lowest_bits={"entropy rate": 0.5, "ideal predictor": 1.0},
    )  # fmt: skip
    (board,) = boards([next_token_run(1.35, task="periodic", positions=found)])
    rows = rows_of(position_table(board))
    assert rows["tnn"]["bits per token"] == "1.350 (n=1)"
    assert rows["tnn"]["above ideal predictor"] == "0.350"
    assert rows["tnn"]["above entropy rate"] == "0.850"
    assert rows["lower bound: entropy rate"]["bits per token"] == "0.500"


def test_bits_over_length_and_those_as_trained_are_one_table(data: Data, board: Board) -> None:
    bits, perplexity = evaluation_tables(data, board)
    rows = rows_of(bits)
    assert rows["tnn"]["as trained"] == "2.050 ± 0.071 (n=2)"
    assert rows["tnn"]["16,384 positions"] == "3.050 ± 0.071 (n=2)"
    assert rows["s4"]["16,384 positions"] == "2.500 (n=1)"
    assert rows["trivial baseline: xz"]["2,048 positions"] == "1.860"
    assert bits.caption.startswith("Bits per byte of models trained at up to 512 positions")
    best = [[bits.methods[i] for i, mark in column.marks.items() if mark == "best"]
            for column in bits.columns[1:]]  # fmt: skip
    assert best == [["tnn"], ["tnn"], ["s4"], ["s4"]]
    (drawn,) = line_figures(perplexity, assign_styles(perplexity.methods))
    with style():
        (axes,) = drawn.draw().axes
    lines = [np.asarray(line.get_xydata()).tolist() for line in axes.lines]
    assert lines[0] == [[length, pytest.approx(2**2.5)] for length in LENGTHS]
    assert [[512, 0], [512, 1]] in lines, "the length in training"


def test_charts_are_of_bits_and_of_validation_losses(data: Data, board: Board) -> None:
    found = bubbles_of_board(data, board)
    assert {str(point["row"]): point["score"] for point in found.points} == {"tnn": 2.05, "s4": 2.5}
    assert [one.title for one in found.fields if one.name == "score"] == ["bits per byte"]
    line = '{"step": %s, "seconds": 5.0, "val_accuracy": 30.0, "val_loss": %s}\n'
    path = data.path(board.rows["s4"]["lm"].runs[0]) / "metrics.jsonl"
    path.write_text(line % (10, 1.5) + line % (20, "NaN"))
    (drawn,) = curve_figures(data, board, assign_styles(board.rows))
    with style():
        (axes,) = drawn.draw().axes
    assert axes.get_ylabel() == "validation loss, nats"
    assert np.asarray(axes.lines[0].get_xydata()).tolist() == [[10, 1.5]]
    assert not data.faults


def test_commands_show_bits(
    data: Data, board: Board, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert report.main(["--results-dir", str(data.folder), "--format", "html"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "bits per byte" in shown and "2.050 ± 0.071" in shown
    page = (data.folder / "report" / "index.html").read_text()
    assert "2.500 bits per byte, perplexity 5.657" in page
    assert "Published perplexities" in page
    (run,) = board.rows["s4"]["lm"].runs
    first, second = evaluation_text([data.path(run)], 300)[1:]
    assert first.split("  ", maxsplit=1)[1].split()[:5] == ["bits", "per", "byte", "2.500", "2.500"]
    assert "  perplexity  " in second


def test_a_paper_has_tables_of_accuracies_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path, next_token_run(2.0))
    assert report.main(["--results-dir", str(tmp_path), "--paper"]) == 2
    said = "--paper writes tables of accuracies, and the runs of lm have none"
    assert said in capsys.readouterr().err


def test_losses_of_the_ideal_predictor_are_summed_as_those_of_models() -> None:
    losses = np.array([[2.0, 6.0], [4.0, 0.0]])
    targets = np.array([[1.0, 2.0], [1.0, 0.0]])
    found = position_losses(losses, targets, {"kind": np.array(["a", "b"])}, losses / 2)
    assert [(one.value, one.first, one.loss, one.ideal) for one in found] == [
        ("", 0, 3.0, 1.5), ("", 1, 3.0, 1.5), ("a", 0, 2.0, 1.0), ("a", 1, 3.0, 1.5),
        ("b", 0, 4.0, 2.0),
    ]  # fmt: skip
    (lost,) = position_losses(np.array([[math.inf]]), np.ones((1, 1)), {})
    assert (lost.loss, lost.ideal) == (None, None)


def test_a_run_on_data_of_known_law_records_bits_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = ["--task", "periodic", "--mixer", "tnn", "--preset", "quick", "--device", "cpu"]
    places = ["--data-dir", str(tmp_path / "data"), "--results-dir", str(tmp_path / "results")]
    kept = [text for text in tiny_settings() if not text.startswith("task.max_length")]
    changes = [part for text in [*kept, "task.sequence_length=64"] for part in ("--set", text)]
    assert run_task.main([*start, *places, *changes]) == 0
    data = Data(tmp_path / "results")
    (run,) = data.records
    assert run.positions is not None
    parts = run.positions.by_position
    for field in dict.fromkeys(part.field for part in parts):
        found = [part for part in parts if part.field == field]
        targets = [part.targets for part in found]
        assert sum(targets) == run.test_total == 50 * 64
        ideal = np.average([part.ideal or math.nan for part in found], weights=targets)
        assert ideal / LN2 == pytest.approx(run.positions.lowest_bits["ideal predictor"])
        loss = np.average([part.loss or math.nan for part in found], weights=targets)
        assert loss == pytest.approx(run.positions.loss)
    lines = map(json.loads, (data.path(run) / "metrics.jsonl").read_text().splitlines())
    validations = [line for line in lines if "val_loss" in line]
    assert validations
    assert all(one["val_bits"] == pytest.approx(one["val_loss"] / LN2) for one in validations)
    command = ["--run", str(data.path(run)), "--lengths", "64,128", "--examples", "20"]
    command += ["--data-dir", str(tmp_path / "data"), "--device", "cpu"]
    for is_first in (True, False):
        assert evaluate_main(command) == 0
        said = capsys.readouterr().err
        assert ("tnn, 128 positions: " in said and "uniform 4.000 bits" in said) == is_first
