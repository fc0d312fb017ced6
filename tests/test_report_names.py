"""What rows are called: labels, what differs, and how flags find them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lra.record.run import RunRecord
from lra.report.boards import boards
from lra.report.commands import command
from lra.report.names import RowNames
from made_results import record

CODES = [digit * 16 for digit in "abc"]
COMMON = ("mixer.decay=0.9", "model.dim=8", "model.depth=2")


def rows(*runs: RunRecord) -> list[str]:
    (board,) = boards(runs)
    return list(board.rows)


def changed(*overrides: str, **more: object) -> RunRecord:
    """Make a run with changed settings, of which its hash tells."""
    text = "".join([*sorted(overrides), str(more.get("mixer_code", ""))])
    return record(**{"overrides": list(overrides), "config_hash": text or "abc", **more})


@pytest.mark.parametrize(
    ("runs", "names"),
    [
        # The rate has three values; what all these rows have in common tells nothing.
        ([changed(*COMMON, f"train.lr={rate}") for rate in (1, 2, 3)],
         [f"tnn (train.lr={rate} and 3 more)" for rate in (1, 2, 3)]),
        ([changed(), changed("train.lr=1"), changed("train.lr=1", "model.dim=8")],
         ["tnn", "tnn (model.dim=8, train.lr=1)", "tnn (train.lr=1)"]),
        ([changed(*COMMON)], ["tnn (mixer.decay=0.9, model.depth=2, model.dim=8)"]),
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
