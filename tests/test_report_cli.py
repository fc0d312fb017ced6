"""report.py as a user runs it: files, flags and mistakes."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest

import report
from conftest import ROOT
from lra.record.run import folder_of
from lra.report.boards.board import boards
from lra.report.boards.comparison import compare
from lra.report.boards.results import Results
from lra.report.data import ReportData, ReportOptions, make_chapters
from lra.report.contents import CHAPTERS
from lra.report.page.commands import command
from lra.report.page.write import FORMATS, write_report
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
from written_page import read_page

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
    write_report(ReportData(Results(made), ReportOptions()), FORMATS, out)
    return out


def test_drawing_needs_no_torch() -> None:
    """Its import takes longer than many figures, and every process that draws would do it."""
    program = "import sys, lra.report.page.write; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0


def test_all_files_are_there(written: Path) -> None:
    names = {path.relative_to(written).as_posix() for path in written.rglob("*") if path.is_file()}
    assert {"report.md", "index.html", ".lra-report", "tables/published.tex"} <= names
    assert set((written / ".lra-report").read_text().split()) == names - {".lra-report"}
    figures = {name for name in names if name.startswith("figures/")}
    assert len(figures) == 2 * len({Path(name).stem for name in figures}) > 0


@pytest.mark.parametrize("kind", ["markdown", "latex", "csv"])
def test_tables_are_golden(made: Path, kind: str, request: pytest.FixtureRequest) -> None:
    """To the letter; `pytest --write-golden` after a change that is meant."""
    made_sections = make_chapters(CHAPTERS, ReportData(Results(made), ReportOptions()))
    tables = [table for chapter in made_sections for table in chapter.tables]
    text = "\n".join(getattr(table, kind)() for table in tables)
    path = GOLDEN / f"tables.{kind}"
    if request.config.getoption("--write-golden"):
        path.write_text(text)
    assert text == path.read_text()


def test_latex_compiles(written: Path, tmp_path: Path) -> None:
    program = next((p for p in ("tectonic", "pdflatex") if shutil.which(p)), None)
    parts = sorted((written / "tables").glob("*.tex"))
    body = "\n".join(path.read_text() for path in parts)
    assert body.count("\\begin{tabular}") == body.count("\\end{tabular}") == len(parts)
    for line in body.splitlines():
        if line.endswith("\\\\"):
            assert re.sub(r"\\.", "", line).count("$") % 2 == 0
    if program is None:
        pytest.skip("needs tectonic or pdflatex; only the structure was checked")
    source = "\\documentclass{article}\\usepackage{booktabs}\\begin{document}\\small\n"
    (tmp_path / "all.tex").write_text(
        source + body.replace("\\end{table}", "\\end{table}\\clearpage") + "\\end{document}\n"
    )
    flags = ["-interaction=nonstopmode", "-halt-on-error"] if program == "pdflatex" else []
    done = subprocess.run(
        [program, *flags, "all.tex"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:]


def test_special_characters_survive_every_form() -> None:
    odd = r"a_b & c% $1 #2 {x} ~ ^ \ <b> | é ±"
    table = Table(
        slug="odd", title=odd, caption=odd, columns=text_columns(["mixer", "x"], [[odd, "1"]])
    )
    assert "<b>" not in table.html().replace("<thead>", "").replace("<tbody>", "")
    assert r"a\_b \& c\% \$1 \#2 \{x\}" in table.latex()
    assert r"&lt;b> \| é" in table.markdown()


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


class _Page(HTMLParser):
    """What a browser would ask for, and what is linked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.ids += [values["id"] or ""] if "id" in values else []
        if tag == "a":
            self.links.append(values["href"] or "")
        elif "src" in values or "href" in values:
            self.asked.append(values.get("src") or values.get("href") or "")


def test_the_page_needs_no_other_file_and_links_every_number(made: Path, written: Path) -> None:
    page = _Page()
    text = read_page(written / "index.html")
    page.feed(text)
    assert not page.asked
    figures = re.findall("<svg.*?</svg>", text, re.DOTALL)
    assert figures
    for figure in figures:
        ET.fromstring(figure)
    assert len(page.ids) == len(set(page.ids))
    inside = {link[1:] for link in page.links if link.startswith("#")}
    assert inside <= set(page.ids)
    records = [link for link in page.links if link.endswith("result.json")]
    assert len(records) == 200
    assert all((written / link).is_file() for link in records)
    measured = [link for link in page.links if "/bench/" in link]
    assert len(measured) == 2
    assert all((written / link).is_file() for link in measured)
    cells_measured = sum(
        len(cells) for board in boards(Results(made).records) for cells in board.rows.values()
    )
    assert sum(link.startswith("#run-") for link in page.links) >= cells_measured


def test_the_csv_has_the_numbers_unrounded(made: Path, written: Path) -> None:
    frame = pd.read_csv(written / "tables" / "accuracy-paper-s4.csv")
    (board, *_) = boards(Results(made).records)
    for row in frame.to_dict("records"):
        cell = board.rows[row["mixer"]][row["task"]]
        assert row["seeds_done"] == len(cell.accuracies)
        assert (row["mean_percent"] == pytest.approx(cell.mean)) or cell.mean is None


def test_a_report_takes_away_what_it_no_longer_has(tmp_path: Path) -> None:
    results = save_all(tmp_path / "r", [record(), record(mixer="s4")])
    out = tmp_path / "out"
    own = out / "figures" / "mine.png"
    own.parent.mkdir(parents=True)
    own.write_text("the user's")
    (out / "thesis.tex").write_text("the user's")
    (out / ".lra-report").write_bytes(
        b"thesis.tex\n\n../r\n/etc/hosts\nfigures/../thesis.tex\n\xff\n"
    )
    write_report(ReportData(Results(results), ReportOptions()), FORMATS, out)
    before = {path.name for path in (out / "figures").iterdir()}
    shutil.rmtree(results / "runs" / "listops" / "s4")
    write_report(ReportData(Results(results), ReportOptions()), ["csv"], out)
    assert {path.name for path in (out / "figures").iterdir()} < before
    assert own.read_text() == (out / "thesis.tex").read_text() == "the user's"
    assert not (out / "index.html").exists()


def test_the_same_records_make_the_same_bytes(tmp_path: Path) -> None:
    results = save_all(tmp_path / "r", made_records(80))
    trees = []
    for name in ("a", "b"):
        out = results / name
        write_report(ReportData(Results(results), ReportOptions()), FORMATS, out)
        trees.append({p.relative_to(out): p.read_bytes() for p in out.rglob("*") if p.is_file()})
    assert trees[0] == trees[1]


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


def test_a_report_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report.main(["--results-dir", str(tmp_path)]) == 0
    assert "0 runs" in (tmp_path / "report" / "report.md").read_text()
    assert "published" in (tmp_path / "report" / "index.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--results-dir", "nowhere"], "there is no folder nowhere"),
        (["--format", "markdown,pdf"], "unknown format 'pdf' (valid: csv, html, latex, markdown)"),
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


def test_files_have_names_that_say_what_is_in_them(tmp_path: Path) -> None:
    apart = {"source": "unofficial", "fingerprint": "u", "sizes": {}}
    save_all(tmp_path, [record(device="GPU B, 1 of 2"), record(run_id="u-s1", seed=1, data=apart)])
    for lengths in ("full", "task"):
        bench_record(lengths=lengths, overrides=("mixer.decay=0.9",)).save(tmp_path / "bench")
    made = make_chapters(CHAPTERS, ReportData(Results(tmp_path), ReportOptions(published="none")))
    slugs = {table.slug for chapter in made for table in chapter.tables}
    assert {slug for slug in slugs if not slug.startswith("memory")} == {
        "accuracy-paper-s4",
        "accuracy-paper-s4-unofficial-data-instead-of-generated",
        "speed-paper-s4-cpu",
        "speed-paper-s4-gpu-b-1-of-2",
        "speed-bench-step-listops-paper-s4-fp32-mixer.decay-0.9-cpu",
        "speed-bench-step-listops-paper-s4-own-lengths-fp32-mixer.decay-0.9-cpu",
    }


def test_the_contents_and_the_page_link_every_file(written: Path) -> None:
    contents = (written / "report.md").read_text().partition("## Contents")[2].partition("\n## ")[0]
    listed = set(re.findall(r"\]\(([^)]*)\)", contents))
    page = (written / "index.html").read_text()
    in_page = set(re.findall(r'href="((?:tables|figures)/[^"]*)"', page))
    there = {path.relative_to(written).as_posix() for path in written.glob("*/*")}
    assert listed == in_page == there


def test_flags_choose_what_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_all(
        tmp_path, [record(), record(mixer="s4"), record(preset="quick", run_id="q", mixer="conv")]
    )
    arguments = ["--results-dir", str(tmp_path), "--baseline", "s4", "--format", "markdown"]
    assert report.main([*arguments, "--preset", "paper", "--published", "TNN"]) == 0
    text = (tmp_path / "report" / "report.md").read_text()
    assert "conv" not in text
    assert "relative to s4" in text
    assert "Sinkhorn" not in text
    assert "qin2023tnn" in text
    assert not (tmp_path / "report" / "tables").exists()
    assert report.main([*arguments, "--published", "none"]) == 0
    assert "qin2023tnn" not in (tmp_path / "report" / "report.md").read_text()
    capsys.readouterr()


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
    arguments = ["--results-dir", str(tmp_path), "--compare", "tnn", "s4", "--format", "csv"]
    assert report.main(arguments) == 0
    shown = capsys.readouterr().out
    assert "+10.00" in shown
    assert "tnn is better" in shown
    (row,) = pd.read_csv(tmp_path / "report" / "tables" / "compare.csv").to_dict("records")
    assert (row["only_first"], row["only_second"]) == (20, 0)
    assert row["low"] == pytest.approx(4, abs=1.5)
    assert row["high"] == pytest.approx(16, abs=1.5)


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
    told = capsys.readouterr().err
    assert told.count("left out") >= 3
    assert "(and 2 others)" in told


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
    page = _Page()
    page.feed(read_page(tmp_path / "report" / "index.html"))
    records = [link for link in page.links if link.endswith(".json")]
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
    frame = pd.read_csv(tmp_path / "report" / "tables" / "accuracy-paper-s4.csv")
    (row,) = (row for row in frame.to_dict("records") if row["mixer"] == "tnn")
    assert (row["mean_percent"], row["seeds_done"]) == (40.0, 1)
    assert row["not_done"] == shown
    page = _Page()
    page.feed(read_page(tmp_path / "report" / "index.html"))
    records = [link for link in page.links if link.endswith("result.json")]
    assert len(records) == len(set(records)) == 3
    assert all((tmp_path / "report" / link).is_file() for link in records)
    assert len(page.ids) == len(set(page.ids))
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)
    timings = Timings.read(tmp_path)
    assert [run.steps_per_second for run in timings.runs if run.mixer == "tnn"] == [3.5, 2.5]


def test_commands_repeat_runs() -> None:
    run = record(overrides=["mixer.decay=0.9", "task.train=20"], seed=3, mixer="M",
                 mixer_code="0" * 16, mixer_from="my file.py:M")  # fmt: skip
    assert command(run) == (
        "python run_task.py --task listops --mixer 'my file.py:M' --preset paper --protocol s4 "
        "--seed 3 --set mixer.decay=0.9 --set task.train=20"
    )
