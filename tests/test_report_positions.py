"""Tasks whose targets are positions, in the report: bits and perplexity, in tables of their own."""

from pathlib import Path

import pytest

from lra.report.boards import Board, boards
from lra.report.charts import lines_of_table
from lra.report.data import Data
from lra.report.tables.evaluations import evaluation_tables
from lra.report.tables.results import measures_table
from lra.report.tables.table import Table
from made_results import next_token_run, record, save_all, save_evaluation, scores

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
        next_token_run(
            0.0, mixer="dss", status="stopped", positions={"val_loss": 1.0, "text_bytes": 1000}
        ),
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


def test_bits_come_first_and_are_not_marked(board: Board) -> None:
    table = measures_table(board)
    rows = rows_of(table)
    shown = ("bits per byte", "perplexity", "accuracy, %", "validation loss, nats", "minutes")
    assert {row: [rows[row][name] for name in shown] for row in table.methods} == {
        "dss": ["stopped", "-", "-", "1.000", "10.0"],
        "s4": ["2.500 (n=1)", "5.66", "50.00", "1.833", "10.0"],
        "tnn": ["2.050 ± 0.071 (n=2)", "4.14 ± 0.20", "50.00 ± 0.00", "1.521 ± 0.049", "10.0"],
    }
    assert rows["trivial baseline: order-0"]["bits per byte"] == "4.620"
    assert rows["trivial baseline: majority class"]["accuracy, %"] == "17.00"
    assert not any(column.marks for column in table.columns), "the interval of bits is not known"


def test_bits_are_shown_above_the_lowest_that_any_predictor_needs() -> None:
    found = scores(
        1.35, text_bytes=None, bits_per_byte=None, baseline_bits={"uniform": 4.0},
        lowest_bits={"entropy rate": 0.5, "ideal predictor": 1.0},
    )  # fmt: skip
    (board,) = boards([next_token_run(1.35, task="periodic", positions=found)])
    rows = rows_of(measures_table(board))
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
    (chart,) = lines_of_table(perplexity)
    drawn = [(p["length, positions"], p["perplexity"]) for p in chart.points if p["row"] == "s4"]
    assert drawn == [(length, pytest.approx(2**2.5)) for length in LENGTHS]
