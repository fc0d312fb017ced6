"""The blocks of README files: made from records, checked against them."""

import csv
import re
import shutil
from pathlib import Path

import pytest

from conftest import ROOT
from lra.report import __main__ as report
from lra.report.boards import boards, leading_board
from lra.report.data import Data
from lra.report.readme import CSVS, FILES, make_files, write_readmes
from lra.report.tables.mixer_options import mixer_options_csv
from made_results import bench_record, record, save_all

SHIPPED = ROOT / "results" / "shipped"
FIVE = ("listops", "text", "retrieval", "image", "pathfinder")
NAMES = {
    "README.md": ("leaderboard", "leaderboard-figure"),
    "docs/results.md": ("leaderboard, leaderboard-figure", "out-of-distribution-figure"),
    "docs/language_modelling.md": ("bits",),
    "docs/probes.md": ("recall, groups-figure",),
    "docs/reproduce.md": ("reproduce",),
    "docs/range.md": ("range-needed",),
    "docs/open_board.md": ("fresh",),
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with results of two mixers on five tasks and README files whose blocks are old."""
    results = tmp_path / "results"
    for mixer, accuracy in (("tnn", 40.0), ("s4", 50.0)):
        fields = {"mixer": mixer, "test_accuracy": accuracy, "settings": {"train.lr": 0.001}}
        save_all(results, [record(task=task, **fields) for task in FIVE])
        bench_record(mixer=mixer).save(results / "bench")
    for file, names in NAMES.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        blocks = [f"<!-- made by report.py: {name} -->\nold\n<!-- end -->\n" for name in names]
        (tmp_path / file).write_text("before\n" + "between\n".join(blocks) + "after\n")
    monkeypatch.setattr(report, "ROOT", tmp_path)
    return tmp_path


def test_blocks_are_checked_and_written(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--results-dir", str(root / "results")]
    assert report.main([*arguments, "--check"]) == 1
    shown = capsys.readouterr().out
    for file in NAMES:
        assert f"{file} differs\n" in shown
    assert report.main([*arguments, "--write-readme"]) == 0
    assert report.main([*arguments, "--check"]) == 0
    for file in FILES:
        text = (root / file).read_text()
        assert text.startswith("before\n<!-- made by report.py: ")
        assert text.endswith("<!-- end -->\nafter\n")
        assert text.count("between\n") == len(NAMES[file]) - 1
    text = (root / "docs" / "results.md").read_text()
    assert " **50.00** |" in text
    assert "mean of 6" not in text, "no run has this average, so its column would be empty"
    assert " **50.00** |" in (root / "README.md").read_text()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("<!-- made by report.py: leaderboard -->", "", "expected a line <!-- end --> after"),
        ("<!-- end -->", "", "expected a line <!-- end --> after each line"),
        (": leaderboard -->", ": leaderbord -->", "'leaderbord'; did you mean leaderboard?"),
    ],
)
def test_a_file_with_a_faulty_block_stays_as_it_is(
    root: Path, old: str, new: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    readme = root / "README.md"
    readme.write_text(readme.read_text().replace(old, new, 1))
    before = readme.read_text()
    for flag in ("--check", "--write-readme"):
        assert report.main(["--results-dir", str(root / "results"), flag]) == 2
        assert message in capsys.readouterr().err
    assert readme.read_text() == before
    readme.unlink()
    assert report.main(["--results-dir", str(root / "results"), "--check"]) == 2
    assert "there is no such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rows", "preset"),
    [
        ([("quick", 5, 40.0), ("budget", 5, 40.0), ("paper", 4, 40.0)], "budget"),
        ([("mine", 5, 40.0), ("paper", 1, 40.0)], "paper"),
        ([("quick", 5, 1.0), ("budget", 4, 40.0)], "budget"),
    ],
)
def test_the_leaderboard_is_of_the_fullest_row_above_chance(
    rows: list[tuple[str, int, float]], preset: str
) -> None:
    runs = [
        record(preset=name, task=task, test_accuracy=accuracy)
        for name, count, accuracy in rows
        for task in FIVE[:count]
    ]
    assert getattr(leading_board(boards(runs)), "preset", None) == preset


def test_the_readmes_here_agree_with_the_records(tmp_path: Path) -> None:
    """Writing them anew changes nothing, and draws the figures that are here."""
    for file in FILES:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        shutil.copyfile(ROOT / file, tmp_path / file)
    copy = tmp_path / "results" / "shipped"
    shutil.copytree(SHIPPED, copy)
    shutil.copytree(SHIPPED.with_name("community"), copy.with_name("community"))
    write_readmes(Data(copy), tmp_path)
    for file in [*FILES, *CSVS]:
        assert (tmp_path / file).read_text() == (ROOT / file).read_text(), file
    shown = {path.name for path in copy.glob("*.svg")}
    assert shown == {path.name for path in SHIPPED.glob("*.svg")}


def test_a_block_says_each_sentence_of_captions_once(root: Path) -> None:
    runs = [
        record(task="languages", preset="paper", protocol=n, run_id=f"{n}-s0", config_hash=n)
        for n in ("s4", "lra")
    ]
    data = Data(save_all(root / "results", runs))
    (root / "README.md").write_text("<!-- made by report.py: languages -->\n<!-- end -->\n")
    captions = re.findall(r"(?m)^\*\*languages.*", make_files(data, root)[0]["README.md"])
    assert ["the mean ± standard" in caption for caption in captions] == [True, False]
    assert captions[1].endswith("accuracy.** Test accuracy in percent.")


def test_every_option_of_a_mixer_is_explained() -> None:
    rows = [*csv.DictReader(mixer_options_csv().splitlines())]
    assert len({row["mixer"] for row in rows}) > 20
    assert all(row["meaning"] for row in rows)
