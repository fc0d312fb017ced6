"""What rows are called: labels, what differs, and how flags find them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

import report
from lra.record.run import RunRecord
from lra.report.boards.board import Board, boards
from lra.report.boards.comparison import find_method
from lra.report.boards.preset_speeds import PresetSpeeds
from lra.report.boards.results import Results
from lra.report.boards.row_names import RowNames
from lra.report.boards.speeds import speed_boards
from lra.report.data import ReportData, ReportOptions
from lra.report.page.commands import command
from lra.report.page.page import make_data
from lra.report.tables.leaderboard import leaderboard
from lra.runtime.errors import UserError
from made_results import bench_record, record, save_all, write_predictions

CODES = [digit * 16 for digit in "abc"]


def rows(*runs: RunRecord) -> list[str]:
    (board,) = boards(runs)
    return list(board.rows)


def changed(*overrides: str, **more: object) -> RunRecord:
    """Make a run with changed settings, of which its hash tells."""
    text = "".join([*sorted(overrides), str(more.get("mixer_code", ""))])
    return record(**{"overrides": list(overrides), "config_hash": text or "abc", **more})


COMMON = ("mixer.decay=0.9", "model.dim=8", "model.depth=2")


def test_names_say_what_differs() -> None:
    """The rate has three values; what all these rows have in common tells nothing."""
    assert rows(*(changed(*COMMON, f"train.lr={rate}") for rate in (1, 2, 3))) == [
        f"tnn (train.lr={rate} and 3 more)" for rate in (1, 2, 3)
    ]
    few = [changed(), changed("train.lr=1"), changed("train.lr=1", "model.dim=8")]
    assert rows(*few) == ["tnn", "tnn (model.dim=8, train.lr=1)", "tnn (train.lr=1)"]
    assert rows(changed(*COMMON)) == ["tnn (mixer.decay=0.9, model.depth=2 and 1 more)"]


def test_more_settings_are_shown_where_rows_differ_in_more() -> None:
    grid = itertools.product(("mixer.decay=0.8", "mixer.decay=0.9"), ("model.dim=8", "model.dim=9"),
                             ("train.lr=1", "train.lr=2"))  # fmt: skip
    found = rows(*(changed("model.depth=2", *combination) for combination in grid))
    assert len(found) == 8
    assert found[0] == "tnn (mixer.decay=0.8, model.dim=8, train.lr=1 and 1 more)"


def test_settings_that_change_no_result_make_no_row() -> None:
    fast = "train.checkpoint_activations=true", "train.cuda_graphs=true"
    assert rows(record(), record(overrides=list(fast), seed=1)) == ["tnn"]


def test_what_other_mixers_presets_and_protocols_change_is_no_matter() -> None:
    runs = [changed(*COMMON), changed("train.lr=1", *COMMON, mixer="s4"),
            changed("train.lr=1", *COMMON, preset="quick")]  # fmt: skip
    own = "tnn (mixer.decay=0.9, model.depth=2 and 1 more)"
    assert list(boards(runs)[0].rows)[1] == own


SETTINGS = st.dictionaries(
    st.sampled_from(["model.dim", "model.depth", "train.lr", "mixer.decay", "train.steps"]),
    st.integers(1, 3),
)


@settings(deadline=None, max_examples=100)
@given(
    drawn=st.lists(
        st.tuples(SETTINGS, st.sampled_from([None, *CODES]), st.sampled_from([None, "wide"])),
        min_size=1,
        max_size=12,
    )
)
def test_no_two_settings_have_one_name(
    drawn: Sequence[tuple[dict[str, int], str | None, str | None]],
) -> None:
    runs = {
        (tuple(sorted(values.items())), code): changed(
            *(f"{key}={value}" for key, value in values.items()),
            mixer="M", mixer_code=code, mixer_from=code and f"{code}.py:M", label=label,
        )
        for values, code, label in drawn
    }  # fmt: skip
    names = RowNames(list(runs.values()))
    assert len({names.of(run) for run in runs.values()}) == len(runs)
    assert all("[settings" not in names.of(run) for run in runs.values())


def test_other_seeds_of_labelled_settings_share_the_label() -> None:
    runs = [changed("train.lr=1", seed=seed) for seed in range(3)]
    labelled = [runs[0].model_copy(update={"label": "high"}), *runs[1:]]
    names = RowNames([*labelled, changed("train.lr=2")])
    assert {names.of(run) for run in labelled} == {"tnn: high"}
    two = [*labelled[:2], runs[2].model_copy(update={"label": "higher"})]
    names = RowNames(two)
    assert [names.of(run) for run in two] == ["tnn: high", "tnn (train.lr=1)", "tnn: higher"]


def test_a_label_of_one_seed_takes_no_name_from_settings_of_the_preset() -> None:
    runs = [changed(seed=0), changed(seed=1, label="one core")]
    assert rows(*runs) == ["tnn", "tnn: one core"]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["a.py"], ["M"]),
        (["a.py", "there/b.py"], ["M (a.py)", "M (b.py)"]),
        (["a.py", "a.py"], ["M (code aaaaaaaa)", "M (code bbbbbbbb)"]),
        (["a.py", "a.py", "c.py"], ["M (c.py)", "M (code aaaaaaaa)", "M (code bbbbbbbb)"]),
        (["package.one", "package.two"], ["M (package.one)", "M (package.two)"]),
        ([None, "b.py"], ["M (b.py)", "M (code aaaaaaaa)"]),
    ],
)
def test_the_code_of_a_plug_in_is_named_where_there_are_several(
    files: Sequence[str | None], expected: list[str]
) -> None:
    runs = [
        changed(mixer="M", mixer_code=code, mixer_from=file and f"{file}:M")
        for file, code in zip(files, CODES, strict=False)
    ]
    assert rows(*runs) == expected


def test_code_and_settings_stand_together() -> None:
    runs = [
        changed("train.lr=1", mixer="M", mixer_code=code, mixer_from=f"{code[0]}.py:M")
        for code in CODES[:2]
    ]
    assert rows(*runs) == ["M (a.py, train.lr=1)", "M (b.py, train.lr=1)"]


def test_a_label_stands_in_the_place_of_code_and_settings() -> None:
    wide = changed("model.dim=8", mixer="M", mixer_code=CODES[0], label="wide")
    other = changed(mixer="M", mixer_code=CODES[1])
    assert rows(wide, other) == ["M (code bbbbbbbb)", "M: wide"]
    assert command(wide).endswith("--set model.dim=8 --label wide")


def test_settings_of_one_label_are_told_apart() -> None:
    runs = [changed(f"train.lr={rate}", *COMMON, label="wide") for rate in (1, 2)]
    assert rows(*runs) == [f"tnn: wide (train.lr={rate} and 3 more)" for rate in (1, 2)]
    codes = [changed(mixer="M", mixer_code=code, label="wide") for code in CODES[:2]]
    assert rows(*codes) == ["M: wide (code aaaaaaaa)", "M: wide (code bbbbbbbb)"]


def test_a_label_that_reads_as_settings_joins_no_rows() -> None:
    """What a record can hold, no number may be made of."""
    runs = [changed("train.lr=1", label="x"), changed("train.lr=2", label="x"),
            changed(label="x (train.lr=2)")]  # fmt: skip
    assert len(rows(*runs)) == 3


@pytest.mark.parametrize("label", ["", " x", "x ", "a\nb", "\x1b[2J", "x" * 61])
def test_labels_that_no_table_can_show_are_refused(label: str) -> None:
    with pytest.raises(ValidationError):
        record(label=label)


def test_a_label_is_no_changed_setting() -> None:
    """The leaderboard shows the settings of the preset, whatever a run is called."""
    (board,) = boards([changed(label="mine"), changed("train.lr=1", label="fast", mixer="s4")])
    assert [row[0] for row in leaderboard(board, PresetSpeeds()).rows[:1]] == ["tnn: mine"]
    assert "fast" not in leaderboard(board, PresetSpeeds()).markdown()
    (board,) = boards([changed(label="mine"), changed(seed=1)])
    assert [row[0] for row in leaderboard(board, PresetSpeeds()).rows[:1]] == ["tnn"]


def test_a_run_has_one_name_on_the_page(tmp_path: Path) -> None:
    """In accuracies, speeds, measurements and the list of runs, of whatever data."""
    runs = [
        changed(mixer="M", mixer_code=CODES[0], mixer_from="a.py:M", run_id="a"),
        changed(mixer="M", mixer_code=CODES[0], mixer_from="a.py:M", task="text", run_id="t"),
        changed(*COMMON, "train.lr=1", run_id="c"),
        changed(*COMMON, "train.lr=2", run_id="d", device="GPU"),
    ]
    save_all(tmp_path, runs)
    bench_record(mixer="M", mixer_code=CODES[1]).save(tmp_path / "bench")
    results = Results(tmp_path)
    names = RowNames(results.records, results.bench)
    assert {names.of(run) for run in results.records} == {
        "M (a.py)", "tnn (train.lr=1 and 3 more)", "tnn (train.lr=2 and 3 more)"
    }  # fmt: skip
    shown = [*boards(results.records, names), *speed_boards(results.records, names)]
    assert {name for board in shown for name in board.rows} == {names.of(r) for r in runs}
    page = make_data(ReportData(results, ReportOptions()), tmp_path / "report")
    every = [sheet for view in page["views"] for sheet in view["sheets"]]
    rows = {row["name"] for sheet in every for row in sheet["rows"] if row["mixer"]}
    best = "tnn (best of 2 by validation)"
    assert rows == {*(names.of(run) for run in runs), "M (code bbbbbbbb)", best}
    titles = " ".join(run["title"] for run in page["runs"].values())
    assert all(f"{names.of(run)} on {run.task}, seed" in titles for run in runs)


KNOWN = ["s4", "s4d", "tnn", "GatedConv (a.py)", "GatedConv: wide", "Mine (train.lr=1)"]


@pytest.mark.parametrize(
    ("given", "found"),
    [("s4", "s4"), ("S4D", "s4d"), ("t", "tnn"), ("mine", "Mine (train.lr=1)"),
     ("gatedconv:", "GatedConv: wide")],
)  # fmt: skip
def test_flags_find_rows_by_how_their_names_begin(given: str, found: str) -> None:
    assert find_method(with_rows(KNOWN), given, "--compare") == found


def with_rows(names: Sequence[str]) -> list[Board]:
    return [Board("paper", "s4", {name: {} for name in names}, {})]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("GatedConv", "2 names begin with it (GatedConv (a.py); GatedConv: wide)"),
        ("s", "2 names begin with it"),
        ("", "unknown mixer among the runs"),
        ("conv", "unknown mixer among the runs 'conv'"),
    ],
)
def test_what_is_no_name_or_several_lists_them(given: str, message: str) -> None:
    with pytest.raises(UserError, match=f"--compare.*{re.escape(message)}"):
        find_method(with_rows(KNOWN), given, "--compare")


def test_rows_with_settings_are_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [record(mixer="s4d", test_total=100, test_accuracy=60.0),
            record(mixer="GatedConv", overrides=["train.lr=1"], test_total=100,
                   test_accuracy=50.0)]  # fmt: skip
    save_all(tmp_path, runs)
    for run in runs:
        right = run.test_correct or 0
        write_predictions(tmp_path, run, [(1, int(i < right), 7) for i in range(100)])
    place = ["--results-dir", str(tmp_path)]
    assert report.main([*place, "--compare", "S4D", "gated"]) == 0
    out = capsys.readouterr().out
    assert "s4d less GatedConv (train.lr=1)" in out
    assert report.main([*place, "--compare", "s4d", "S4D"]) == 2
    assert "expected two different mixers" in capsys.readouterr().err


def test_a_beginning_stands_for_the_row_that_has_runs_of_the_task(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another row of that very name, on another task, is not in its way."""
    runs = [
        record(task="text", test_total=100),
        changed("train.lr=1", task="parity", run_id="a", test_total=100),
        changed("train.lr=1", task="parity", mixer="Gated", run_id="b", test_total=100),
    ]
    save_all(tmp_path, runs)
    for run in runs:
        write_predictions(tmp_path, run, [(1, int(i < 40), 7) for i in range(100)])
    start = ["--results-dir", str(tmp_path)]
    assert report.main([*start, "--compare", "gated", "tnn"]) == 0
    assert "Gated (train.lr=1) less tnn (train.lr=1)" in capsys.readouterr().out
    paper = ["--paper", "--rows", "gated,tnn", "--columns", "parity"]
    assert report.main([*start, *paper]) == 0
    (table,) = (tmp_path / "report" / "paper" / "tables").iterdir()
    assert "tnn (train.lr=1)" in table.read_text() and "tnn &" not in table.read_text()
