"""The leaderboard: its rows, their order, intervals and marks, and the speeds beside them."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from lra.record.benchmark import BenchRecord
from lra.record.run import RunRecord
from lra.report.boards import boards
from lra.report.leaderboard import CLOSED, OPEN, leaderboard
from lra.report.scores import FIVE
from lra.report.tables.results import conditions_of
from lra.report.tables.speeds import PresetSpeeds, preset_speeds
from lra.report.tables.table import Table
from lra.report.windows import rows_of_leaderboard
from lra.statistics import wilson_interval
from made_results import bench_record, record


def row(mixer: str, *accuracies: float, **changes: object) -> list[RunRecord]:
    """Make the runs of a mixer on the first of five tasks."""
    return [
        record(**{"preset": "budget", "mixer": mixer, "task": task, "test_accuracy": accuracy,
                  **changes})
        for task, accuracy in zip(FIVE, accuracies, strict=False)
    ]  # fmt: skip


def table_of(
    *rows: list[RunRecord], speeds: PresetSpeeds | None = None, local: Sequence[str] = ()
) -> Table:
    (board,) = boards([run for runs in rows for run in runs])
    return leaderboard(board, speeds or PresetSpeeds(), {}, local)


def speeds_of(measured: list[BenchRecord]) -> PresetSpeeds:
    data: Any = SimpleNamespace(bench=measured, relative_to="tnn")
    board: Any = SimpleNamespace(preset="budget", protocol="s4")
    return preset_speeds(data, board)


def test_rows_are_mixers_at_the_settings_of_the_preset_the_best_mean_first() -> None:
    changed = row("s4", 60.0, overrides=["train.lr=1"], config_hash="b")
    twice = row("lru", 92.0, seed=1)
    tnn = [*row("tnn", *[40.0] * 4, params=20_400), *row("tnn", *[40.0] * 5, params=131_000)[4:]]
    others = row("conv", 90.0), row("lru", 90.0, 90.0), row("mega", *[50.0] * 5)
    table = table_of(*others, tnn, changed, twice)
    names = ["mega", "tnn", "lru", "conv", "best trivial baseline", "95 % interval"]
    assert [name for name, *_ in table.rows] == names
    assert table.methods == names[:4]
    assert table.headings == ["mixer", "mean gain", *OPEN, CLOSED, "parameters"]
    assert table.rows[1] == ["tnn", "27.7", *["40.00"] * 5, "20 to 131 k"]
    assert table.rows[2][2] == "91.00"
    assert table.notes[0].startswith("Means over 2 seeds on listops: lru. All other")
    assert "The best trivial baselines are majority class (" in " ".join(table.notes)
    assert "There are no results for pathx." in table.notes


def test_a_gain_is_0_at_chance_and_below_the_best_trivial_baseline() -> None:
    tnn = [*row("tnn", 58.5, 10.0, 50.0, 17.0), *row("tnn", *[58.5] * 5)[4:]]
    table = table_of(tnn, row("s4", *[100.0] * 4))
    gains = {name: gain for name, gain, *_ in table.rows[:2]}
    assert gains == {"tnn": "25.0", "s4": "-"}, "(50 + 0 + 0 + 50) / 4, without Retrieval"


def test_tasks_that_need_a_short_range_are_marked() -> None:
    table = table_of(row("tnn", *[60.0] * 5), local=["text"])
    assert "text (local)" in table.headings
    assert "image" in table.headings
    assert any(note.startswith("Local: ") for note in table.notes)
    assert table.headings[1] == "mean gain"
    assert table.rows[0][1] != "-", "text counts in the mean gain"


def test_tables_say_how_images_are_read() -> None:
    runs = [
        record(preset="budget", mixer=mixer, task="image", settings={"model.axes": axes})
        for mixer, axes in (("tnn", "native"), ("s4", "flat"), ("s4d", "flat"))
    ]
    assert "read pixel by pixel, in one row, but in two dimensions by tnn." in conditions_of(
        boards(runs)[0]
    )


def test_numbers_are_marked_by_the_interval_of_a_number_near_the_middle() -> None:
    table = table_of(row("tnn", *[60.0] * 5), row("s4", *[70.0] * 5), row("s4d", *[50.0] * 5))
    low, high = wilson_interval(0.6, 2000)
    assert table.rows[-1][2] == f"± {(high - low) / 2:.1f}"
    assert table.rows[-1][1] == f"± {(high - low) / 2 / 0.83 / 2:.1f}", "of four gains"
    table = table_of(row("tnn", 60.0, 60.0, 60.0), row("s4", 61.0, 70.0, 62.6))
    markdown = table.markdown()
    assert table.rows[-1][-2] == "± 2.1"
    assert "<u>62.60</u>" in markdown, "ahead by more than 2.1, but by less than 1.4 times that"
    assert "<u>60.00</u>" in markdown and "<u>61.00</u>" in markdown
    assert "**70.00**" in markdown


def test_each_run_says_which_row_of_the_leaderboard_it_counts_in() -> None:
    counted = [*row("s4", *[50.0] * 5), *row("tnn", 60.0, overrides=["train.cuda_graphs=true"])]
    others = [
        *row("s4", 55.0, overrides=["train.lr=1"], config_hash="b"),
        *row("s4", 55.0, label="wide", config_hash="c"),
        *row("tnn", 60.0, run_id="abc-s0", status="stopped"),
        *row("tnn", 60.0, preset="quick"),
        *row("tnn", 60.0, protocol="lra"),
        *row("tnn", 60.0, overrides=["task.train=9"], data=record().data.model_copy(
            update={"fingerprint": "other"})),
        record(task="recall", preset="budget"),
    ]  # fmt: skip
    found = rows_of_leaderboard([*counted, *others])
    assert [found.get(id(run)) for run in counted] == [run.mixer for run in counted]
    assert not any(id(run) in found for run in others)
    assert rows_of_leaderboard([]) == {}


def speed(mixer: str, steps_per_second: float, **changes: object) -> BenchRecord:
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
        speed("tnn", 9.0, length=128),
        speed("conv", 8.0, length=128),  # shorter sequences do not compare
    ]
    found = speeds_of(measured)
    assert (found.device, found.by_mixer.keys()) == ("CPU", {"tnn", "s4"})
    table = table_of(row("tnn", 40.0), row("s4", 50.0), row("lru", 45.0), speeds=found)
    assert table.headings[-1] == "speed, tnn = 1"
    assert [cells[-1] for cells in table.rows[:3]] == ["-", "2.00", "1.00"]
    assert "divided by those of tnn, on CPU" in table.notes[-1]
    assert not speeds_of([]).by_mixer
