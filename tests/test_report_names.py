"""What rows are called: by mixer, settings, label and code; no two settings have one name."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lra.record.run import RunRecord
from lra.report.boards import boards
from lra.report.names import RowNames
from made_results import record

CODES = [digit * 16 for digit in "abc"]


def changed(*overrides: str, **more: object) -> RunRecord:
    """Make a run with changed settings, of which its hash tells."""
    text = "".join([*sorted(overrides), str(more.get("mixer_code", ""))])
    return record(**{"overrides": list(overrides), "config_hash": text or "abc", **more})


WIDE = changed("model.dim=8", mixer="M", mixer_code=CODES[0], label="wide")


@pytest.mark.parametrize(
    ("runs", "names"),
    [
        ([changed(), changed("train.lr=1"), changed("train.lr=1", "model.dim=8")],
         ["tnn", "tnn (model.dim=8, train.lr=1)", "tnn (train.lr=1)"]),
        # Flags in another order, and settings that change no result, make no row.
        ([changed("model.dim=8", "train.lr=1"), changed("train.lr=1", "model.dim=8", seed=1)],
         ["tnn (model.dim=8, train.lr=1)"]),
        ([record(), record(overrides=["train.cuda_graphs=true"], seed=1)], ["tnn"]),
        # Settings files that changed in between do, and other settings of one label.
        ([record(), record(seed=1, config_hash="other")],
         ["tnn [settings abc]", "tnn [settings other]"]),
        ([changed("model.dim=8", label="x"), changed("train.lr=2", label="x")],
         ["tnn: x [settings model.di]", "tnn: x [settings train.lr]"]),
        ([changed(mixer="M", mixer_code=code) for code in CODES[:2]],
         ["M [code aaaaaaaa]", "M [code bbbbbbbb]"]),
    ],
)  # fmt: skip
def test_names_say_in_what_rows_differ(runs: list[RunRecord], names: list[str]) -> None:
    (board,) = boards(runs)
    assert list(board.rows) == names


def test_a_command_repeats_settings_and_label() -> None:
    assert WIDE.flags()[-4:] == ["--set", "model.dim=8", "--label", "wide"]


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
            mixer="M", mixer_code=code, label=label, config_hash=f"{number:08}",
        )
        for number, (values, code, label) in enumerate(drawn)
    }  # fmt: skip
    names = RowNames(list(runs.values()))
    assert len({names.of(run) for run in runs.values()}) == len(runs)
