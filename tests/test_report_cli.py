"""report.py as a user runs it: files, flags and mistakes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import report
from conftest import ROOT
from lra.record.run import folder_of
from lra.report.boards.board import boards
from lra.report.boards.comparison import compare
from lra.report.boards.results import Results
from lra.report.data import ReportData, ReportOptions
from lra.report.page.commands import command
from lra.report.page.page import make_data
from lra.report.page.write import write_report
from lra.report.tables.markdown import escape
from lra.report.tables.table import Table, text_columns
from lra.report.tables.task_table import task_table
from lra.runtime.console import csv_table
from lra.train.training_time import Timings
from made_results import (
    bench_record,
    made_records,
    record,
    save,
    save_all,
    write_metrics,
    write_predictions,
)

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder of 200 records and two measurements."""
    folder = save_all(tmp_path_factory.mktemp("made"), made_records(200))
    for length in (1024, 2048):
        bench_record(length=length).save(folder / "bench")
    return folder


@pytest.fixture(scope="module")
def written(made: Path) -> Path:
    """Its report."""
    out = made / "report"
    write_report(ReportData(Results(made), ReportOptions()), report.FORMATS, out)
    return out


def test_the_report_needs_no_torch() -> None:
    """Its import takes longer than the report."""
    program = "import sys, lra.report.page.write; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0


def test_there_is_a_page_and_a_table_for_each_question(written: Path) -> None:
    names = {path.name for path in written.iterdir()}
    assert names == {
        ".lra-report", "index.html", "runs.csv", "accuracy.csv", "speed.csv", "published.csv"
    }  # fmt: skip
    assert {*(written / ".lra-report").read_text().split()} == names - {".lra-report"}


def test_tables_have_the_numbers_unrounded(made: Path, written: Path) -> None:
    assert len(pd.read_csv(written / "runs.csv")) == 200
    frame = pd.read_csv(written / "accuracy.csv").fillna({"apart_for": ""})
    every = {board.name: board for board in boards(Results(made).records)}
    for row in frame.to_dict("records"):
        reason = f" ({row['apart_for']})" if row["apart_for"] else ""
        board = every[f"Preset {row['preset']}, protocol {row['protocol']}{reason}"]
        cell = board.rows[row["mixer"]][row["task"]]
        assert row["seeds_done"] == len(cell.accuracies)
        assert (row["mean_percent"] == pytest.approx(cell.mean)) or cell.mean is None


def test_a_report_takes_away_what_it_no_longer_has(tmp_path: Path) -> None:
    results = save_all(tmp_path / "r", [record()])
    out = tmp_path / "out"
    (out / "figures").mkdir(parents=True)
    for name in ("thesis.tex", "figures/mine.png", "figures/old.svg"):
        (out / name).write_text("there")
    (out / ".lra-report").write_bytes(
        b"thesis.tex\nfigures/old.svg\n\n../r\n/etc/hosts\nfigures/../thesis.tex\n\xff\n"
    )
    assert report.main(["--results-dir", str(results), "--out", str(out)]) == 0
    assert report.main(["--results-dir", str(results), "--out", str(out), "--format", "csv"]) == 0
    left = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    assert left == {
        ".lra-report", "runs.csv", "accuracy.csv", "speed.csv", "published.csv", "thesis.tex",
        "figures/mine.png",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("[l](javascript:x)", r"[l\](javascript:x)"),
        (r"[l\](javascript:x)", r"[l\\\](javascript:x)"),
        ("![i](x) [a][b]", r"\![i\](x) [a\][b]"),
        ("[b]: javascript:x", r"[b\]: javascript:x"),
        ("<a|b>", r"&lt;a\|b>"),
        ("**x** [settings 1a2b] max_depth=20", r"\*\*x\*\* [settings 1a2b] max_depth=20"),
    ],
)  # fmt: skip
def test_text_in_markdown_makes_no_links(text: str, written: str) -> None:
    assert escape(text) == written
    table = Table(
        slug="t", title="t", caption="t", columns=text_columns(["mixer", text], [[text, "1"]])
    )
    assert table.markdown().count(written) == 2


def test_formulas_in_csv_are_text_in_headers_too() -> None:
    text = csv_table(pd.DataFrame({"=a()": ["@b", "1"], "c": [-1.5, 2.0]}))
    assert text == "'=a(),c\n'@b,-1.5\n1,2.0\n"


@pytest.mark.parametrize("content", ['{"half', "", '{"schema_version": 99}', "[]", "\x00\xff"])
def test_what_cannot_be_read_is_named_and_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    save(tmp_path, record())
    broken = save(tmp_path, record(run_id="other"))
    broken.write_text(content)
    assert report.main(["--results-dir", str(tmp_path)]) == 1
    captured = capsys.readouterr()
    assert f"left out: {broken}: not a record of schema 2" in captured.err
    assert "tnn 40.00" in " ".join(captured.out.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--results-dir", "nowhere"], "there is no folder nowhere"),
        (["--format", "html,pdf"], "unknown format 'pdf' (valid: csv, html)"),
        (["--published", "TNM"], "did you mean TNN?"),
        (["--relative-to", "tnm"], "--relative-to: unknown mixer"),
        (["--compare", "tnn"], "expected two different mixers"),
        (["--compare", "tnn", "s4"], "tnn and s4 have no seed in common that is finished and has"),
        (["--compare", "tnn", "s5"], "unknown mixer among the runs 's5'"),
        (["--preset", "papr"], "did you mean paper?"),
        (["--preset", "nosuch"], "unknown preset among the runs 'nosuch' (valid: paper)"),
        (["--protocol", "lra"], "(valid: s4)"),
        (["--out", "file"], "is a file, expected a folder"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    save_all(tmp_path / "results", [record(), record(mixer="s4")])
    bench_record(mode="op", part="mixing", task=None, preset=None, protocol=None).save(
        tmp_path / "results" / "bench"
    )
    (tmp_path / "file").touch()
    assert report.main(arguments) == 2
    captured = capsys.readouterr()
    last = captured.err.strip().splitlines()[-1]
    assert last.startswith("report.py: error: ")
    assert message in last


def paired(results: Path) -> None:
    """Two mixers, two seeds, 100 examples: the first is right on 60, the second on 50 of them."""
    runs = [
        record(mixer=mixer, run_id=f"abc-s{seed}", seed=seed, test_accuracy=float(right),
               test_correct=right, test_total=100)
        for mixer, right in (("tnn", 60), ("s4", 50))
        for seed in (0, 1)
    ]  # fmt: skip
    save_all(results, runs)
    for run in runs:
        rows = [(1, int(i < (run.test_correct or 0)), 7) for i in range(100)]
        write_predictions(results, run, rows)
        write_metrics(results, run, [30.0, 40.0])


def test_comparison_by_examples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paired(tmp_path)
    arguments = ["--results-dir", str(tmp_path), "--compare", "tnn", "s4"]
    assert report.main(arguments) == 0
    shown = capsys.readouterr().out
    assert "+10.00" in shown
    assert "tnn is better" in shown
    assert not (tmp_path / "report").exists(), "what is asked for is made, and nothing else"


def test_mcnemar_is_exact() -> None:
    import numpy as np

    first, second = np.array([1] * 9 + [0] * 2 + [1] * 50), np.array([0] * 9 + [1] * 2 + [1] * 50)
    found = compare([first], [second], [0])
    # Two-sided: twice the chance of 2 heads or fewer in 11 throws.
    assert found.p_value == pytest.approx(2 * (1 + 11 + 55) / 2**11)
    assert found.seed_deviation is None
    same = compare([first, first], [first, first], [0, 1])
    assert (same.difference, same.low, same.high, same.p_value) == (0, 0, 0, 1)
    assert same.is_noise


def test_only_runs_on_the_same_examples_are_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paired(tmp_path)
    run = record(mixer="s4", run_id="abc-s1", seed=1, test_accuracy=50.0, test_total=100)
    write_predictions(tmp_path, run, [(0, int(i < 50), 7) for i in range(100)])
    assert report.main(["--results-dir", str(tmp_path), "--compare", "tnn", "s4"]) == 1
    captured = capsys.readouterr()
    assert "its predictions are of other examples" in captured.err
    assert re.search(r"listops +\+10.00 .* 1 +0.002 +tnn is better", captured.out)


def test_damaged_predictions_and_metrics_never_end_a_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paired(tmp_path)
    (first, *others) = sorted(tmp_path.glob("runs/*/*/*"))
    (first / "predictions.csv").write_bytes(b"\xff\x00,\n1")
    (first / "metrics.jsonl").write_bytes(b"\xff\n[]\n" + b'{"step": ' + b"9" * 400 + b"}\n")
    rows = "".join(f"1,{int(i < 50)},7,{'None' if i % 3 else ''}\n" for i in range(100))
    (others[0] / "predictions.csv").write_text("label,prediction,length,kind/../$x$ <b>\n" + rows)
    (others[1] / "predictions.csv").write_text("")
    assert report.main(["--results-dir", str(tmp_path)]) == 1
    assert "(and 2 others)" in capsys.readouterr().err
    assert report.main(["--results-dir", str(tmp_path), "--compare", "tnn", "s4"]) == 2


def test_ones_own_run_takes_the_place_of_the_shipped_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_all(tmp_path / "shipped", [record(), record(mixer="s4"), record(mixer="mean")])
    save_all(tmp_path, [record(test_accuracy=50.0)])
    for root, speed in ((tmp_path / "shipped", 1.0), (tmp_path, 3.0)):
        bench_record(steps_per_second=speed).save(root / "bench")
    assert report.main(["--results-dir", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "> tnn                    50.00\n  mean                   40.00\n" in out
    results = Results(tmp_path)
    assert sorted((r.mixer, r.test_accuracy) for r in results.records) == [
        ("mean", 40.0), ("s4", 40.0), ("tnn", 50.0)
    ]  # fmt: skip
    assert [r.steps_per_second for r in results.bench] == [3.0]
    page = make_data(ReportData(results, ReportOptions()), tmp_path / "report")
    records = [run["record"] for run in page["runs"].values()]
    assert len(records) == 4
    assert all((tmp_path / "report" / link).is_file() for link in records)


@pytest.mark.parametrize("status", ["stopped", "oom", "diverged"])
def test_a_shipped_result_stands_beside_ones_own_unfinished_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], status: str
) -> None:
    """It is in tables, on the page and in the files of numbers, and both runs are listed."""
    shipped = record(device="CPU A")
    mine = record(status=status, steps=5, total_steps=1500, steps_per_second=3.5, device="CPU A")
    save_all(tmp_path / "shipped", [shipped, record(mixer="s4", status="stopped")])
    save_all(tmp_path, [mine, record(mixer="s4", status="oom")])
    shown = f"your run: {status} at step 5 of 1,500"
    assert f"| 40.00 (n=1; {shown}" in task_table(tmp_path, mine, 300)
    assert report.main(["--results-dir", str(tmp_path)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "> tnn 40.00 a" in out
    assert f"a: {shown}" in out
    results = Results(tmp_path)
    assert [(r.mixer, r.status) for r in results.records] == [
        ("tnn", "done"), ("s4", "oom"), ("tnn", status)
    ]  # fmt: skip
    assert {results.path(r) for r in results.records if r.mixer == "tnn"} == {
        folder_of(tmp_path / "shipped", shipped), folder_of(tmp_path, mine)
    }  # fmt: skip
    frame = pd.read_csv(tmp_path / "report" / "accuracy.csv")
    (row,) = (row for row in frame.to_dict("records") if row["mixer"] == "tnn")
    assert (row["mean_percent"], row["seeds_done"]) == (40.0, 1)
    assert row["not_done"] == shown
    page = make_data(ReportData(results, ReportOptions()), tmp_path / "report")
    records = {run["record"] for run in page["runs"].values()}
    assert len(records) == len(page["runs"]) == 3
    assert all((tmp_path / "report" / link).is_file() for link in records)
    timings = Timings.read(tmp_path)
    assert [run.steps_per_second for run in timings.runs if run.mixer == "tnn"] == [3.5, 2.5]


def test_commands_repeat_runs() -> None:
    run = record(overrides=["mixer.decay=0.9", "task.train=20"], seed=3, mixer="M",
                 mixer_code="0" * 16, mixer_from="my file.py:M")  # fmt: skip
    assert command(run) == (
        "python run_task.py --task listops --mixer 'my file.py:M' --preset paper --protocol s4 "
        "--seed 3 --set mixer.decay=0.9 --set task.train=20"
    )
