"""Cells, boards and their tables: nothing is filled in, and columns hold what compares."""

import random
import re
import statistics

import pytest

from lra.record.run import RunRecord
from lra.report.boards import Board, boards, choose_from_grids
from lra.report.scores import AVERAGES, FIVE, average, cell_of
from lra.report.tables.results import accuracy_table
from lra.report.tables.table import number_entry
from lra.runtime.tables import rounded
from lra.statistics import BEST, TIED, mark_best
from lra.tasks.base import BENCHMARK
from made_results import made_records, next_token_run, record

OFFICIAL = {"source": "official", "fingerprint": "o", "sizes": {}}
GENERATED = {"source": "generated", "fingerprint": "g", "sizes": {}}
STOPPED = record(run_id="abc-s0", status="stopped", steps=5, total_steps=1500)
DONE = record(run_id="abc-s0", test_accuracy=59.65)


@pytest.mark.parametrize(
    ("runs", "text", "is_ranked"),
    [
        ([], None, False),
        ([record(), record(seed=1, test_accuracy=44.0)], "42.00 ± 2.83 (n=2)", True),
        ([record(), *(record(seed=s, status="diverged") for s in (1, 2))],
         "40.00 (n=1), 2 diverged", False),
        ([record(), record(seed=1, status="stopped")], "40.00 (n=1), stopped", True),
        ([record(), record(seed=1, test_non_finite=7)],
         "40.00 ± 0.00 (n=2), 1 with non-finite logits", True),
        # Of a seed, the newest finished attempt counts.
        ([record(run_id="a-s0-r2", test_accuracy=44.0), record(run_id="a-s0"),
          record(run_id="a-s0-r10", status="stopped")], "44.00 (n=1)", True),
        # A shipped result stays beside the user's own unfinished run of the same name.
        ([DONE, STOPPED, record(run_id="b-s1", seed=1, test_accuracy=59.65)],
         "59.65 ± 0.00 (n=2), your run: stopped at step 5 of 1,500", True),
        # The majority class scores 17 % of 2,000: 1.96 points are the 1 % level.
        ([record(test_accuracy=18.9)], "at chance: 18.90 (n=1)", False),
        ([record(test_accuracy=19.1)], "19.10 (n=1)", True),
        # Where training's majority is the test set's minority, the other answer beats it.
        ([record(test_accuracy=52.0, baselines={"majority class": 48.0}, largest_class=52.0)],
         "at chance: 52.00 (n=1)", False),
        ([record(test_accuracy=17.0), record(seed=1, test_accuracy=50.0)],
         "33.50 ± 23.33 (n=2), 1 of 2 at chance", True),
    ],
)  # fmt: skip
def test_what_runs_score_is_a_text_and_a_rank(
    runs: list[RunRecord], text: str | None, is_ranked: bool
) -> None:
    entry = cell_of(runs).entry()
    assert (entry.text, entry.is_ranked) == (text, is_ranked)


@pytest.mark.parametrize(
    ("values", "margin", "marks"),
    [
        ([None, 5.0], 2.0, {}),
        ([50.0, 47.9, None], None, {}),
        ([50.0, 47.9, None], 2.0, {0: BEST}),
        ([50.0, 48.0, 47.9], 2.0, {0: TIED, 1: TIED}),
    ],
)
def test_a_lead_that_chance_can_explain_is_not_bold(
    values: list[float | None], margin: float | None, marks: dict[int, str]
) -> None:
    assert mark_best(values, margin) == marks


def test_every_table_rounds_halves_up() -> None:
    (board,) = boards([record(test_accuracy=79.425, test_total=20_000)])
    assert rows_of(board)["tnn"]["listops"] == "79.43 (n=1)"
    assert board.records[0].result.text == "79.43 %"
    assert number_entry(46.45, 1).text == "46.5"


def rows_of(board: Board) -> dict[str, dict[str, str]]:
    table = accuracy_table(board)
    return {row[0]: dict(zip(table.headings, row, strict=True)) for row in table.rows}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"data": OFFICIAL}, "generated data"),
        ({"data": GENERATED, "overrides": ["task.color=true"]}, "task.color=true"),
        ({"data": GENERATED, "selected_on": "test"}, "selected on test"),
        ({"data": GENERATED}, "data g"),
    ],
)  # fmt: skip
def test_what_cannot_share_a_column_has_a_table_of_its_own(
    change: dict[str, object], reason: str
) -> None:
    runs = [record(), record(run_id="abc-s1", seed=1), record(seed=2, **change)]
    main, other = boards(runs)
    assert main.is_main and reason not in accuracy_table(main).title
    assert reason in other.reason
    assert other.reason in accuracy_table(other).title
    assert len(main.records) + len(other.records) == 3


def test_official_data_has_the_main_table_and_each_other_data_set_its_own() -> None:
    others = [{"source": "unofficial", "fingerprint": f"{k}" * 9, "sizes": {}} for k in range(3)]
    runs = [record(seed=seed, data=data) for data in others for seed in (0, 1)]
    found = boards([*runs, record(seed=9, data=OFFICIAL)])
    assert [len(board.records) for board in found] == [1, 2, 2, 2]
    assert len({board.reason for board in found}) == 4
    assert "official data" in accuracy_table(found[0]).caption
    main, _ = boards([record(), *(record(seed=seed, selected_on="test") for seed in (1, 2))])
    assert [run.seed for run in main.records] == [0]


def test_presets_protocols_and_next_tokens_never_mix() -> None:
    texts = [next_token_run(2.0, task=task) for task in ("lm", "periodic")]
    runs = [record(preset="quick"), record(protocol="lra"), record(), *texts]
    early = record(seed=2, status="diverged", selected_on=None)  # joins others on its data
    found = boards([*runs, early])
    assert [(board.preset, board.protocol, len(board.records)) for board in found] == [
        ("paper", "s4", 2), ("paper", "lra", 1), ("quick", "s4", 1), *[("budget", "s4", 1)] * 2
    ]  # fmt: skip
    assert [board.is_of_accuracy for board in found] == [True, True, True, False, False]
    small = ["not with published ones" in accuracy_table(board).caption for board in found[:3]]
    assert small == [False, False, True]


def test_two_files_of_a_preset_of_one_name_have_a_table_each() -> None:
    codes = ("1a2b3c4d5e6f7a8b", "a" * 16)
    runs = [record(preset="small", preset_code=code, run_id=code) for code in codes]
    assert [board.preset for board in boards(runs[:1])] == ["small"]
    assert [board.preset for board in boards(runs)] == [
        "small [file 1a2b3c4d]", "small [file aaaaaaaa]",
    ]  # fmt: skip
    assert all(list(board.rows) == ["tnn"] for board in boards(runs))


def test_ones_own_rows_of_other_training_join_and_validation_chooses() -> None:
    runs = [
        record(overrides=[*model, f"train.lr={rate}"], val_accuracy=validation, test_accuracy=test)
        for model, rate, validation, test in (
            ([], 1, 50.0, 40.0), ([], 2, 51.0, 39.0), (["model.dim=8"], 1, 60.0, 45.0))
    ]  # fmt: skip
    (board,) = boards(runs, is_own=lambda _: True)
    rows = choose_from_grids(board).rows
    assert {name: cells["listops"].entry().value for name, cells in rows.items()} == {
        "tnn (best of 2 by validation)": 39.0, "tnn (model.dim=8, train.lr=1)": 45.0,
    }  # fmt: skip
    assert choose_from_grids(*boards(runs)).rows.keys() == board.rows.keys(), "shipped ones do not"


def test_no_average_over_a_hole() -> None:
    cells = {
        task: cell_of([record(task=task, test_accuracy=10.0 * k)])
        for k, task in enumerate(FIVE, start=1)
    }
    # The first one is at chance, and counts.
    assert [average(cells, tasks) for tasks in AVERAGES.values()] == [30.0, None]
    failed = [record(task="text"), record(task="text", seed=1, status="diverged")]
    assert average(cells | {"text": cell_of(failed)}, FIVE) is None


def test_every_measured_number_is_a_cell_of_its_records() -> None:
    """Recomputed from the records without the package's own grouping."""
    records = [r for r in made_records(300) if r.data.source == "official" and not r.overrides]
    done: dict[tuple[str, ...], list[float]] = {}
    for r in records:
        if r.test_accuracy is not None:
            done.setdefault((r.preset, r.protocol, r.mixer, r.task), []).append(r.test_accuracy)
    for board in boards(records):
        for method, row in rows_of(board).items():
            for task in BENCHMARK if not method.startswith("trivial baseline") else ():
                found = done.get((board.preset, board.protocol, method, task))
                numbers = re.findall(r"([\d.]+)(?: ± [\d.]+)? \(n=(\d+)\)", row[task])
                expected = [(rounded(statistics.mean(found), 2), str(len(found)))] if found else []
                assert numbers == expected


def test_every_record_is_in_one_board_in_whatever_order_records_are_read() -> None:
    records = made_records(200)
    shuffled = random.Random(1).sample(records, len(records))
    first, second = boards(records), boards(shuffled)
    assert sorted(id(run) for board in first for run in board.records) == sorted(map(id, records))
    assert [*map(accuracy_table, first)] == [*map(accuracy_table, second)]
