"""What report.py prints: results of one's own first, in plain text that fits the terminal."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

import report
from lra.report.boards.comparison import Comparison, compare, compare_all
from lra.report.boards.results import Results
from lra.report.data import ReportData, ReportOptions
from lra.report.summary import summarize
from lra.report.tables.comparison import describe_comparisons
from lra.report.tables.table import Column, Entry, Table, text_column
from lra.report.tables.terminal import fit_table
from made_results import TASKS, next_token_run, record, save_all, write_predictions
from tasks.base import BENCHMARK

LONG = ["mixer.rpe_layers=6", "model.dim=96", "train.steps=20000"]


@pytest.fixture(autouse=True)
def width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def shown(folder: Path, *, is_chosen: bool = False) -> str:
    return summarize(ReportData(Results(folder), ReportOptions()), is_chosen=is_chosen)


def shipped(folder: Path) -> Path:
    """Shipped runs of three presets and of next tokens, on one seed or on three."""
    runs = [
        record(mixer=mixer, task=task, preset=preset, run_id=f"{preset}-s{seed}", seed=seed,
               test_accuracy=40.0 + at / 2, length=length, config_hash=preset)
        for at, (mixer, preset, (task, (length, _)), seed) in enumerate(itertools.product(
            ("tnn", "s4"), ("budget", "quick"), TASKS.items(), (0, 1, 2)))
        if preset == "quick" or not seed
    ]  # fmt: skip
    changed = record(preset="quick", overrides=["train.lr=1"], run_id="x", config_hash="x")
    save_all(folder / "shipped", [*runs, changed, next_token_run(2.0, preset="quick")])
    return folder


def test_boards_with_runs_of_ones_own_come_first(tmp_path: Path) -> None:
    shipped(tmp_path)
    mine = {"mixer": "GatedMean", "preset": "quick", "task": "image"}
    save_all(tmp_path, [record(**mine, test_accuracy=99.0),
                        record(**mine, run_id="l", overrides=LONG, config_hash="l")])  # fmt: skip
    title, table, legend, others = shown(tmp_path).strip().split("\n\n")
    assert title == "Preset quick, protocol s4: test accuracy in percent, best on image first"
    heading, *rows = table.splitlines()
    assert heading.split()[:2] == ["mixer", "image"], "the task of one's own runs comes first"
    assert rows[0].startswith("> GatedMean  "), "the best row comes first"
    marked = [row for row in rows if row.startswith(">")]
    assert [row.split()[1] for row in marked] == ["GatedMean"] * 2
    assert "(train.lr=1)" not in table
    legend = " ".join(legend.split())
    assert legend.startswith("> marks rows with runs of your own. Numbers are means ± standard")
    assert "over 3 seeds where not marked. a: 1 seed." in legend
    assert "The report also has the columns" in legend
    assert legend.endswith("and 1 shipped row with changed settings.")
    assert others.replace("\n", " ") == (
        "The report also has results of budget, quick (lm). To print those of a preset, add "
        "--preset budget."
    )


def test_of_a_grid_the_row_that_is_best_by_validation_is_shown(tmp_path: Path) -> None:
    tried = {"0.1": (50.0, 70.0), "0.2": (60.0, 40.0), "0.3": (55.0, 65.0)}
    grid = [
        record(mixer="conv", run_id=f"{lr}-s0", config_hash=lr, overrides=[f"train.lr={lr}"],
               val_accuracy=validated, test_accuracy=tested)
        for lr, (validated, tested) in tried.items()
    ]  # fmt: skip
    other = record(
        mixer="conv", run_id="w-s0", config_hash="w", overrides=["mixer.size=3"], test_accuracy=45.0
    )
    save_all(tmp_path, [*grid, other])
    text = shown(tmp_path)
    rows = {line.strip("> ") for line in text.splitlines() if "conv" in line}
    assert rows == {
        "conv (best of 3 by validation)  40.00",
        "conv (mixer.size=3)             45.00",
    }
    texts = [
        next_token_run(
            bits, run_id=f"{bits}-s0", config_hash=f"{bits}", overrides=[f"train.lr={lr}"]
        )
        for bits, lr in ((2.0, 0.1), (1.5, 0.2))
    ]
    save_all(tmp_path, texts)
    (line,) = [line for line in shown(tmp_path).splitlines() if "tnn" in line]
    assert line.split()[1:7] == ["tnn", "(best", "of", "2", "by", "validation)"], line
    assert line.split()[7] == "1.500"
    save_all(tmp_path / "shipped", grid)
    text = shown(tmp_path / "shipped")
    assert text.count("conv (train.lr=") == 3, "rows of the suite stay as they are"


def test_without_runs_of_ones_own_the_main_shipped_board_is_printed(tmp_path: Path) -> None:
    text = shown(shipped(tmp_path))
    first, title, *_, legend, others = text.strip().split("\n\n")
    assert "is your own" in first.replace("\n", " ")
    assert title.startswith("Preset budget, protocol s4")
    assert ">" not in text
    assert legend.startswith("Each number is from one seed.")
    assert "quick" in others
    (tmp_path / "none").mkdir()
    assert shown(tmp_path / "none").startswith("There are no runs in")


def test_all_main_boards_of_a_preset_are_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--results-dir", str(shipped(tmp_path)), "--format", "csv", "--preset", "quick"]

    def titles(text: str) -> list[str]:
        return [line.partition(":")[0] for line in text.splitlines() if line.startswith("Preset")]

    assert report.main(arguments) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("None of these is your own.")
    assert captured.err.startswith("Writing the report on 38 runs, 0 of them yours")
    both = ["Preset quick, protocol s4", "Preset quick, protocol s4, next tokens of lm"]
    assert titles(captured.out) == both
    save_all(tmp_path, [record(preset="quick", mixer="mean")])
    assert report.main(arguments) == 0
    out = capsys.readouterr().out
    assert titles(out) == both[:1], "those of one's own alone, if there are any"
    assert "The report also has results of quick (lm).\n" in out


@pytest.mark.parametrize("columns", [1, 40, 60, 80, 100, 250])
def test_nothing_is_wider_than_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    runs = [
        record(mixer=mixer, task=task, overrides=changes, run_id=f"o{len(changes)}-s{seed}",
               seed=seed, config_hash=str(len(changes)), status=status)
        for mixer, task, changes, (seed, status) in itertools.product(
            ("GatedMean", "tnn"), TASKS, ([], LONG), ((0, "done"), (1, "done"), (2, "stopped")))
    ]  # fmt: skip
    stopped = record(mixer="s4", status="stopped", steps=5, total_steps=1500)
    save_all(shipped(tmp_path), [*runs, stopped, next_token_run(1.5)])
    for text in (
        shown(tmp_path),
        shown(tmp_path, is_chosen=True),
    ):
        lines = [line for line in text.splitlines() if str(tmp_path) not in line]
        assert max(map(len, lines)) <= max(40, columns)
        assert not any(mark in text for mark in ("**", "<u>", "&nbsp;", "|"))
        for task in TASKS:
            assert f" {task}" in text, "columns with results of one's own are always there"


def test_required_columns_stand_in_blocks_and_others_fill_the_rest() -> None:
    entries = [Entry("", 60.0, deviation=1.25, seeds=2, is_own=True), Entry("", 9.0, seeds=2)]
    columns = [Column(name, entries) for name in (*BENCHMARK, "other")]
    names = Column("mixer", [Entry("mine", is_own=True), Entry("shipped " * 9)])
    fitted = fit_table(Table("t", "", "", [names, *columns]), BENCHMARK)
    blocks = fitted.text.split("\n\n")
    assert [block.splitlines()[0].split()[1:] for block in blocks] == [
        ["listops", "text", "retrieval"], ["image", "pathfinder", "pathx"]
    ]  # fmt: skip
    first, second = blocks
    assert "60.00 ± 1.25" in first
    assert " 9.00" in first, "decimal points stand below each other"
    assert second.count("> mine") == 1
    assert fitted.left_out == ["other"]
    assert fit_table(Table("t", "", "", [names, *columns]), ["text"]).left_out == [
        "image", "pathfinder", "pathx", "other"
    ]  # fmt: skip


def test_long_texts_and_remarks_become_notes() -> None:
    column = Column("x", [Entry("", 5.0, remarks=["at chance"], seeds=1), Entry("e" * 30), Entry()])
    table = Table("t", "", "", [text_column("mixer", "abc"), column])
    fitted = fit_table(table, ["x"])
    assert [line.split() for line in fitted.text.splitlines()] == [
        ["mixer", "x"], ["a", "5.00", "a"], ["b", "-", "b"], ["c", "-"]
    ]  # fmt: skip
    assert fitted.legend == ["Each number is from one seed.", f"a: at chance, b: {'e' * 30}."]


def compared(folder: Path, *given: str) -> str:
    """Save two mixers, the second in two rows of listops, and print their comparison."""
    runs = [
        record(mixer=mixer, task=task, run_id=f"{''.join(changes)[-1:]}c-s{seed}", seed=seed,
               overrides=changes, config_hash="".join(changes), test_accuracy=float(right),
               test_total=100)
        for mixer, task, changes, right, seeds in (
            ("tnn", "listops", [], 60, (0, 1)), ("s4", "listops", ["train.lr=1"], 50, (0, 1)),
            ("s4", "listops", ["train.lr=2"], 59, (0, 1)), ("tnn", "text", [], 60, (0,)),
            ("s4", "text", ["train.lr=1"], 59, (0, 1)), ("tnn", "image", [], 60, (0,)),
            ("tnn", "retrieval", [], 60, (0,)), ("s4", "retrieval", ["train.lr=1"], 60, (1,)),
        )
        for seed in seeds
    ]  # fmt: skip
    save_all(folder, runs)
    for run in runs:
        write_predictions(
            folder, run, [(1, int(i < (run.test_correct or 0)), 7) for i in range(100)]
        )
    return compare_rows(folder, *given)


def compare_rows(folder: Path, *given: str) -> str:
    results = Results(folder)
    data = ReportData(results, ReportOptions())
    return describe_comparisons(compare_all(results, data.boards, given))


def test_a_comparison_says_what_it_leaves_out(tmp_path: Path) -> None:
    text = compared(tmp_path, "tnn", "s4")
    assert text.startswith(
        "tnn less s4 (train.lr=1). Preset paper, protocol s4: difference of test"
    )
    (row,) = [line for line in text.splitlines() if line.startswith("  text ")]
    assert row.split() == ["text", "+1.00", "+0.00", "to", "+3.00", "1", "1", "within", "noise"]
    left_out = " ".join(text.partition("Not compared:")[2].partition("A difference")[0].split())
    assert left_out == (
        "listops (Preset paper, protocol s4): s4 begins two rows: s4 (train.lr=1); s4 "
        "(train.lr=2); write more of the name "
        "retrieval (Preset paper, protocol s4): tnn and s4 (train.lr=1) have no seed in common "
        "that is finished and has predictions.csv (seeds: 0; 1) "
        "image (Preset paper, protocol s4): no runs of s4"
    )
    assert "McNemar" in text
    assert "Satterthwaite" not in text
    assert "Satterthwaite" in compare_rows(tmp_path, "tnn", "s4 (train.lr=2)")


def test_the_interval_of_several_seeds_covers_their_spread() -> None:
    """Two mixers of one accuracy, whose seeds differ: the truth is 0."""
    rng = np.random.default_rng(0)

    def draw() -> list[np.ndarray]:
        """Draw which of 500 examples each of three seeds has right: at 60 %, 3 points of spread."""
        return [(rng.random(500) < 0.6 + 0.03 * rng.normal()).astype(int) for _ in range(3)]

    def covers(found: Comparison) -> bool:
        return found.low <= 0 <= found.high

    drawn = [(draw(), draw()) for _ in range(200)]
    over_seeds = [covers(compare(*pair, [0, 1, 2])) for pair in drawn]
    over_examples = [covers(compare(first[:1], second[:1], [0])) for first, second in drawn]
    assert 0.9 < np.mean(over_seeds) < 1
    assert np.mean(over_examples) < 0.9, "which one seed cannot know"


def test_noise_takes_an_interval_and_a_p_value_to_rule_out() -> None:
    # Six of six discordant examples: the bootstrap's interval excludes 0, the exact test does not.
    first = np.array([1] * 5 + [0] * 95)
    found = compare([first], [np.zeros(100, dtype=int)], [0])
    assert found.low > 0
    assert found.p_value == pytest.approx(2 / 2**5)
    assert found.is_noise
