"""Results of very many rows: what figures draw of them, and that the work grows with the runs."""

from __future__ import annotations

import cProfile
import logging
import pstats
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
from matplotlib.figure import Figure

import lra.report.boards.results as boards_results
from figure_checks import texts_of
from lra.record.evaluation import EvaluationRecord
from lra.record.run import RunRecord, folder_of
from lra.report.boards.board import boards
from lra.report.boards.evaluations import evaluation_boards
from lra.report.boards.results import Results
from lra.report.boards.row_names import RowNames
from lra.report.boards.speeds import speed_boards
from lra.report.data import ReportData, ReportOptions, make_chapters
from lra.report.contents import CHAPTERS
from lra.report.figures import best_rows, kernels
from lra.report.figures.best_rows import MOST_NAMED, MOST_ROWS, choose_rows, rank, rank_in_turn
from lra.report.figures.breakdown import MOST_FIELDS, breakdown_figures
from lra.report.figures.bubbles import bubble_figures
from lra.report.figures.curves import curve_figures
from lra.report.figures.drawing import ReportFigure, new_figure, style
from lra.report.figures.kernels import kernel_figures
from lra.report.figures.layers import layer_figures
from lra.report.figures.out_of_distribution import evaluation_figures
from lra.report.figures.scaling import scaling_figures
from lra.report.figures.styles import assign_styles
from lra.report.page import write as build
from lra.report.page.write import CONTENTS, write_report
from made_results import (
    bench_record,
    next_token_run,
    record,
    save_all,
    save_evaluation,
    write_metrics,
    write_predictions,
)

FEW = 4
"""Rows that a figure draws here."""
ROWS = 9
BEST = {"m5", "m6", "m7", "m8"}
NOTE = f"Of {ROWS} rows, figures draw the {FEW} best by "


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures draw FEW rows, so that drawing them takes little time."""
    monkeypatch.setattr(best_rows, "MOST_ROWS", FEW)


def sweep(folder: Path, rows: int) -> None:
    """Write runs of a mixer on two tasks, each row of other settings."""
    runs = [
        record(
            run_id=f"{row:04x}-s0", task=task, config_hash=f"{row:04x}",
            overrides=[f"train.lr={row}.5"], steps_per_second=1.0 + row,
            test_accuracy=20.0 + row % 60, test_total=100,
        )
        for task in ("listops", "image")
        for row in range(rows)
    ]  # fmt: skip
    save_all(folder, runs)
    for run in runs:
        write_metrics(folder, run, [30.0, 40.0])
        write_predictions(
            folder, run, [(0, int(k >= (run.test_correct or 0)), 3) for k in range(100)]
        )


def mixers(*, status: str = "done", **changes: object) -> list[RunRecord]:
    """Make a run of each of ROWS mixers; a later one is better."""
    return [
        record(
            mixer=f"m{k}", test_accuracy=40.0 + k, test_total=100, steps_per_second=1.0 + k,
            **changes,
        )
        for k in range(ROWS)
    ]  # fmt: skip


def names_in(figure: Figure) -> set[str]:
    """Return the mixers that a figure names."""
    words = [word for text in texts_of(figure) for word in text.get_text().split()]
    return {f"m{k}" for k in range(ROWS)} & {word.rstrip(",") for word in words}


def draws_the_best(figures: Sequence[ReportFigure], best: set[str] = BEST) -> None:
    """Hold figures to the rows that they name, and to the caption on the others."""
    assert figures
    for made in figures:
        assert NOTE in made.caption
        left_out = {f"m{k}" for k in range(ROWS)} - best
        _, _, named = made.caption.partition(f"leave out the other {ROWS - FEW}: ")
        assert {text.partition(",")[0] for text in named.partition(".")[0].split("; ")} == left_out
        arguments = repr(made.draw.args)
        assert " at 0x" not in arguments, "the digest is of values"
        assert not [name for name in left_out if repr(name) in arguments], "nor of other rows"
        with style():
            assert names_in(made.draw()) == best, made.slug


def test_rows_are_chosen_by_rank_and_stay_in_their_order() -> None:
    names = [f"row {k:02}" for k in range(MOST_ROWS + 2)]
    values = {name: float(k) for k, name in enumerate(names)}
    everything, silent = choose_rows(dict.fromkeys(names[2:]), rank(values, "speed"))
    assert (list(everything), silent) == (names[2:], "")
    best, note = choose_rows(values, rank(values, "speed"))
    assert list(best) == names[2:]
    assert note == (
        f" Of {MOST_ROWS + 2} rows, figures draw the {MOST_ROWS} best by speed, and leave out the "
        f"other 2: row 01; row 00."
    )
    lowest, _ = choose_rows(values, rank(values, "bits", lowest_is_best=True))
    assert list(lowest) == names[:-2]
    several = {f"row {k}": k for k in range(MOST_ROWS + MOST_NAMED + 1_000)}
    _, note = choose_rows(several, rank(several, "speed"))
    assert "leave out the other 1,010: row 1009; row 1008; " in note
    assert note.endswith("; row 1000; and 1,000 more.")
    without = {**values, names[-1]: None}
    assert names[-1] == rank(without, "speed").best_first[-1], "no value is worse than any"


def test_each_panel_has_its_best_rows() -> None:
    found = rank_in_turn([rank({"a": 1, "b": 2}, ""), rank({"c": 1, "b": 3, "d": 2}, "")], "x")
    assert found.best_first == ["b", "a", "d", "c"]


@pytest.mark.usefixtures("few")
def test_curves_breakdowns_and_bubbles_draw_the_best_rows(tmp_path: Path) -> None:
    runs = mixers()
    save_all(tmp_path, runs)
    for run in runs:
        write_metrics(tmp_path, run, [30.0, 40.0])
        right = run.test_correct or 0
        rows = [(0, int(k >= right), 3 + k % 2, "AB"[k % 2]) for k in range(100)]
        write_predictions(tmp_path, run, rows, "word")
    results = Results(tmp_path)
    (board,) = boards(results.records)
    styles = assign_styles(board.rows)
    draws_the_best(curve_figures(results, board, styles, "x"))
    draws_the_best(breakdown_figures(results, board, styles, "x"))
    draws_the_best(bubble_figures(board, "none", styles, "x"))
    (relative,) = bubble_figures(board, "m0", styles, "x")
    draws_the_best([relative], {"m0", "m6", "m7", "m8"})


@pytest.mark.usefixtures("few")
def test_only_predictions_that_are_drawn_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = mixers()
    save_all(tmp_path, runs)
    for run in runs[:-2]:
        write_predictions(tmp_path, run, [(0, 0, 3)])
    read: list[str] = []
    monkeypatch.setattr(Results, "_read_predictions", lambda _, run, __: read.append(run.mixer))
    results = Results(tmp_path)
    (board,) = boards(results.records)
    breakdown_figures(results, board, assign_styles(board.rows), "x")
    assert read == ["m3", "m4", "m5", "m6"], "the best ones of those that have any"


def test_figures_show_the_first_of_very_many_metadata_fields(tmp_path: Path) -> None:
    run = record(test_accuracy=50.0, test_total=40)
    save_all(tmp_path, [run])
    names = [f"field {k}" for k in range(300)]
    rows = [(0, int(k >= 20), 5, *[k // 10] * len(names)) for k in range(40)]
    write_predictions(tmp_path, run, rows, *names)
    results = Results(tmp_path)
    (board,) = boards(results.records)
    *by_field, confusions = breakdown_figures(results, board, assign_styles(board.rows), "x")
    # The length comes first, and is not drawn where all examples are as long.
    assert [f.title for f in by_field] == [
        f"listops: accuracy by {name}" for name in names[: MOST_FIELDS - 1]
    ]
    note = f"Figures show the first {MOST_FIELDS} of 301 metadata fields."
    assert all(note in figure.caption for figure in by_field)
    assert "confusions" in confusions.title


@pytest.mark.usefixtures("few")
def test_models_on_other_data_draw_the_best_rows(tmp_path: Path) -> None:
    runs = mixers()
    save_all(tmp_path, runs)
    for run in runs:
        for length, changes in (
            (4096, {}),
            (8192, {}),
            (None, {"task.x": 1}),
            (None, {"task.x": 2}),
        ):
            EvaluationRecord(
                run_id=run.run_id, task=run.task, mixer=run.mixer, seed=0, config_hash="abc",
                length=length, changes=changes, trained_length=run.length,
                test_accuracy=50.0, test_correct=50, test_total=100, loss=1.0, baselines={},
                largest_class=17.0, examples_per_second=9.0, device="CPU", precision="fp32",
                versions={}, git={},
                data=run.data.model_copy(update={"fingerprint": f"{length} {changes}"}),
            ).save(folder_of(tmp_path, run))  # fmt: skip
    results = Results(tmp_path)
    (board,) = boards(results.records)
    (evaluated,) = evaluation_boards(results, board)
    draws_the_best(evaluation_figures(evaluated, assign_styles(board.rows), "x"))


@pytest.mark.usefixtures("few")
def test_figures_of_bits_draw_the_rows_of_fewest(tmp_path: Path) -> None:
    runs = [next_token_run(2.0 + k / 10, mixer=f"m{k}") for k in range(ROWS)]
    save_all(tmp_path, runs)
    for run in runs:
        write_metrics(tmp_path, run, [30.0, 40.0])
        for length in (512, 2048):
            save_evaluation(tmp_path, run, length, 2.0)
    results = Results(tmp_path)
    made = make_chapters(CHAPTERS, ReportData(results, ReportOptions()))[0]
    draws_the_best(made.figures, {"m0", "m1", "m2", "m3"})


@pytest.mark.usefixtures("few")
def test_figures_of_speeds_draw_the_fastest_rows() -> None:
    (board,) = speed_boards([*mixers(), *mixers(length=64)])
    draws_the_best(scaling_figures(board, assign_styles(board.rows)))
    measured = [
        bench_record(
            mode="pretraining", task="lm", mixer=f"m{k}", objective="next", rpe_layers=layers,
            rounds_rpe_layers=(3, 6), steps_per_second=1.0 + k,
        )
        for k in range(ROWS)
        for layers in (3, 6)
    ]  # fmt: skip
    styles = assign_styles(f"m{k}" for k in range(ROWS))
    draws_the_best(layer_figures(measured, RowNames([], measured), styles))


@pytest.mark.usefixtures("few")
def test_models_of_the_best_rows_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = mixers()
    save_all(tmp_path, runs)
    for run in runs:
        (folder_of(tmp_path, run) / "checkpoints").mkdir()
    monkeypatch.setattr(kernels, "trained_model", lambda *_: True)
    monkeypatch.setattr(kernels, "learned_kernels", lambda _: [True])
    results = Results(tmp_path)
    (board,) = boards(results.records)
    made = kernel_figures(results, board, "x")
    assert [figure.title[-2:] for figure in made] == sorted(BEST)
    assert all(NOTE in figure.caption for figure in made)


def calls_of(work: Callable[[], object]) -> int:
    """Count the calls of functions."""
    profile = cProfile.Profile()
    profile.runcall(work)
    return pstats.Stats(profile).total_calls  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.usefixtures("few")
def test_work_grows_with_the_number_of_runs_and_figures_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls are counted, not seconds: work over pairs of rows would make four times as many."""
    image = b'<svg viewBox="0 0 1 1"/>'
    monkeypatch.setattr(ReportFigure, "files", lambda figure: {f"{figure.slug}.svg": image})
    monkeypatch.setattr(build, "FIGURES_A_WORKER", 100)  # all in this process
    read: list[str] = []
    for name in ("read_metrics", "read_predictions"):
        reads = getattr(boards_results, name)
        monkeypatch.setattr(
            boards_results, name, lambda *a, n=name, r=reads: [read.append(n), r(*a)][1]
        )

    calls: dict[int, int] = {}
    files: dict[int, list[str]] = {}
    for rows in (1, 60, 120):  # the first report loads what the others use
        folder, out = tmp_path / str(rows), tmp_path / f"report {rows}"
        sweep(folder, rows)
        read.clear()
        calls[rows] = calls_of(lambda f=folder, o=out: report_of(f, o))
        files[rows] = (out / CONTENTS).read_text().splitlines()
        assert read.count("read_metrics") == 2 * rows, "each file once"
        assert read.count("read_predictions") == 2 * min(rows, FEW)
    assert calls[120] < 2.2 * calls[60]
    assert files[120] == files[60], "no figure for each row"


def report_of(folder: Path, out: Path) -> None:
    write_report(ReportData(Results(folder), ReportOptions()), ("csv", "html"), out)


def test_without_a_terminal_lines_say_how_many_figures_are_drawn(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(build, "SECONDS_BETWEEN_LINES", 0.0)
    monkeypatch.setattr(build, "FIGURES_A_WORKER", 100)
    monkeypatch.setattr(ReportFigure, "files", lambda figure: {figure.slug: b""})
    made = [ReportFigure(f"f{k}", "", "", partial(new_figure)) for k in range(2)]
    with caplog.at_level(logging.INFO):
        assert build._draw_all(made) == [{"f0": b""}, {"f1": b""}]
    lines = [line for line in caplog.messages if "of 2 figures" in line]
    assert lines == ["drawing: 1 of 2 figures", "drawing: 2 of 2 figures"]
