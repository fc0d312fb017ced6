"""What report.py prints: one's own results first, and comparisons, no wider than the terminal."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from lra.report.compare import compare
from lra.report.data import Data
from lra.report.screen import summarize
from made_results import TASKS, next_token_run, record, save_all

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
    assert others.replace("\n", " ").startswith("The report also has 2 more tables.")


def test_rows_without_a_result_on_ones_own_tasks_are_not_shown(tmp_path: Path) -> None:
    save_all(shipped(tmp_path), [record(preset="quick", task="mine", mixer="lru")])
    _, table, *_ = summarize(Data(tmp_path)).strip().split("\n\n")
    assert [line.split()[:2] for line in table.splitlines()] == [
        ["mixer", "mine"], ["lru", "40.00"], ["best", "trivial"]
    ]  # fmt: skip


@pytest.mark.parametrize("columns", [1, 80])
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


def test_the_interval_of_several_seeds_covers_their_spread() -> None:
    """Two mixers of one accuracy, whose seeds differ: the truth is 0."""
    rng = np.random.default_rng(0)

    def draw() -> list[np.ndarray]:
        """Draw which of 500 examples each of three seeds has right: at 60 %, 3 points of spread."""
        return [(rng.random(500) < 0.6 + 0.03 * rng.normal()).astype(int) for _ in range(3)]

    drawn = [(draw(), draw()) for _ in range(200)]
    over_seeds = [compare(*pair) for pair in drawn]
    over_examples = [compare(first[:1], second[:1]) for first, second in drawn]
    assert 0.9 < np.mean([found.low <= 0 <= found.high for found in over_seeds]) < 1
    one_seed = np.mean([found.low <= 0 <= found.high for found in over_examples])
    assert one_seed < 0.9, "which one seed cannot know"


def test_two_seeds_have_one_degree_of_freedom_or_more() -> None:
    """The interval and p are those of t with one degree, though the examples suggest fewer."""
    first = [np.array([1] * 9 + [0] * 11), np.array([0] * 12 + [1] * 8)]
    found = compare(first, [np.zeros(20)] * 2)
    error = (found.high - found.difference) / stats.t.ppf(0.975, 1)
    assert found.p_value == pytest.approx(2 * stats.t.sf(found.difference / error, 1))


def test_one_seed_has_an_exact_test() -> None:
    first, second = np.array([1] * 9 + [0] * 2 + [1] * 50), np.array([0] * 9 + [1] * 2 + [1] * 50)
    found = compare([first], [second])
    # Two-sided: twice the chance of 2 heads or fewer in 11 throws.
    assert found.p_value == pytest.approx(2 * (1 + 11 + 55) / 2**11)
    assert compare([first, first], [first, first]).p_value == 1
    # Of five of five discordant examples, the bootstrap's interval excludes 0, the test does not.
    found = compare([np.array([1] * 5 + [0] * 95)], [np.zeros(100, dtype=int)])
    assert found.low > 0
    assert found.p_value == pytest.approx(2 / 2**5)
    assert found.is_noise
