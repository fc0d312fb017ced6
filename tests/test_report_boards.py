"""Cells, boards and their tables: nothing is filled in, and columns hold what compares."""

from __future__ import annotations

import math
import random
import statistics
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lra.record.run import RunRecord
from lra.report.boards.averages import FIVE, averages
from lra.report.boards.board import Board, boards
from lra.report.boards.cells import Cell, cell_of
from lra.report.boards.measures import ACCURACY
from lra.report.boards.ranking import ranks
from lra.report.boards.results import Results
from lra.report.data import ReportData, ReportOptions
from lra.report.published.rows import (
    PublishedRow,
    choose_published,
    published_rows,
)
from lra.report.tables.accuracy import accuracy_table
from lra.report.tables.published import published_table
from made_results import NOT_DONE, bench_record, made_records, record, save_all
from tasks.base import BENCHMARK

OFFICIAL = {"source": "official", "fingerprint": "o", "sizes": {}}


def cell(*runs: RunRecord) -> Cell:
    return cell_of(runs)


def test_text_of_a_cell() -> None:
    assert cell().text_of(ACCURACY) == "-"
    assert cell(record()).text_of(ACCURACY) == "40.00 (n=1)"
    assert (
        cell(record(), record(seed=1, test_accuracy=44.0)).text_of(ACCURACY) == "42.00 ± 2.83 (n=2)"
    )
    stopped = record(seed=1, status="stopped", **NOT_DONE)
    assert cell(stopped).text_of(ACCURACY) == "stopped"
    assert cell(record(), stopped).text_of(ACCURACY) == "40.00 (n=1), stopped"
    diverged = [record(seed=s, status="diverged", **NOT_DONE) for s in (2, 3)]
    assert cell(record(), *diverged).text_of(ACCURACY) == "40.00 (n=1), 2 diverged"
    assert cell(record(status="oom", **NOT_DONE)).text_of(ACCURACY) == "oom"


@pytest.mark.parametrize(
    ("accuracy", "at_chance"), [(16.0, True), (17.0, True), (18.9, True), (19.1, False)]
)
def test_at_chance_is_a_word(accuracy: float, at_chance: bool) -> None:
    """The majority class scores 17 % of 2,000: 1.96 points are the 1 % level."""
    one = cell(record(test_accuracy=accuracy))
    assert one.is_at_chance == at_chance
    assert one.text_of(ACCURACY).startswith("at chance: ") == at_chance
    assert (one.value is None) == at_chance


def test_the_other_class_is_chance_too() -> None:
    """Where training's majority is the test set's minority, the other answer beats it."""
    assert cell(record(test_accuracy=52.0, baselines={"majority class": 48.0})).value == 52.0
    run = record(test_accuracy=52.0, baselines={"majority class": 48.0}, largest_class=52.0)
    assert cell(run).is_at_chance


def test_one_seed_above_chance_makes_a_number() -> None:
    both = cell(record(test_accuracy=17.0), record(seed=1, test_accuracy=50.0))
    assert both.value == 33.5
    assert both.text_of(ACCURACY) == "33.50 ± 23.33 (n=2), 1 of 2 at chance"


@pytest.mark.parametrize("status", ["diverged", "oom"])
def test_a_cell_with_a_failed_seed_is_a_hole(status: str) -> None:
    assert cell(record(), record(seed=1, status=status, **NOT_DONE)).value is None


def test_a_seed_counts_once() -> None:
    repeat = record(run_id="abc-s0-r2", test_accuracy=44.0)
    assert cell(repeat, record()).text_of(ACCURACY) == "44.00 (n=1)"
    unfinished = record(run_id="abc-s0-r10", status="stopped", **NOT_DONE)
    assert cell(unfinished, repeat, record()).text_of(ACCURACY) == "44.00 (n=1)"


def test_a_run_without_a_result_stands_beside_the_result_of_its_name() -> None:
    done = record(run_id="abc-s0", test_accuracy=59.65)
    mine = record(run_id="abc-s0", status="stopped", steps=5, total_steps=1500, **NOT_DONE)
    one = cell(done, mine)
    assert one.text_of(ACCURACY) == "59.65 (n=1; your run: stopped at step 5 of 1,500)"
    assert one.value == 59.65
    other = record(run_id="abc-s1", seed=1, test_accuracy=59.65)
    ended = record(run_id="abc-s1", seed=1, status="oom", steps=7, total_steps=1500, **NOT_DONE)
    both = cell(mine, done, ended, other)
    assert (
        both.text_of(ACCURACY)
        == "59.65 ± 0.00 (n=2; your runs: stopped at step 5 of 1,500, oom at step 7 of 1,500)"
    )
    assert both.value == 59.65


def rows_of(board: Board) -> dict[str, dict[str, str]]:
    table = accuracy_table(board, "t")
    return {row[0]: dict(zip(table.headings, row, strict=True)) for row in table.rows}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"data": OFFICIAL}, "generated data instead of official"),
        ({"data": {"source": "generated, clean law", "fingerprint": "g", "sizes": {}}},
         "generated, clean law data instead of generated"),
        ({"data": {"source": "generated", "fingerprint": "g", "sizes": {}},
          "overrides": ["task.color=true"]}, "task.color=true"),
        ({"data": {"source": "generated", "fingerprint": "g", "sizes": {}},
          "selected_on": "test"}, "selected on test instead of val"),
        ({"data": {"source": "generated", "fingerprint": "g", "sizes": {}}},
         "other data of the same description"),
    ],
)  # fmt: skip
def test_what_cannot_share_a_column_has_a_table_of_its_own(
    change: dict[str, object], reason: str
) -> None:
    main, apart = boards([record(), record(run_id="abc-s1", seed=1), record(seed=2, **change)])
    assert main.is_main
    assert reason in apart.reason
    assert apart.reason in accuracy_table(apart, "t").caption
    assert len(main.records) + len(apart.records) == 3


def test_official_data_has_the_main_table() -> None:
    main, apart = boards([record(), record(seed=1), record(seed=2, data=OFFICIAL)])
    assert [len(main.records), len(apart.records)] == [1, 2]
    assert "official data" in accuracy_table(main, "t").caption


def test_each_board_has_one_data_set_per_task() -> None:
    """Several that differ from the main one for the same reason do not meet."""
    runs = [record(data=OFFICIAL)]
    for k in range(3):
        data = {"source": "unofficial", "fingerprint": f"{k}" * 9, "sizes": {}}
        runs.append(record(run_id=f"u-s{k}", seed=k, data=data))
    found = boards(runs)
    assert [len(board.records) for board in found] == [1, 1, 1, 1]
    assert len({board.reason for board in found}) == 4


def test_validation_rules_do_not_meet_on_one_data_set() -> None:
    chosen = [record(), record(seed=1, selected_on="test")]
    early = record(seed=2, status="diverged", selected_on=None)
    main, apart = boards([*chosen, early])
    assert [run.seed for run in main.records] == [0, 2]
    assert [run.seed for run in apart.records] == [1]


@pytest.mark.parametrize("change", [{"preset": "quick"}, {"protocol": "lra"}])
def test_presets_and_protocols_never_mix(change: dict[str, object]) -> None:
    first, second = boards([record(seed=1, **change), record()])
    assert (first.preset, first.protocol) == ("paper", "s4")
    assert second.is_main
    if second.preset == "quick":
        assert "not with published ones" in accuracy_table(second, "t").caption


def test_a_changed_setting_is_a_row_of_its_own() -> None:
    (board,) = boards(
        [
            record(),
            record(overrides=["train.lr=1"], config_hash="b"),
            record(
                overrides=["train.lr=1", "mixer.decay=0.9", "model.dim=8"], config_hash="c" * 16
            ),
        ]
    )
    first, second, third = board.rows
    assert (first, third) == ("tnn", "tnn (train.lr=1)")
    assert second == "tnn (mixer.decay=0.9, model.dim=8 and 1 more)"


def test_the_order_of_flags_makes_no_row() -> None:
    flags = ["model.dim=8", "model.depth=2"]
    (board,) = boards([record(overrides=flags), record(seed=1, overrides=flags[::-1])])
    assert list(board.rows) == ["tnn (model.depth=2, model.dim=8)"]


def test_many_changes_are_one_row_over_tasks() -> None:
    flags = ["model.dim=8", "model.depth=2", "train.lr=1"]
    runs = [record(task=task, config_hash=task, overrides=flags) for task in ("text", "image")]
    (board,) = boards(runs)
    assert len(board.rows) == 1


def test_settings_files_that_changed_divide_rows_that_read_the_same() -> None:
    (board,) = boards([record(), record(seed=1, config_hash="other")])
    assert list(board.rows) == ["tnn [settings abc]", "tnn [settings other]"]


def test_trivial_baselines_are_rows() -> None:
    rows = rows_of(boards([record(baselines={"majority class": 17.0, "root operator": 36.0})])[0])
    assert rows["trivial baseline: root operator"]["listops"] == "36.00"
    assert rows["trivial baseline: root operator"]["text"] == "-"


def test_a_task_of_ones_own_gets_a_column_and_no_average() -> None:
    runs = [record(task=task) for task in (*FIVE, "adding")]
    row = rows_of(boards(runs)[0])["tnn"]
    assert row["adding"] == row["listops"] == "40.00 (n=1)"
    assert row["mean of 5"] == "40.00"
    assert row["mean of 6"] == "-"


@settings(deadline=None, max_examples=60)
@given(
    scores=st.dictionaries(
        st.sampled_from(BENCHMARK), st.integers(1200, 2000).map(lambda n: n / 20), min_size=1
    ),
    failed=st.sets(st.sampled_from(BENCHMARK)),
)
def test_no_average_over_a_hole(scores: dict[str, float], failed: set[str]) -> None:
    cells = {
        task: cell(record(task=task, test_accuracy=score))
        if task not in failed
        else cell(record(task=task, status="diverged", **NOT_DONE))
        for task, score in scores.items()
    }
    whole = {task for task in cells if task not in failed}
    for name, tasks in (("mean of 5", FIVE), ("mean of 6", BENCHMARK)):
        found = averages(cells)[name]
        if whole >= set(tasks):
            assert found == pytest.approx(statistics.mean(scores[task] for task in tasks))
        else:
            assert found is None


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 120))
def test_tables_do_not_depend_on_the_order_of_records(seed: int, count: int) -> None:
    records = made_records(count)
    shuffled = records[:]
    random.Random(seed).shuffle(shuffled)
    first, second = (
        [accuracy_table(board, "t").markdown() for board in boards(r)] for r in (records, shuffled)
    )
    assert first == second


def test_every_record_is_in_exactly_one_board() -> None:
    records = made_records(200)
    placed = [run for board in boards(records) for run in board.records]
    assert len(placed) == len(records)
    assert {id(run) for run in placed} == {id(run) for run in records}


def test_every_measured_number_is_a_cell_of_its_records() -> None:
    """Recomputed from the records without the package's own grouping."""
    records = [r for r in made_records(300) if r.data.source == "official" and not r.overrides]
    for board in boards(records):
        for method, row in rows_of(board).items():
            for task in BENCHMARK if not method.startswith("trivial baseline") else ():
                runs = [
                    r for r in records
                    if (r.preset, r.protocol, r.mixer, r.task)
                    == (board.preset, board.protocol, method, task)
                ]  # fmt: skip
                done = [r.test_accuracy for r in runs if r.test_accuracy is not None]
                if done:
                    assert f"{statistics.mean(done):.2f}" in row[task]
                    assert f"(n={len(done)})" in row[task]
                else:
                    assert not any(character.isdigit() for character in row[task].split()[-1])


def test_ranks_share_a_place_where_print_is_equal() -> None:
    assert ranks([1.0, 3.001, None, 3.0, 2.0]) == {1: "best", 3: "best", 4: "second"}
    assert ranks([None, 5.0]) == {}


def _average(row: PublishedRow, rule: str) -> float | None:
    """Recompute the average of a row by a rule, as `mean_over` would not."""
    tasks = {"of 5": FIVE, "of 5, no ListOps": BENCHMARK[1:]}.get(rule, BENCHMARK)
    fail = 50.0 if rule == "of 6, FAIL as 50" else None
    values = [fail if row.printed[task] == "FAIL" else row.values[task] for task in tasks]
    numbers = [value for value in values if value is not None]
    return math.fsum(numbers) / len(numbers) if len(numbers) == len(tasks) else None


RULES = ("of 6", "of 5", "of 5, no ListOps", "of 6, FAIL as 50")


@pytest.mark.parametrize("row", published_rows(), ids=lambda row: row.method)
def test_the_printed_average_follows_from_its_rule(row: PublishedRow) -> None:
    rounding = 1.01 * 10.0 ** -len(row.printed_average.partition(".")[2])  # or cut off
    fitting = [
        rule
        for rule in RULES
        if row.printed_average
        and (average := _average(row, rule)) is not None
        and abs(average - float(row.printed_average)) <= rounding
    ]
    if not row.printed_average or not any(row.printed.values()):
        assert row.average_rule == ""
    elif row.average_rule == "wrong":
        assert fitting == []
    else:
        assert row.average_rule in fitting


def test_some_printed_averages_are_wrong() -> None:
    wrong = {row.method: row for row in published_rows() if row.average_rule == "wrong"}
    assert {method: row.average_text for method, row in wrong.items()} == {
        "Sinkhorn Transformer": "51.39 (wrong: the row gives 51.48)",
        "cosFormer": "51.76 (wrong: the row gives 62.11)",
        "S5 (rerun by FRACTAL authors)": "87.04 (wrong: the row gives 87.06)",
        "LION-D": "85.63 (wrong: the row gives 85.68)",
        "LION-S": "86.07 (wrong: the row gives 86.02)",
        "RWKV": "72.07 (wrong: the row gives 71.84)",
    }


def test_an_average_without_its_row_is_not_checked() -> None:
    (row,) = choose_published("MRConv")
    assert row.average_text == "88.2 (not checked)"
    assert published_table([row]).rows[0][1:9] == ["-"] * 8


def test_published_holes_have_no_average() -> None:
    for row, line in zip(published_rows(), published_table(published_rows()).rows, strict=True):
        values = [row.values[task] for task in FIVE]
        if None in values:
            assert line[7] == "-"
        else:
            assert float(line[7]) == pytest.approx(math.fsum(v for v in values if v) / 5, abs=0.006)
        assert (line[8] == "-") == (None in row.values.values())


def test_published_methods_are_chosen_by_name() -> None:
    assert [row.method for row in choose_published("tnn, S5")] == ["TNN", "S5"]
    assert choose_published("none") == []
    with pytest.raises(Exception, match="did you mean TNN"):
        choose_published("TNM")


def test_published_rows_have_sources() -> None:
    import yaml

    from lra.report.published.rows import PUBLISHED

    sources = yaml.safe_load((PUBLISHED.parent / "sources.yaml").read_text())
    assert {row.source for row in published_rows()} - {"chance level"} == sources.keys()
    for row in published_rows():
        assert all(text in ("", "FAIL") or 0 < float(text) < 100 for text in row.printed.values())


def test_rows_of_ones_own_are_known(tmp_path: Path) -> None:
    """By record, so that a row of shipped results stays one beside a run of other settings."""
    save_all(tmp_path / "shipped", [record(), record(mixer="s4"), record(task="text")])
    save_all(tmp_path, [record(seed=1, run_id="abc-s1"), record(mixer="mean", preset="quick")])
    for root, mixer in ((tmp_path / "shipped", "tnn"), (tmp_path, "s4")):
        bench_record(mixer=mixer).save(root / "bench")
    data = ReportData(Results(tmp_path), ReportOptions())
    assert [board.own_rows for board in data.boards] == [["tnn"], ["mean"]]
    assert [board.own_rows for board in data.speed_boards] == [["tnn"], ["mean"]]
    assert [board.own_rows for board in data.bench_boards] == [["s4"]]
    table = accuracy_table(data.boards[0], "t")
    assert table.own_rows == [table.columns[0].texts.index("tnn")]
    own = [(c.name, e.text) for c in table.columns[1:] for e in c.entries if e.is_own]
    assert own == [("listops", "40.00 ± 0.00 (n=2)")]
    shipped = ReportData(Results(tmp_path / "shipped"), ReportOptions())
    assert not any(board.own_rows for board in [*shipped.boards, *shipped.bench_boards])
