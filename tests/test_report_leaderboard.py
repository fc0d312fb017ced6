"""The leaderboard: its rows, their order, intervals and marks, and the speeds beside them."""

from __future__ import annotations

import pytest

from figure_checks import overlaps
from lra.record.intervals import wilson_interval
from lra.record.run import RunRecord
from lra.report.boards.board import boards
from lra.report.boards.preset_speeds import PresetSpeeds, preset_speeds
from lra.report.boards.ranking import BEST, SECOND, ranks_beyond
from lra.report.figures.leaderboard import leaderboard_figures
from lra.report.figures.styles import assign_styles
from lra.report.published.closest import closest_mean
from lra.report.tables.leaderboard import leaderboard
from lra.report.tables.table import Table
from lra.report.tables.training_speed import training_speed_table
from made_results import bench_record, record

FIVE = ("listops", "text", "retrieval", "image", "pathfinder")


def row(mixer: str, *accuracies: float, **changes: object) -> list[RunRecord]:
    """Make the runs of a mixer on the first of five tasks."""
    return [
        record(preset="budget", mixer=mixer, task=task, test_accuracy=accuracy, **changes)
        for task, accuracy in zip(FIVE, accuracies, strict=False)
    ]


def table_of(*rows: list[RunRecord], speeds: PresetSpeeds | None = None) -> Table:
    (board,) = boards([run for runs in rows for run in runs])
    return leaderboard(board, speeds or PresetSpeeds())


def test_rows_are_mixers_at_the_settings_of_the_preset_the_best_mean_first() -> None:
    changed = row("s4", 60.0, overrides=["train.lr=1"], config_hash="b")
    table = table_of(
        row("conv", 90.0), row("lru", 90.0, 90.0), row("tnn", *[40.0] * 5),
        row("mega", *[50.0] * 5), changed,
    )  # fmt: skip
    names = ["mega", "tnn", "lru", "conv", "best trivial baseline", "95 % interval"]
    assert [name for name, *_ in table.rows] == names
    assert table.headings == ["mixer", *FIVE, "mean of 5", "mean of 4", "parameters"]
    assert list(table.rows[1]) == ["tnn", *["40.00"] * 7, "1 k"]
    assert "Each number is from one seed." in table.notes
    assert "There are no results for pathx." in table.notes


def test_numbers_are_means_over_seeds_alone_and_a_note_counts_them() -> None:
    table = table_of(row("tnn", *[40.0] * 5), row("tnn", 42.0, seed=1))
    assert table.rows[0][1] == "41.00"
    assert table.notes[0].startswith("Means over 2 seeds on listops: tnn. All other")
    table = table_of(*(row("tnn", *[40.0] * 3, seed=seed) for seed in (0, 1)), row("s4", 30.0))
    assert "over 2 seeds on listops and retrieval and text: tnn." in table.notes[0]


def test_the_mean_of_4_needs_no_retrieval_which_nobody_else_can_repeat() -> None:
    pairs = {"source": "unofficial", "fingerprint": "p" * 64, "sizes": {"train": 1}}
    complete = row("tnn", *[40.0] * 5)
    complete[FIVE.index("retrieval")] = record(
        preset="budget", mixer="tnn", task="retrieval", test_accuracy=40.0, data=pairs
    )
    four = [one for one in row("s4", *[50.0] * 5) if one.task != "retrieval"]
    table = table_of(complete, four)
    means = {line[0]: list(line[6:8]) for line in table.rows}
    assert means["s4"] == ["-", "50.00"] and means["tnn"][1] == "40.00"
    assert any("nobody else can repeat this column" in note for note in table.notes)
    assert not any("repeat" in note for note in table_of(four).notes)


def test_a_note_names_the_best_trivial_baseline_of_each_task() -> None:
    weak, strong = {"majority class": 16.0}, {"majority class": 50.0, "bag of bytes": 64.0}
    runs = [
        record(preset="budget", task=task, baselines=baselines)
        for task, baselines in (("listops", weak), ("text", strong), ("image", weak))
    ]
    (board,) = boards(runs)
    notes = leaderboard(board, PresetSpeeds()).notes
    named = "The best trivial baselines are majority class (listops, image); bag of bytes (text)."
    assert named in notes


def test_results_at_chance_count_in_the_mean_and_failed_runs_leave_none() -> None:
    lost = record(preset="budget", mixer="s4d", task="pathfinder", status="diverged", seed=1,
                  test_accuracy=None, test_correct=None, test_total=None)  # fmt: skip
    failed = [*row("s4d", *[50.0] * 5), lost]
    table = table_of(row("tnn", 16.0, *[40.0] * 4), failed)
    tnn, s4d = table.rows[:2]
    assert (tnn[1], tnn[6]) == ("at chance: 16.00", "35.20")
    assert (s4d[5], s4d[6]) == ("50.00, diverged", "-")


def test_a_column_has_the_interval_of_a_number_near_its_middle() -> None:
    table = table_of(row("tnn", *[60.0] * 5), row("s4", *[70.0] * 5), row("s4d", *[50.0] * 5))
    low, high = wilson_interval(0.6, 2000)
    half = (high - low) / 2
    assert table.rows[-1][1] == f"± {half:.1f}"
    assert table.rows[-1][6] == f"± {half / 5**0.5:.1f}"


@pytest.mark.parametrize(
    ("values", "marks"),
    [
        ([50.0, 47.9, None], {0: BEST}),
        ([50.0, 48.0, 47.9], {0: SECOND, 1: SECOND}),
        ([50.0, 50.0, 40.0], {0: SECOND, 1: SECOND}),
        ([None, 50.0], {}),
        ([], {}),
    ],
)
def test_only_differences_beyond_the_interval_are_marked(
    values: list[float | None], marks: dict[int, str]
) -> None:
    assert ranks_beyond(values, margin=2.0) == marks


def test_numbers_of_the_leaderboard_are_marked_by_the_interval() -> None:
    table = table_of(row("tnn", 60.0, 60.0, 60.0), row("s4", 61.0, 70.0, 62.6))
    assert table.rows[-1][3] == "± 2.1"
    markdown = table.markdown()
    assert "<u>62.60</u>" in markdown, "ahead by more than 2.1, but by less than 1.4 times that"
    assert "<u>60.00</u>" in markdown
    assert "<u>61.00</u>" in markdown
    assert "**70.00**" in markdown
    assert "**61.00**" not in markdown


def test_parameters_are_those_of_the_smallest_and_the_largest_model() -> None:
    runs = [*row("tnn", 40.0, params=20_400), *row("tnn", 40.0, 40.0, params=131_000)[1:]]
    assert table_of(runs).rows[0][-1] == "20 to 131 k"


def speed(mixer: str, steps_per_second: float, **changes: object) -> object:
    return bench_record(
        **{"mixer": mixer, "preset": "budget", "steps_per_second": steps_per_second, **changes}
    )


def test_speeds_are_averaged_over_the_tasks_of_a_preset() -> None:
    measured = [
        speed("tnn", 2.0),
        speed("tnn", 5.0, task="text", peak_memory_mib=300.0),
        speed("s4", 8.0),
        speed("s4", 5.0, task="text", peak_memory_mib=900.0),
        speed("lru", 9.0),  # not measured on text
        speed("s4", 99.0, overrides=["model.dim=8"]),
        speed("s4", 99.0, mode="forward"),
        speed("s4", 99.0, preset="quick"),
        speed("s4", 99.0, device="GPU"),
    ]
    found = preset_speeds(measured, "budget", "s4", "tnn")  # pyright: ignore
    assert (found.device, found.by_mixer.keys()) == ("CPU", {"tnn", "s4"})
    assert found.by_mixer["s4"].relative == pytest.approx(2.0)
    assert found.by_mixer["s4"].memory == 900.0
    assert found.by_mixer["tnn"].relative == 1.0
    table = table_of(row("tnn", 40.0), row("s4", 50.0), row("lru", 45.0), speeds=found)
    assert table.headings[-1] == "speed, tnn = 1"
    assert [cells[-1] for cells in table.rows[:3]] == ["-", "2.00", "1.00"]
    assert "divided by those of tnn, on CPU" in table.notes[-1]
    assert f"geometric mean over {', '.join(found.by_mixer['tnn'].by_task)} of" in table.notes[-1]
    by_task = training_speed_table(found, "budget")
    assert by_task.headings[1:3] == ["listops", "text"]
    assert by_task.rows == [
        ["s4", "4.00", "1.00", "2.00", "900"],
        ["tnn", "1.00", "1.00", "1.00", "500"],
    ]


def test_speeds_of_shorter_sequences_are_not_compared_with_those_of_longer_ones() -> None:
    measured = [
        speed("tnn", 9.0, length=128),
        speed("tnn", 2.0, length=1024),
        speed("s4", 8.0, length=128),
    ]
    assert preset_speeds(measured, "budget", "s4", "tnn").by_mixer.keys() == {"tnn"}  # pyright: ignore
    assert not preset_speeds([], "budget", "s4", "tnn").by_mixer


def test_the_figure_has_mixers_with_a_mean_and_a_speed_measured_and_published() -> None:
    measured = [
        speed(mixer, 2.0, task=task) for mixer in ("tnn", "s4", "conv", "lru") for task in FIVE
    ]
    speeds = preset_speeds(measured, "budget", "s4", "tnn")  # pyright: ignore
    runs = [*row("tnn", *[49.9] * 5), *row("s4", *[50.0] * 5), *row("conv", *[49.8] * 5)]
    (board,) = boards([*runs, *row("lru", 60.0), *row("mega", *[60.0] * 5)])
    styles = assign_styles(board.rows)
    (figure,) = leaderboard_figures(board, speeds, styles, closest_mean)
    drawn = figure.draw()
    left, right, *_ = drawn.axes
    assert {text.get_text() for text in left.texts} == {"tnn", "s4", "conv"}
    assert {text.get_text() for text in right.texts} == {"tnn", "s4"}  # no paper has conv
    assert not overlaps(drawn)
    assert "without a mean or a speed: lru, mega." in figure.caption
    seeds = [*runs, *row("tnn", *[59.9] * 5, seed=1)]
    (figure,) = leaderboard_figures(boards(seeds)[0], speeds, styles, closest_mean)
    (low, high), *_ = (b.interval for b in figure.draw.args[0][0].bubbles if b.method == "tnn")
    assert high - low == pytest.approx(2 * 2.19 / 5**0.5, abs=0.02), "not the spread over seeds"
    assert not leaderboard_figures(board, PresetSpeeds(), styles, closest_mean)
