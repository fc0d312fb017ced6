"""What report.py prints: one's own results first, and comparisons, no wider than the terminal."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

import report
from lra.report.compare import compare, describe_comparisons
from lra.report.data import Data
from lra.report.screen import summarize
from lra.report.tables.table import Column, Entry, Table
from lra.report.tables.terminal import fit_table
from made_results import TASKS, next_token_run, record, save_all, write_predictions
from tasks.base import BENCHMARK

LONG = ["mixer.rpe_layers=6", "model.dim=96", "train.steps=20000"]


@pytest.fixture(autouse=True)
def width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def shipped(folder: Path) -> Path:
    """Ship runs of two presets and of next tokens, on one seed or on three."""
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
    mine = {"mixer": "GatedMean", "preset": "quick", "task": "image"}
    long = record(**mine, run_id="l", overrides=LONG, config_hash="l")
    save_all(shipped(tmp_path), [record(**mine, test_accuracy=99.0), long])
    title, table, legend, others = summarize(Data(tmp_path)).strip().split("\n\n")
    assert title == "Preset quick, protocol s4: test accuracy in percent, best on image first"
    heading, *rows = table.splitlines()
    assert heading.split()[:2] == ["mixer", "image"], "the task of one's own runs comes first"
    assert rows[0].startswith("> GatedMean  "), "the best row comes first"
    assert table.count(">") == table.count("GatedMean") == 2
    legend = " ".join(legend.split())
    assert legend.startswith("> marks rows with runs of your own. Numbers are means ± standard")
    assert "over 3 seeds where not marked. a: 1 seed." in legend
    assert legend.endswith("The report also has 1 shipped row with changed settings.")
    assert others.replace("\n", " ") == (
        "The report also has results of budget, quick (lm). To print those of a preset, add "
        "--preset budget."
    )


def test_of_a_grid_the_row_that_is_best_by_validation_is_shown(tmp_path: Path) -> None:
    def tried(change: str) -> dict[str, object]:
        return {"run_id": f"{change[-3:]}-s0", "config_hash": change, "overrides": [change]}

    grid = [
        record(mixer="conv", val_accuracy=validated, test_accuracy=tested, **tried(change))
        for change, validated, tested in (
            ("train.lr=0.1", 50, 70), ("train.lr=0.2", 60, 40), ("train.lr=0.3", 55, 65))
    ]  # fmt: skip
    other = record(mixer="conv", test_accuracy=45, **tried("mixer.size=333"))
    texts = [next_token_run(bits, **tried(f"train.lr={0.1 * bits:.1f}")) for bits in (2.0, 1.0)]
    save_all(tmp_path, [*grid, other, *texts])
    text = " ".join(summarize(Data(tmp_path)).split())
    assert "conv (best of 3 by validation) 40.00" in text
    assert "conv (mixer.size=333) 45.00" in text
    assert "tnn (best of 2 by validation) 1.000" in text
    assert "train.lr" not in text
    save_all(tmp_path / "other" / "shipped", grid)
    text = summarize(Data(tmp_path / "other"))
    assert text.count("conv (train.lr=") == 3, "rows of the suite stay as they are"


def test_without_runs_of_ones_own_the_main_shipped_board_is_printed(tmp_path: Path) -> None:
    text = summarize(Data(shipped(tmp_path)))
    first, title, *_, others = text.strip().split("\n\n")
    assert "is your own" in first.replace("\n", " ") and ">" not in text
    assert title.startswith("Preset budget, protocol s4") and "quick" in others
    (tmp_path / "none").mkdir()
    assert summarize(Data(tmp_path / "none")).startswith("There are no runs in")


def test_all_main_boards_of_a_preset_are_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--results-dir", str(shipped(tmp_path)), "--format", "csv", "--preset", "quick"]

    def titles() -> list[str]:
        assert report.main(arguments) == 0
        lines = capsys.readouterr().out.splitlines()
        return [line.partition(":")[0] for line in lines if line.startswith("Preset")]

    both = ["Preset quick, protocol s4", "Preset quick, protocol s4, next tokens of lm"]
    assert titles() == both
    save_all(tmp_path, [record(preset="quick", mixer="mean")])
    assert titles() == both[:1], "those of one's own alone, if there are any"


@pytest.mark.parametrize("columns", [1, 40, 80, 250])
def test_nothing_is_wider_than_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    runs = [
        record(mixer=mixer, task=task, overrides=changes, run_id=f"o{len(changes)}-s{seed}",
               seed=seed, config_hash=str(len(changes)), status=status)
        for mixer, task, changes, (seed, status) in itertools.product(
            ("GatedMean", "tnn"), TASKS, ([], LONG), ((0, "done"), (2, "stopped")))
    ]  # fmt: skip
    stopped = record(mixer="s4", status="stopped", steps=5, total_steps=1500)
    data = Data(save_all(shipped(tmp_path), [*runs, stopped, next_token_run(1.5)]))
    for text in (summarize(data), summarize(data, is_chosen=True)):
        assert max(map(len, text.splitlines())) <= max(40, columns)
        assert not any(mark in text for mark in ("**", "<u>", "&nbsp;", "|"))
        has_all = all(f" {task}" in text for task in TASKS)
        assert has_all or columns == 1, "columns with results of one's own are always there"


def test_required_columns_stand_in_blocks_and_others_fill_the_rest() -> None:
    own = Entry("", 60.0, deviation=1.25, seeds=2, is_own=True, remarks=["1 diverged"])
    entries = [own, Entry("", 9.0, seeds=1)]
    columns = [Column(name, entries) for name in (*BENCHMARK, "other")]
    names = Column("mixer", [Entry("mine", is_own=True), Entry("row-of-twenty-letters " * 3)])
    fitted = fit_table(Table("t", "", "", [names, *columns]), BENCHMARK)
    first, second = fitted.text.split("\n\n")
    assert first.splitlines()[0].split()[1:] == [*BENCHMARK[:3]]
    assert second.splitlines()[0].split()[1:] == [*BENCHMARK[3:]]
    assert "60.00 ± 1.25" in first
    assert " 9.00" in first, "decimal points stand below each other"
    assert second.count("> mine") == 1
    assert second.count("row-of-twenty-letters") == 3, "long names have several lines"
    assert fitted.left_out == ["other"]
    assert "a: 1 diverged, b: 1 seed." in fitted.legend


def test_a_comparison_says_what_it_leaves_out(tmp_path: Path) -> None:
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
    save_all(tmp_path, runs)
    for run in runs:
        right = run.test_correct or 0
        write_predictions(tmp_path, run, [(1, int(i < right), 7) for i in range(100)])
    text = describe_comparisons(Data(tmp_path), ["tnn", "s4"])
    assert text.startswith(
        "tnn less s4 (train.lr=1). Preset paper, protocol s4: difference of test"
    )
    (row,) = [line for line in text.splitlines() if line.startswith("  text ")]
    assert row.split() == ["text", "+1.00", "+0.00", "to", "+3.00", "1", "1", "within", "noise"]
    left_out = " ".join(text.partition("Not compared:")[2].partition("A difference")[0].split())
    assert left_out == (
        "listops (Preset paper, protocol s4): s4 begins 2 rows: s4 (train.lr=1); s4 "
        "(train.lr=2); write more of the name "
        "retrieval (Preset paper, protocol s4): tnn and s4 (train.lr=1) have no seed in common "
        "that is finished and has predictions.csv (seeds: 0; 1) "
        "image (Preset paper, protocol s4): no runs of s4"
    )
    assert "McNemar" in text and "Satterthwaite" not in text
    assert "Satterthwaite" in describe_comparisons(Data(tmp_path), ["tnn", "s4 (train.lr=2)"])


def test_the_interval_of_several_seeds_covers_their_spread() -> None:
    """Two mixers of one accuracy, whose seeds differ: the truth is 0."""
    rng = np.random.default_rng(0)

    def draw() -> list[np.ndarray]:
        """Draw which of 500 examples each of three seeds has right: at 60 %, 3 points of spread."""
        return [(rng.random(500) < 0.6 + 0.03 * rng.normal()).astype(int) for _ in range(3)]

    drawn = [(draw(), draw()) for _ in range(200)]
    over_seeds = [compare(*pair, [0, 1, 2]) for pair in drawn]
    over_examples = [compare(first[:1], second[:1], [0]) for first, second in drawn]
    assert 0.9 < np.mean([found.low <= 0 <= found.high for found in over_seeds]) < 1
    one_seed = np.mean([found.low <= 0 <= found.high for found in over_examples])
    assert one_seed < 0.9, "which one seed cannot know"


def test_one_seed_has_an_exact_test() -> None:
    first, second = np.array([1] * 9 + [0] * 2 + [1] * 50), np.array([0] * 9 + [1] * 2 + [1] * 50)
    found = compare([first], [second], [0])
    # Two-sided: twice the chance of 2 heads or fewer in 11 throws.
    assert found.p_value == pytest.approx(2 * (1 + 11 + 55) / 2**11)
    assert compare([first, first], [first, first], [0, 1]).p_value == 1
    # Of five of five discordant examples, the bootstrap's interval excludes 0, the test does not.
    found = compare([np.array([1] * 5 + [0] * 95)], [np.zeros(100, dtype=int)], [0])
    assert found.low > 0
    assert found.p_value == pytest.approx(2 / 2**5)
    assert found.is_noise
