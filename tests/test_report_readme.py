"""The blocks of README files: made from records, checked against them."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest

import report
from conftest import ROOT
from lra.config.registry import MIXERS
from lra.report.boards.board import boards, leading_board
from lra.report.boards.results import Results
from lra.report.contents import item_names
from lra.report.data import ReportData, ReportOptions
from lra.report.page.readme import (
    FILES,
    check_readmes,
    make_block,
    write_readmes,
)
from lra.report.published.rows import rows_of
from lra.report.tables.published import suite_table
from made_results import bench_record, made_records, record, save, save_all

SHIPPED = ROOT / "results" / "shipped"
FIVE = ("listops", "text", "retrieval", "image", "pathfinder")
BLOCKS = {
    "README.md": ("leaderboard", "leaderboard-figure"),
    "docs/results.md": ("accuracy, training-speed, leaderboard-figure", "bits"),
    "docs/probes.md": ("probes",),
    "docs/reproduce.md": ("published-of-the-suite", "reproduce"),
    "results/settings.md": ("settings",),
}


def empty_readmes(root: Path) -> None:
    """Write README files whose blocks hold one old line each."""
    for file, names in BLOCKS.items():
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        blocks = "between\n".join(
            f"<!-- made by report.py: {name} -->\nold\n<!-- end -->\n" for name in names
        )
        (root / file).write_text(f"before\n{blocks}after\n")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with results of two mixers on five tasks and README files whose blocks are old."""
    save_two_rows(tmp_path / "results")
    empty_readmes(tmp_path)
    monkeypatch.setattr(report, "ROOT", tmp_path)
    return tmp_path


def save_two_rows(results: Path) -> None:
    """Save runs of two mixers on five tasks, their settings, and measurements of their speed."""
    runs = [
        record(task=task, mixer=mixer, test_accuracy=accuracy, settings={"train.lr": 0.001})
        for task in FIVE
        for mixer, accuracy in (("tnn", 40.0), ("s4", 50.0))
    ]
    save_all(results, runs)
    for mixer in ("tnn", "s4"):
        bench_record(mixer=mixer).save(results / "bench")


def test_blocks_are_checked_and_written(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--results-dir", str(root / "results")]
    assert report.main([*arguments, "--check"]) == 1
    shown = capsys.readouterr().out
    for file, names in BLOCKS.items():
        for name in names:
            assert f"{file}, block {name}:\nline 1 is\nold\n" in shown
    assert report.main([*arguments, "--write-readme"]) == 0
    assert report.main([*arguments, "--check"]) == 0
    for file in FILES:
        text = (root / file).read_text()
        assert text.startswith("before\n<!-- made by report.py: ")
        assert text.endswith("<!-- end -->\nafter\n")
        assert text.count("between\n") == len(BLOCKS[file]) - 1
    text = (root / "docs" / "results.md").read_text()
    assert "**50.00 (n=1)**" in text
    assert "mean of 5" in text
    assert "mean of 6" not in text  # no run has this average, so its column would be empty
    assert " **50.00** |" in (root / "README.md").read_text()


def test_links_to_figures_are_relative_to_their_file(root: Path) -> None:
    write_readmes(Results(root / "results"), root)
    (figure,) = (root / "results").glob("leaderboard-*.svg")
    assert f"](results/{figure.name})" in (root / "README.md").read_text()
    assert f"](../results/{figure.name})" in (root / "docs" / "results.md").read_text()


def test_figures_that_are_missing_or_stale_are_found(root: Path) -> None:
    results = root / "results"
    write_readmes(Results(results), root)
    (figure,) = results.glob("leaderboard-*.svg")
    figure.unlink()
    found = check_readmes(Results(results), root)
    assert found == [
        line
        for file, name in (
            ("README.md", "leaderboard-figure"),
            ("docs/results.md", "accuracy, training-speed, leaderboard-figure"),
        )
        for line in (f"{file}, block {name}:", f"there is no figure {figure}")
    ]
    save(results, record(seed=1, run_id="abc-s1", test_accuracy=60.0))
    write_readmes(Results(results), root)
    assert [path.name for path in results.glob("leaderboard-*.svg")] != [figure.name]
    assert check_readmes(Results(results), root) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text.replace("<!-- made by report.py: leaderboard-figure -->", ""),
        lambda text: text.replace("<!-- end -->", ""),
        lambda text: text.replace("<!-- end -->", "", 1),
    ],
)
def test_markers_without_their_counterpart_are_named(
    root: Path, damage, capsys: pytest.CaptureFixture[str]
) -> None:
    readme = root / "README.md"
    readme.write_text(damage(readme.read_text()))
    before = readme.read_text()
    for flag in ("--check", "--write-readme"):
        assert report.main(["--results-dir", str(root / "results"), flag]) == 2
        assert "expected a line <!-- end --> after each line" in capsys.readouterr().err
    assert readme.read_text() == before
    readme.unlink()
    assert report.main(["--results-dir", str(root / "results"), "--check"]) == 2
    assert "there is no such file" in capsys.readouterr().err


def test_no_records_make_no_leaderboard(tmp_path: Path) -> None:
    data = ReportData(Results(tmp_path), ReportOptions())
    assert make_block(data, ["leaderboard"]).text(tmp_path / "README.md") == "No runs yet.\n"
    assert "TNN" in make_block(data, ["published-of-the-suite"]).text(tmp_path / "README.md")


AT_CHANCE = {"test_accuracy": 1.0}


def row_of(preset: str, tasks: tuple[str, ...], **changes: object) -> list:
    return [record(preset=preset, task=task, run_id=preset, **changes) for task in tasks]


@pytest.mark.parametrize(
    ("runs", "preset"),
    [
        (row_of("quick", FIVE) + row_of("budget", FIVE) + row_of("paper", FIVE), "paper"),
        (row_of("quick", FIVE) + row_of("budget", FIVE) + row_of("paper", FIVE[:4]), "budget"),
        (row_of("quick", FIVE[:3]) + row_of("budget", FIVE[:2]), "quick"),
        (row_of("mine", FIVE) + row_of("paper", FIVE[:1]), "paper"),
        (row_of("quick", FIVE) + row_of("budget", FIVE, **AT_CHANCE), "quick"),
        (row_of("quick", FIVE, **AT_CHANCE) + row_of("budget", FIVE[:4]), "budget"),
    ],
)
def test_the_leading_board_has_the_fullest_row_of_the_first_preset(runs: list, preset: str) -> None:
    found = leading_board(boards(runs))
    assert found is not None
    assert found.preset == preset


def test_published_rows_are_those_of_the_suites_mixers() -> None:
    methods = {row[0] for row in suite_table(rows_of(MIXERS.classes)).rows}
    assert {"TNN", "SKI-TNN", "FD-TNN", "Transformer", "S4-LegS", "S4D-Lin", "DSS (exp)"} <= methods
    assert {"S4D-FT", "Mega-chunk", "S5", "LRU", "Long Conv", "Mamba", "B2S6"} <= methods
    assert not methods & {"Megalodon", "S7", "Liquid-S4"}
    assert suite_table(rows_of(MIXERS.classes)).headings[-1] == "source"


def test_the_runs_of_the_leaderboard_are_a_file(root: Path) -> None:
    write_readmes(Results(root / "results"), root)
    path = root / "results" / "leaderboard.csv"
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["task"] == "listops"]
    first, second = rows
    assert (first["mixer"], second["mixer"]) == ("s4", "tnn")
    assert [float(first[key]) for key in ("interval_low", "interval_high")] == [47.81, 52.19]
    assert float(first["best_trivial_baseline"]) == 17.0
    assert (first["run"], first["learning_rate"]) == ("abc-s0", "0.001")
    path.write_text(path.read_text().replace("50.0", "99.0"))
    where, line, *_ = check_readmes(Results(root / "results"), root)
    assert (where, line) == ("results/leaderboard.csv:", "line 2 is")


def test_the_readmes_here_agree_with_the_records() -> None:
    assert check_readmes(Results(SHIPPED), ROOT) == []


def test_writing_the_readmes_changes_nothing_else(tmp_path: Path) -> None:
    for file in FILES:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        shutil.copyfile(ROOT / file, tmp_path / file)
    shutil.copytree(SHIPPED, tmp_path / "results" / "shipped")
    write_readmes(Results(tmp_path / "results" / "shipped"), tmp_path)
    for file in FILES:
        assert (tmp_path / file).read_text() == (ROOT / file).read_text()
    shown = {path.name for path in (tmp_path / "results" / "shipped").glob("*.svg")}
    assert shown == {path.name for path in SHIPPED.glob("*.svg")}


def test_blocks_of_many_records_are_made(tmp_path: Path) -> None:
    save_all(tmp_path, made_records(80))
    for length in (1024, 2048):
        bench_record(mode="op", part="mixing", length=length).save(tmp_path / "bench")
    data = ReportData(Results(tmp_path), ReportOptions())
    for slug in item_names():
        assert make_block(data, [slug]).text(tmp_path / "README.md")
