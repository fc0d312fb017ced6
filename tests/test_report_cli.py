"""report.py as a user runs it: files, flags and mistakes."""

import csv
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from conftest import ROOT
from lra.record.__main__ import main as export
from lra.record.run import folder_of
from lra.report import __main__ as report
from lra.report.data import Data
from lra.report.page.page import describe_runs
from lra.report.tables.table import Table, escape, text_column
from lra.train.run_folder import RunFolder
from made_results import bench_record, made_records, record, save, save_all, write_predictions


def test_the_report_needs_no_torch() -> None:
    """Its import takes longer than the report."""
    program = "import sys, lra.report.page.page; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0


def facts_of(path: Path) -> dict[tuple[str, str, str], dict[str, str]]:
    with path.open() as file:
        return {(one["table"], one["row"], one["column"]): one for one in csv.DictReader(file)}


def test_a_report_is_a_page_and_tables_of_unrounded_numbers(tmp_path: Path) -> None:
    bench_record().save(save_all(tmp_path, made_records(200)) / "bench")
    assert report.main(["--results-dir", str(tmp_path)]) == 0
    out, data = tmp_path / "report", Data(tmp_path)
    views = ("runs", "results", "length", "probes", "speed", "published")
    names = {"index.html", *(f"{view}.csv" for view in views)}
    assert {path.name for path in out.iterdir()} == names
    assert len(pd.read_csv(out / "runs.csv")) == 200
    facts = facts_of(out / "results.csv")
    for board in data.boards:
        for row, cells in board.rows.items():
            for task, cell in cells.items():
                if cell.entry().value is not None:
                    fact = facts[board.name, row, task]
                    assert float(fact["value"]) == pytest.approx(cell.entry().value, rel=1e-12)
                    assert float(fact["seeds"]) == cell.entry().seeds


def test_no_text_in_csv_is_a_formula(tmp_path: Path) -> None:
    """Numbers stay numbers, also as text, and predictions are read as they were."""
    words = np.array(["=1", "'=1", "''+a", "-1e3", "@", "-", "a=", "'"])
    split: Any = SimpleNamespace(
        labels=np.zeros(8, int), lengths=np.ones(8, int), metadata=lambda: {"=w": words}
    )
    columns = {"label": split.labels, "prediction": split.labels}
    run = record(label="=1+1", device="@a", settings={"mixer.a": "-x", "mixer.b": "-1e-3"},
                 test_correct=8, test_total=8, test_accuracy=100.0)  # fmt: skip
    save(tmp_path, run)
    RunFolder(folder_of(tmp_path, run)).save_predictions(split, columns)
    read = Data(tmp_path).predictions(run)
    assert read is not None and read.metadata["=w"].tolist() == words.tolist()
    assert report.main(["--results-dir", str(tmp_path), "--format", "csv"]) == 0
    assert export(["export", "--results-dir", str(tmp_path), "--csv", str(tmp_path / "x.csv")]) == 0
    files = {path.name: path.read_text() for path in tmp_path.rglob("*.csv")}
    assert {"predictions.csv", "runs.csv", "results.csv", "x.csv"} <= files.keys()
    cells = {
        cell
        for text in files.values()
        for line in csv.reader([*text.splitlines()])
        for cell in line
    }
    assert {"'=1+1", "'@a", "'-x", "-1e-3", "'=w", "'=1", "''=1", "'''+a", "-1e3"} <= cells
    for cell in cells:
        assert cell[:1] not in [*"=+@-\t\r"] or float(cell)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("[l](javascript:x)", r"[l\](javascript:x)"),
        ("<a|b> **x** [settings 1a2b] max_depth=20",
         r"&lt;a\|b> \*\*x\*\* [settings 1a2b] max_depth=20"),
    ],
)  # fmt: skip
def test_text_in_markdown_makes_no_links(text: str, written: str) -> None:
    assert escape(text) == written
    columns = [text_column("mixer", [text]), text_column(text, ["1"])]
    assert Table("t", text, text, columns, notes=[text]).block().count(written) == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--results-dir", "nowhere"], "there is no folder nowhere"),
        (["--published", "TNM"], "did you mean TNN?"),
        (["--relative-to", "tnm"], "--relative-to: unknown mixer"),
        (["--compare", "tnn", "s4"], "tnn and s4 have no seed in common that is finished and has"),
        (["--out", "file"], "is a file, expected a folder"),
        (["--rows", "tnn"], "--rows has no effect without --paper"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    alone = bench_record(mode="op", part="mixing", task=None, preset=None, protocol=None)
    alone.save(save_all(tmp_path / "results", [record(), record(mixer="s4")]) / "bench")
    (tmp_path / "file").touch()
    assert report.main(arguments) == 2
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("report.py: error: ")
    assert message in last


def paired(results: Path) -> None:
    """Two mixers, two seeds, 100 examples: the first is right on 60, the second on 50 of them."""
    for mixer, right, seed in (("tnn", 60, 0), ("tnn", 60, 1), ("s4", 50, 0), ("s4", 50, 1)):
        values = {"run_id": f"abc-s{seed}", "seed": seed, "test_accuracy": right}
        run = record(mixer=mixer, test_total=100, **values)
        save(results, run)
        write_predictions(results, run, [(1, int(i < right), 7) for i in range(100)])


def test_only_runs_on_the_same_examples_are_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paired(tmp_path)
    arguments = ["--results-dir", str(tmp_path), "--compare", "tnn", "s4"]
    assert report.main(arguments) == 0
    assert re.search(r"listops +\+10.00 .* 2 .* +tnn is better", capsys.readouterr().out)
    run = record(mixer="s4", run_id="abc-s1", seed=1, test_accuracy=50.0, test_total=100)
    write_predictions(tmp_path, run, [(0, int(i < 50), 7) for i in range(100)])
    assert report.main(arguments) == 1
    captured = capsys.readouterr()
    assert "its predictions are of other examples" in captured.err
    assert re.search(r"listops +\+10.00 .* 1 +0.002 +tnn is better", captured.out)
    assert not (tmp_path / "report").exists(), "what is asked for is made, and nothing else"


def test_a_shipped_result_stands_beside_ones_own_unfinished_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is in tables, on the page and in the files of numbers, and both runs are listed."""
    shipped = record(device="CPU A")
    mine = record(status="stopped", steps=5, total_steps=1500, steps_per_second=3.5, device="CPU A")
    save_all(tmp_path / "shipped", [shipped, record(mixer="s4")])
    save_all(tmp_path, [mine, record(mixer="s4", test_accuracy=50.0)])  # takes the other's place
    for root, speed in ((tmp_path / "shipped", 1.0), (tmp_path, 3.0)):
        bench_record(steps_per_second=speed).save(root / "bench")
    shown = "your run: stopped at step 5 of 1,500"
    assert report.main(["--results-dir", str(tmp_path), "--format", "csv"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert re.search(r"s4 50\.00 .*tnn 40\.00 a", text)
    assert f"a: {shown}" in text
    data = Data(tmp_path)
    assert {data.path(r) for r in data.records if r.mixer == "tnn"} == {
        folder_of(tmp_path / "shipped", shipped), folder_of(tmp_path, mine)
    }  # fmt: skip
    fact = facts_of(tmp_path / "report" / "results.csv")[data.boards[0].name, "tnn", "listops"]
    assert (fact["value"], fact["remarks"]) == ("40.0", shown)
    assert len(describe_runs(data, tmp_path / "report")["runs"]) == 4
    assert not (tmp_path / "report" / "index.html").exists(), "only the format asked for"
    assert [r.steps_per_second for r in data.bench] == [3.0]


def test_an_unknown_format_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        report.main(["--results-dir", str(tmp_path), "--format", "html,pdf"])
    assert "got 'html,pdf', expected html, csv or html,csv" in capsys.readouterr().err
