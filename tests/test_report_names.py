"""What rows are called: labels, what differs, and how flags find them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

import report
from lra.record.run import RunRecord
from lra.report.boards import boards
from lra.report.commands import command
from lra.report.data import Data
from lra.report.names import RowNames, complete
from lra.report.page.page import make_data
from lra.report.page.sheets import views
from lra.report.tables.results import leaderboard
from lra.report.tables.speeds import PresetSpeeds
from lra.runtime.errors import UserError
from made_results import bench_record, record, save_all, write_predictions

CODES = [digit * 16 for digit in "abc"]
COMMON = ("mixer.decay=0.9", "model.dim=8", "model.depth=2")


def rows(*runs: RunRecord) -> list[str]:
    (board,) = boards(runs)
    return list(board.rows)


def changed(*overrides: str, **more: object) -> RunRecord:
    """Make a run with changed settings, of which its hash tells."""
    text = "".join([*sorted(overrides), str(more.get("mixer_code", ""))])
    return record(**{"overrides": list(overrides), "config_hash": text or "abc", **more})


GRID = itertools.product(("mixer.decay=0.8", "mixer.decay=0.9"), ("model.dim=8", "model.dim=9"),
                         ("train.lr=1", "train.lr=2"))  # fmt: skip


@pytest.mark.parametrize(
    ("runs", "names"),
    [
        # The rate has three values; what all these rows have in common tells nothing.
        ([changed(*COMMON, f"train.lr={rate}") for rate in (1, 2, 3)],
         [f"tnn (train.lr={rate} and 3 more)" for rate in (1, 2, 3)]),
        ([changed(), changed("train.lr=1"), changed("train.lr=1", "model.dim=8")],
         ["tnn", "tnn (model.dim=8, train.lr=1)", "tnn (train.lr=1)"]),
        ([changed(*COMMON)], ["tnn (mixer.decay=0.9, model.depth=2 and 1 more)"]),
        # Rows that differ in more settings show more.
        ([changed("model.depth=2", *three) for three in GRID],
         [f"tnn (mixer.decay={decay}, model.dim={dim}, train.lr={rate} and 1 more)"
          for decay in (0.8, 0.9) for dim in (8, 9) for rate in (1, 2)]),
        # Flags in another order, and settings that change no result, make no row.
        ([changed("model.dim=8", "train.lr=1"), changed("train.lr=1", "model.dim=8", seed=1)],
         ["tnn (model.dim=8, train.lr=1)"]),
        ([record(), record(overrides=["train.cuda_graphs=true"], seed=1)], ["tnn"]),
        # Settings files that changed in between do.
        ([record(), record(seed=1, config_hash="other")],
         ["tnn [settings abc]", "tnn [settings other]"]),
    ],
)  # fmt: skip
def test_names_say_in_what_rows_differ(runs: list[RunRecord], names: list[str]) -> None:
    assert rows(*runs) == names


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
    high, other, higher = (
        changed("train.lr=1", seed=seed, label=label)
        for seed, label in enumerate(("high", None, "higher"))
    )
    assert rows(high, other) == ["tnn: high"]
    assert rows(high, other, higher) == ["tnn (train.lr=1)", "tnn: high", "tnn: higher"]
    plain = [changed(seed=0), changed(seed=1, label="one core")]
    assert rows(*plain) == ["tnn", "tnn: one core"], "settings of the preset keep their name"


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


def test_a_label_takes_the_place_of_code_and_settings_where_it_is_unique() -> None:
    wide = changed("model.dim=8", mixer="M", mixer_code=CODES[0], label="wide")
    assert rows(wide, changed(mixer="M", mixer_code=CODES[1])) == ["M (code bbbbbbbb)", "M: wide"]
    assert command(wide).endswith("--set model.dim=8 --label wide")
    runs = [changed(f"train.lr={rate}", *COMMON, label="wide") for rate in (1, 2)]
    assert rows(*runs) == [f"tnn: wide (train.lr={rate} and 3 more)" for rate in (1, 2)]
    codes = [changed(mixer="M", mixer_code=code, label="wide") for code in CODES[:2]]
    assert rows(*codes) == ["M: wide (code aaaaaaaa)", "M: wide (code bbbbbbbb)"]
    alike = [changed("train.lr=1", label="x"), changed("train.lr=2", label="x"),
             changed(label="x (train.lr=2)")]  # fmt: skip
    assert len(rows(*alike)) == 3, "a label that reads as settings joins no rows"


@pytest.mark.parametrize("label", ["", " x", "x ", "a\nb", "\x1b[2J", "x" * 61])
def test_labels_that_no_table_can_show_are_refused(label: str) -> None:
    with pytest.raises(ValidationError):
        record(label=label)


def test_a_labelled_run_is_on_the_leaderboard_if_no_other_has_its_settings() -> None:
    other = changed("train.lr=1", label="fast", mixer="s4")
    for runs, names in (([other], ["tnn: mine"]), ([other, changed(seed=1)], ["tnn"])):
        (board,) = boards([changed(label="mine"), *runs])
        assert leaderboard(board, PresetSpeeds()).methods == names


def test_a_run_has_one_name_in_all_sheets(tmp_path: Path) -> None:
    own = changed(mixer="M", mixer_code=CODES[0], mixer_from="a.py:M")
    rates = [changed(*COMMON, f"train.lr={rate}", run_id=f"r{rate}") for rate in (1, 2)]
    save_all(tmp_path / "shipped", [own, *rates])
    bench_record(mixer="M", mixer_code=CODES[1]).save(tmp_path / "shipped" / "bench")
    data = Data(tmp_path)
    names = {data.names.of(run) for run in data.records}
    two = {f"tnn (train.lr={rate} and 3 more)" for rate in (1, 2)}
    assert names == {"M (a.py)", *two}
    sheets = {view: [*view.make(data)] for view in views([])}
    shown = {row for found in sheets.values() for sheet in found for row in sheet.table.methods}
    assert shown == names | {"M (code bbbbbbbb)"}
    page = make_data(data, sheets, tmp_path / "report")
    assert {run["row"] for run in page["runs"].values()} == shown


KNOWN = ["s4", "s4d", "tnn", "GatedConv (a.py)", "GatedConv: wide", "Mine (train.lr=1)"]


@pytest.mark.parametrize(
    ("given", "found"),
    [("s4", "s4"), ("S4D", "s4d"), ("t", "tnn"), ("mine", "Mine (train.lr=1)"),
     ("gatedconv:", "GatedConv: wide")],
)  # fmt: skip
def test_flags_find_rows_by_how_their_names_begin(given: str, found: str) -> None:
    assert complete(given, KNOWN, "mixer", "--rows") == found
    with pytest.raises(UserError, match=r"--rows.*unknown mixer 'conv'"):
        complete("conv", KNOWN, "mixer", "--rows")
    with pytest.raises(UserError, match=r"2 names begin with it \(GatedConv \(a.py\); GatedC"):
        complete("GatedConv", KNOWN, "mixer", "--rows")


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
    assert report.main([*start, "--compare", "GATED", "tnn"]) == 0
    assert "Gated (train.lr=1) less tnn (train.lr=1)" in capsys.readouterr().out
