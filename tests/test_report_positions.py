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
from figure_checks import overlaps
from lra.evaluate.__main__ import _table as evaluation_text
from lra.evaluate.__main__ import main as evaluate_main
from lra.record.run import RunRecord
from lra.record.scores import PositionLoss, PositionScores
from lra.report.boards.board import Board, boards, leading_board, position_boards
from lra.report.boards.evaluations import evaluation_boards
from lra.report.boards.position_bits import by_position, by_value, windows_of
from lra.report.boards.results import Results
from lra.report.data import ReportData, ReportOptions
from lra.report.figures.bubble_panels import speeds_on, task_panels
from lra.report.figures.bubbles import bubble_figures
from lra.report.figures.curves import LOSS, STEPS, curve_figures, learning_curve
from lra.report.figures.drawing import style
from lra.report.figures.styles import assign_styles
from lra.report.page.page import make_data
from lra.report.page.readme import Block, make_block
from lra.report.tables.next_tokens import position_table
from lra.report.tables.out_of_distribution import evaluation_tables
from lra.report.tables.position_bits import metadata_tables
from lra.report.tables.table import Table
from lra.report.tables.task_table import task_table
from lra.train.scores import position_losses
from made_results import next_token_run, record, save, save_all, save_evaluation, scores

LN2 = math.log(2)
LENGTHS = (512, 2048, 16384)


def rows_of(table: Table) -> dict[str, dict[str, str]]:
    return {row[0]: dict(zip(table.headings, row, strict=True)) for row in table.rows}


def periodic_run(bits: float, **changes: object) -> RunRecord:
    """A run on data of known law: windows of period 4 take what the ideal predictor needs and
    .2 bits more, those of 16 .4 bits more, for thrice as many targets.
    """
    parts = [
        PositionLoss(field="period", value=value, first=0, last=0, targets=n, loss=LN2 * (1 + more),
                     ideal=LN2)
        for value, n, more in (("16", 30, 0.4), ("4", 10, 0.2))
    ]  # fmt: skip
    whole = PositionLoss(first=0, last=0, targets=40, loss=LN2 * 1.35, ideal=LN2)
    found = scores(
        bits, text_bytes=None, bits_per_byte=None, baseline_bits={"uniform": 4.0},
        lowest_bits={"entropy rate": 0.5, "ideal predictor": 1.0}, by_position=[whole, *parts],
    )  # fmt: skip
    return next_token_run(bits, task="periodic", positions=found, **changes)


@pytest.fixture
def made(tmp_path: Path) -> Results:
    """Runs on a text, evaluated at other lengths, and one on examples of a class."""
    runs = [
        next_token_run(2.0),
        next_token_run(2.1, run_id="abc-s1", seed=1),
        next_token_run(2.5, mixer="s4", steps_per_second=5.0),
        next_token_run(0.0, mixer="dss", status="stopped", positions=PositionScores(val_loss=1.0)),
        record(preset="budget"),
    ]
    save_all(tmp_path, runs)
    for run, grows in zip(runs[:3], (0.5, 0.5, 0.0), strict=True):
        for place, length in enumerate(LENGTHS):
            bits = run.positions.bits if run.positions is not None else None
            assert bits is not None
            save_evaluation(tmp_path, run, length, bits + grows * place)
    return Results(tmp_path)


@pytest.fixture
def board(made: Results) -> Board:
    (found,) = position_boards(made.records)
    return found


def test_no_run_is_in_tables_of_accuracies(made: Results, board: Board) -> None:
    (of_examples,) = boards(made.records)
    assert [run.task for run in of_examples.records] == ["listops"]
    assert {run.task for run in board.records} == {"lm"}
    assert board.tasks == ["lm"]
    assert "next tokens of lm" in board.name
    leading = leading_board(boards(made.records))
    assert leading is not None
    assert list(leading.conditions) == ["listops"]


def test_a_row_has_bits_first_and_the_lowest_is_the_best(board: Board) -> None:
    table = position_table(board, "t")
    rows = rows_of(table)
    assert rows["tnn"]["bits per byte"] == "2.050 ± 0.071 (n=2)"
    assert rows["tnn"]["perplexity"] == "4.14 ± 0.20"
    assert rows["tnn"]["accuracy, %"] == "50.00 ± 0.00"
    assert rows["tnn"]["validation loss, nats"] == "1.521 ± 0.049"
    assert rows["tnn"]["minutes"] == "10.0"
    assert rows["s4"]["bits per byte"] == "2.500 (n=1)"
    assert rows["dss"]["bits per byte"] == "stopped"
    assert rows["dss"]["perplexity"] == "-"
    assert rows["trivial baseline: order-0"]["bits per byte"] == "4.620"
    assert rows["trivial baseline: majority class"]["accuracy, %"] == "17.00"
    names = list(rows)
    places = {names[i]: mark for (i, j), mark in table.marks.items() if j == 1}
    assert places == {"tnn": "best", "s4": "second"}
    assert rows["dss"]["validation loss, nats"] == "1.000"
    assert names.index("dss") not in {i for i, _ in table.marks}, "the lowest, but of no result"


def test_an_absurd_loss_is_no_number(tmp_path: Path) -> None:
    lost = scores(2.0).model_copy(update={"loss": None, "bits_per_byte": None, "perplexity": None})
    (found,) = position_boards([next_token_run(2.0, positions=lost), next_token_run(2.0, seed=1)])
    assert rows_of(position_table(found, "t"))["tnn"]["bits per byte"] == "2.000 (n=1)"
    assert lost.text == "loss not finite"


def test_other_text_has_a_table_of_its_own() -> None:
    other = {"source": "official", "fingerprint": "o" * 64, "sizes": {}}
    found = position_boards(
        [next_token_run(2.0), next_token_run(1.0, data=other, overrides=["task.corpus=enwik8"])]
    )
    assert [board.reason for board in found] == ["", "task.corpus=enwik8"]
    slugs = [table.slug for one in found for table in [position_table(one, one.reason)]]
    assert len(set(slugs)) == 2


def test_tasks_never_share_a_board() -> None:
    found = position_boards([next_token_run(2.0), periodic_run(1.35)])
    assert [board.tasks for board in found] == [["lm"], ["periodic"]]


def test_bits_over_length_stand_beside_those_of_the_training(made: Results, board: Board) -> None:
    bits, perplexity = evaluation_tables(made, board, "t")
    rows = rows_of(bits)
    assert rows["tnn"]["as trained"] == "2.050 ± 0.071 (n=2)"
    assert rows["tnn"]["16,384 positions"] == "3.050 ± 0.071 (n=2)"
    assert rows["s4"]["16,384 positions"] == "2.500 (n=1)"
    assert rows["trivial baseline: xz"]["2,048 positions"] == "1.860"
    assert "at up to 512 positions" in bits.caption
    assert bits.caption.startswith("Bits per byte of models")
    assert rows_of(perplexity)["s4"]["2,048 positions"] == "5.66 (n=1)"
    columns, names = bits.headings, list(rows)
    best = {columns[j]: names[i] for (i, j), mark in bits.marks.items() if mark == "best"}
    assert best == {"as trained": "tnn", "512 positions": "tnn", "2,048 positions": "s4",
                    "16,384 positions": "s4"}  # fmt: skip


def test_losses_by_position_are_of_the_test_set_and_of_the_longest_windows(
    made: Results, board: Board
) -> None:
    own, longest = windows_of(board, evaluation_boards(made, board))
    assert (own.name, longest.name) == ("test set", "16,384 positions")
    found = by_position(own.results["s4"])
    assert list(found)[-1] == (256, 511)
    assert found[256, 511].bits == pytest.approx(2.5)
    assert found[0, 0].bits == pytest.approx(2.5 * (2 - 1 / 512))
    assert list(by_position(longest.results["s4"]))[-1] == (8192, 16383)


def test_parts_are_means_over_targets_and_above_the_ideal_predictor() -> None:
    run = periodic_run(1.35)
    (board,) = position_boards([run, periodic_run(1.5, mixer="s4")])
    whole = by_value([run], "period")
    assert (whole["4"].bits, whole["16"].bits) == (pytest.approx(1.2), pytest.approx(1.4))
    parts = [PositionLoss(field="kind", value="a", first=n, last=n, targets=1 + 2 * n, loss=n * LN2)
             for n in (0, 1)]  # fmt: skip
    other = next_token_run(2.0, positions=scores(2.0, by_position=parts))
    assert by_value([other], "kind")["a"].bits == pytest.approx(0.75), "of 4 targets"
    (table,) = metadata_tables(board, windows_of(board, [])[0], "t")
    assert table.headings == ["mixer", "4", "16"], "in order of size"
    assert rows_of(table)["tnn"] == {"mixer": "tnn", "4": "0.200", "16": "0.400"}
    assert rows_of(table)["ideal predictor"]["4"] == "1.000"
    rows = rows_of(position_table(board, "t"))
    assert rows["tnn"]["bits per token"] == "1.350 (n=1)"
    assert rows["tnn"]["above ideal predictor"] == "0.350"
    assert rows["tnn"]["above entropy rate"] == "0.850"
    assert rows["lower bound: entropy rate"]["bits per token"] == "0.500"


def test_a_part_whose_loss_is_not_finite_is_a_hole() -> None:
    parts = [
        PositionLoss(first=n, last=n, targets=1, loss=loss) for n, loss in ((0, None), (1, 1.0))
    ]
    run = next_token_run(2.0, positions=scores(2.0, by_position=parts))
    assert list(by_position([run])) == [(1, 1)]


def test_what_the_ideal_predictor_needs_is_summed_as_losses_are() -> None:
    losses = np.array([[2.0, 6.0], [4.0, 0.0]])
    targets = np.array([[1.0, 2.0], [1.0, 0.0]])
    found = position_losses(losses, targets, {"kind": np.array(["a", "b"])}, losses / 2)
    assert [(one.value, one.first, one.loss, one.ideal) for one in found] == [
        ("", 0, 3.0, 1.5), ("", 1, 3.0, 1.5), ("a", 0, 2.0, 1.0), ("a", 1, 3.0, 1.5),
        ("b", 0, 4.0, 2.0),
    ]  # fmt: skip
    (lost,) = position_losses(np.array([[math.inf]]), np.ones((1, 1)), {})
    assert (lost.loss, lost.ideal) == (None, None)


def test_figures_can_be_read(made: Results, board: Board) -> None:
    figures = [*next_tokens_block(made).figures.values()]
    assert [figure.slug for figure in figures] == [
        "perplexity-lm-over-length-budget-s4",
        "bits-over-position-lm-16-384-positions-budget-s4",
    ]
    for made_figure in [*figures, *bubble_figures(board, "tnn", assign_styles(board.rows), "b")]:
        with style():
            assert overlaps(made_figure.draw()) == []


def test_perplexity_is_drawn_over_length_with_the_trained_one(made: Results, board: Board) -> None:
    figure = next(iter(next_tokens_block(made).figures.values()))
    with style():
        (axes,) = figure.draw().axes
    lines = [np.asarray(line.get_xydata()) for line in axes.lines]
    s4, tnn = [points for points in lines if len(points) == len(LENGTHS)]
    assert s4.tolist() == [[length, pytest.approx(2**2.5)] for length in LENGTHS]
    assert tnn[0].tolist() == [512, pytest.approx((2**2.0 + 2**2.1) / 2)]
    assert [[512, 0], [512, 1]] in [points.tolist() for points in lines], "the trained length"


def test_bubbles_are_of_bits(board: Board) -> None:
    (panel,) = task_panels(board, speeds_on(board, "CPU"))
    assert panel.measured == "bits per byte (lower is better)"
    points = {bubble.method: (bubble.x, bubble.y) for bubble in panel.bubbles}
    assert points["tnn"] == pytest.approx((2.5, 2.05))
    assert points["s4"] == pytest.approx((5.0, 2.5))
    assert len(points) == 2


def test_curves_are_of_the_validation_loss(made: Results, board: Board) -> None:
    run = board.rows["s4"]["lm"].runs[0]
    lines = '{"step": 10, "seconds": 5.0, "val_accuracy": 30.0, "val_loss": %s}\n'
    path = made.path(run) / "metrics.jsonl"
    path.write_text(lines % "1.5" + lines.replace("10", "20") % "NaN")
    found = learning_curve(made, "s4", [run], STEPS, LOSS)
    assert found is not None
    assert found.points == [(10, 1.5)]
    assert not made.faults
    figure = curve_figures(made, board, assign_styles(board.rows), "budget-s4")[0]
    assert figure.slug == "learning-lm-over-steps-budget-s4"
    with style():
        assert figure.draw().axes[0].get_ylabel() == "validation loss, nats"


def test_the_command_prints_bits(made: Results, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--results-dir", str(made.folder), "--format", "html"]
    assert report.main(arguments) == 0
    shown = capsys.readouterr().out
    assert "next tokens of lm: bits per byte, best first" in shown
    assert "2.050 ± 0.071" in shown
    page = (made.folder / "report" / "index.html").read_text()
    assert "2.500 bits per byte, perplexity 5.657" in page
    assert "Published perplexities" in page
    named = make_data(ReportData(made, ReportOptions(published="TNN")), made.folder)
    (sheet,) = next(view["sheets"] for view in named["views"] if view["id"] == "published")
    assert sheet["title"] == "Published results", "what is named is shown alone"


def test_a_paper_has_tables_of_accuracies_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path, next_token_run(2.0))
    assert report.main(["--results-dir", str(tmp_path), "--paper"]) == 2
    said = "--paper writes tables of accuracies, and the runs of lm have none"
    assert said in capsys.readouterr().err


def test_no_perplexities_are_published_of_other_tasks(tmp_path: Path) -> None:
    save(tmp_path, periodic_run(1.35))
    page = make_data(ReportData(Results(tmp_path), ReportOptions()), tmp_path)
    titles = {sheet["title"] for view in page["views"] for sheet in view["sheets"]}
    assert "Published perplexities" not in titles


def test_what_commands_print_of_a_run(made: Results, board: Board) -> None:
    (run,) = board.rows["s4"]["lm"].runs
    text = task_table(made.folder, run, 300)
    (row,) = [line for line in text.splitlines() if line.startswith("| s4 ")]
    assert "2.500 (n=1)" in row and "5.66 (n=1)" in row and "50.00 (n=1)" in row
    assert "measured, %" not in text and "published, %" not in text
    assert "trivial baseline: order-0" in text
    assert run.test_text == "2.500 bits per byte, perplexity 5.657 (50.00 %)"
    first, second = evaluation_text([made.path(run)], 300)[1:]
    assert first.split("  ", maxsplit=1)[1].split()[:5] == ["bits", "per", "byte", "2.500", "2.500"]
    assert "  perplexity  " in second


NEXT_TOKENS = (
    "bits", "out-of-distribution-bits", "bits-by-metadata", "perplexity",
    "by-position-in-longest-windows",
)  # fmt: skip


def next_tokens_block(results: Results) -> Block:
    return make_block(ReportData(results, ReportOptions()), NEXT_TOKENS)


def test_the_readmes_have_a_block(made: Results, tmp_path: Path) -> None:
    block = next_tokens_block(made)
    assert [table.slug for table in block.tables] == [
        "bits-lm-budget-s4", "out-of-distribution-lm-bits-per-byte-budget-s4",
        "out-of-distribution-lm-perplexity-budget-s4",
    ]  # fmt: skip
    kinds = [path.name.partition("-lm-")[0] for path in block.figures]
    assert kinds == ["perplexity", "bits-over-position"]
    perplexity, _ = block.figures
    save_evaluation(tmp_path, next_token_run(2.5, mixer="s4"), 16384, 2.7)
    after = next_tokens_block(Results(tmp_path)).figures
    assert perplexity not in after, "the name of a file tells other numbers"
    alone = [record(), record(mixer="s4")]
    empty = next_tokens_block(Results(save_all(tmp_path / "other", alone)))
    assert empty.text(tmp_path / "x.md") == "No runs yet.\n"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on data of known law, in a results folder beside its data."""
    folder = tmp_path_factory.mktemp("trained")
    start = ["--task", "periodic", "--mixer", "tnn", "--preset", "quick", "--device", "cpu"]
    places = ["--data-dir", str(folder / "data"), "--results-dir", str(folder / "results")]
    kept = [text for text in tiny_settings() if not text.startswith("task.max_length")]
    changes = [part for text in [*kept, "task.sequence_length=64"] for part in ("--set", text)]
    assert run_task.main([*start, *places, *changes]) == 0
    return folder


def test_records_hold_what_the_ideal_predictor_needs_where(trained: Path) -> None:
    (run,) = Results(trained / "results").records
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
    first = next(part for part in parts if not part.field)
    assert (first.first, first.ideal) == (0, pytest.approx(4 * LN2, abs=0.01))


def test_a_drawn_test_set_is_measured_once(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = Results(trained / "results")
    command = [
        "--run", str(results.path(results.records[0])), "--lengths", "64,128", "--examples", "20",
        "--data-dir", str(trained / "data"), "--device", "cpu",
    ]  # fmt: skip
    assert evaluate_main(command) == 0
    told = capsys.readouterr().err
    assert "tnn, 128 positions: " in told and "uniform 4.000 bits" in told
    assert evaluate_main(command) == 0
    assert "tnn, 128 positions: " not in capsys.readouterr().err


def test_validations_tell_bits(trained: Path) -> None:
    results = Results(trained / "results")
    path = results.path(results.records[0]) / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    validations = [line for line in lines if "val_loss" in line]
    assert validations
    assert all(one["val_bits"] == pytest.approx(one["val_loss"] / LN2) for one in validations)
