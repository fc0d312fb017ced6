"""What a sweep checks before its first run, and what it shows at its end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from lra.classifier.resolve import resolve
from lra.config.request import RunRequest, parse_changes
from lra.record.run import RunRecord
from lra.runtime.cli import INCOMPLETE, USER_ERROR
from lra.runtime.terminal import cut, plain_matrix, plain_table
from lra.sweep import __main__ as sweep_command
from lra.sweep.__main__ import main
from lra.sweep.data import SweepData
from lra.sweep.plan import PlannedRun, State, SweepOptions, plan
from lra.sweep.summary import RunState, count_states, next_step, results_table, runs_table
from lra.train.run_folder import RunFolder
from made_results import next_token_run, record

NO_NETWORK = ["--set", "task.source=official"]


def planned(mixer: str, task: str = "listops", seed: int = 0, *overrides: str) -> PlannedRun:
    request = RunRequest(
        task=task, mixer=mixer, preset="quick", changes=parse_changes(overrides, "--grid")
    )
    folder = RunFolder(Path("results", "runs", task, mixer, f"0123abcd-s{seed}"))
    return PlannedRun(
        config=resolve(request), mixer=mixer, seed=seed, changes=request.changes, folder=folder,
        data_dir=Path("data"), results_dir=Path("results"),
    )  # fmt: skip


def state_of(run: PlannedRun, state: State | float | RunRecord, note: str = "") -> RunState:
    """Make the state of a run, that of a finished one of an accuracy."""
    if isinstance(state, str):
        return RunState(run, state, note, None)
    found = state if isinstance(state, RunRecord) else record(test_accuracy=state, seed=run.seed)
    return RunState(run, "done", note, found)


def test_a_table_of_results_has_means_over_seeds_and_says_what_is_at_chance() -> None:
    states = [
        *(state_of(planned("tnn", seed=s), a) for s, a in enumerate((59.0, 60.0, 62.0))),
        *(state_of(planned("mean", seed=s), a) for s, a in enumerate((17.0, 17.5, 30.0))),
        *(state_of(planned("s4", seed=s), 17.1) for s in (0, 1)),
        state_of(planned("s4", seed=2), "failed"),
        state_of(planned("fnet"), "diverged"),
    ]
    assert results_table(states, 80) == [
        "Test accuracy in percent, mean ± standard deviation over seeds:",
        "",
        "mixer                  listops",
        "tnn                    60.33 ± 1.53",
        "mean                   21.50 ± 7.37 (2 of 3 at chance)",
        "s4                     17.10 ± 0.00 * (2 of 3 runs)",
        "fnet                   diverged",
        "best trivial baseline  17.00",
        "",
        "* at chance: no better than one constant answer (tested at the 1 % level)",
    ]


def test_each_setting_of_a_grid_has_a_row_and_narrow_terminals_get_two_tables() -> None:
    states = [
        state_of(
            planned("tnn", task, seed, f"train.lr={lr}"),
            record(task=task, seed=seed, test_accuracy=50.0 + seed),
        )
        for task in ("listops", "image")
        for lr in ("0.001", "0.002")
        for seed in (0, 1)
    ]
    lines = results_table(states, 46)
    rows = [line.split(maxsplit=2) for line in lines if line.startswith(("mixer", "tnn"))]
    assert rows == [
        ["mixer", "listops,", "validation"],
        ["tnn", "train.lr=0.001", "41.00 ± 0.00 <"],
        ["tnn", "train.lr=0.002", "41.00 ± 0.00"],
        ["mixer", "listops,", "test"],
        ["tnn", "train.lr=0.001", "50.50 ± 0.71"],
        ["tnn", "train.lr=0.002", "50.50 ± 0.71"],
        ["mixer", "image,", "validation"],
        ["tnn", "train.lr=0.001", "41.00 ± 0.00 <"],
        ["tnn", "train.lr=0.002", "41.00 ± 0.00"],
        ["mixer", "image,", "test"],
        ["tnn", "train.lr=0.001", "50.50 ± 0.71"],
        ["tnn", "train.lr=0.002", "50.50 ± 0.71"],
    ]
    assert max(map(len, lines)) <= 46
    assert any("listops" in line and "image" in line for line in results_table(states, 120))


def test_of_a_grid_the_best_by_validation_is_marked() -> None:
    tried = {
        ("tnn", "0.1"): (60.0, 61.0),
        ("tnn", "0.2"): (61.0, 59.0),
        ("s4", "0.1"): (40.0, 42.0),
    }
    states = [
        state_of(planned(mixer, "listops", 0, f"train.lr={lr}"),
                 record(val_accuracy=validated, test_accuracy=tested))
        for (mixer, lr), (validated, tested) in tried.items()
    ]  # fmt: skip
    states.append(state_of(planned("s4", "listops", 0, "train.lr=0.2"), "diverged"))
    assert results_table(states, 80) == [
        "Accuracy in percent, one seed:",
        "",
        "mixer                  listops, validation  listops, test",
        "tnn train.lr=0.1       60.00                61.00",
        "tnn train.lr=0.2       61.00 <              59.00",
        "s4 train.lr=0.1        40.00 <              42.00",
        "s4 train.lr=0.2        -                    diverged",
        "best trivial baseline  -                    17.00",
        "",
        "< best of its mixer on the validation set: report the test result of this row. A",
        "    row chosen by its test result is no result.",
    ]
    texts = [
        state_of(planned("tnn", "lm", 0, f"train.lr={lr}"), next_token_run(bits, selected_on=split))
        for lr, bits, split in (("0.1", 1.5, "test"), ("0.2", 1.4, "test"))
    ]
    lines = results_table(texts, 120)
    assert "lm, validation bits per token (on the test set)  lm, test bits per byte" in lines[2]
    assert [line.split()[2:] for line in lines[3:5]] == [
        ["1.644", "1.500"],
        ["1.544", "<", "1.400"],
    ]


def test_next_tokens_are_measured_in_bits() -> None:
    lines = results_table([state_of(planned("tnn", "lm"), next_token_run(1.5))], 80)
    assert lines[0] == "Test results, one seed:"
    assert [line.split(maxsplit=3) for line in lines[2:]] == [
        ["mixer", "lm,", "bits", "per byte"], ["tnn", "1.500"],
        ["best", "trivial", "baseline", "1.860"],
    ]  # fmt: skip
    assert results_table([state_of(planned("tnn"), "failed")], 80) == []


def test_notes_are_cut_to_the_terminal() -> None:
    states = [
        state_of(planned("tnn"), "failed", "KeyError: 'broken'; see " + "x" * 100),
        state_of(planned("s4"), "unfinished", "step 1 of 2"),
        state_of(planned("mean"), 60.0),
    ]
    lines = runs_table(states, 60)
    assert lines == [
        "run                       state       test",
        "listops/tnn/0123abcd-s0   failed",
        "  KeyError: 'broken'; see xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…",
        "listops/s4/0123abcd-s0    unfinished  step 1 of 2",
        "listops/mean/0123abcd-s0  done        60.00 %",
    ]
    assert max(map(len, runs_table(states, 30))) <= 30


def test_there_is_one_next_step() -> None:
    done, failed, open_ = (state_of(planned("tnn"), s) for s in (60.0, "failed", "unfinished"))
    assert "continues" in str(next_step([done, failed, open_]))
    assert "--retry-failed" in str(next_step([done, failed]))
    assert next_step([done]) is None
    assert count_states([done, done, failed]) == "3 runs: 2 done, 1 failed"


@pytest.mark.parametrize("width", [80, 30, 12])
def test_tables_fit_a_width(width: int) -> None:
    rows = [{"a name": "x" * 50, "b": "1", "c": "y" * 20}, {"a name": "z", "b": "\x1b[0m"}]
    for lines in (plain_table(rows, width), plain_matrix(rows, width)):
        assert max(map(len, lines)) <= width
        assert "\x1b" not in "".join(lines)
    assert cut("abcdef", 4) == "abc…" and cut("abcd", 4) == "abcd"


OWN_TASK = """
class Small:
    def examples(self, split, rng):
        return rng.integers(0, 9, (20, 5)), [i % 2 for i in range(20)]
"""


class MadeRuns:
    """A launcher that prepares the data of a sweep, and makes up the results of its runs."""

    def carry_out(self, runs: Sequence[PlannedRun], data: SweepData) -> None:
        data.prepare()
        for run in data.ready(runs):
            record(task=run.config.task_name, mixer="mean").save(run.folder.path)


def test_runs_without_data_are_left_out_and_the_others_are_carried_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep_command, "make_launcher", lambda *_: MadeRuns())
    (tmp_path / "own.py").write_text(OWN_TASK)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "aclImdb_v1.tar.gz").write_bytes(b"no archive")
    tasks = f"retrieval,{tmp_path / 'own.py'}:Small,text"
    places = ["--data-dir", str(tmp_path / "data"), "--results-dir", str(tmp_path / "results")]
    command = ["--tasks", tasks, "--mixers", "mean", "--preset", "quick", *places]
    assert main([*command, "--dry-run"]) == INCOMPLETE
    shown = capsys.readouterr()
    assert "data of Small: " in shown.out and "2 runs to carry out" in shown.out
    assert "left out: retrieval (1 run), until its data is there: no official" in shown.out
    for _ in range(2):  # all that is left of the second sweep is without data
        assert main(command) == INCOMPLETE
        shown = capsys.readouterr()
        assert "left out, because its data is missing: retrieval\n" in shown.err
        assert "left out, because its data cannot be prepared: text\n" in shown.err
        assert "\n1 run: 1 done\nleft out: retrieval (1 run), until" in shown.out
        assert "left out: text (1 run)" in shown.out and "next: python report.py" in shown.out
    assert [path.name for path in (tmp_path / "results" / "runs").iterdir()] == ["Small"]


def test_runs_that_are_done_need_no_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = ["--data-dir", str(tmp_path / "data"), "--results-dir", str(tmp_path / "results")]
    command = ["--tasks", "retrieval", "--mixers", "mean", "--preset", "quick", *places]
    options = SweepOptions(
        tasks=["retrieval"], mixers=["mean"], seeds=[0], preset="quick", protocol="s4",
        overrides=[], grid=[], data_dir=tmp_path / "data", results_dir=tmp_path / "results",
    )  # fmt: skip
    (done,) = plan(options)
    record(task="retrieval", mixer="mean").save(done.folder.path)
    assert main([*command, "--seeds", "0,1"]) == INCOMPLETE
    shown = capsys.readouterr().out
    assert "1 run: 1 done\nleft out: retrieval (1 run), until" in shown


@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_without_any_data_a_sweep_ends_before_its_first_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    sweep = ["--tasks", "retrieval,lm", "--mixers", "mean", "--preset", "quick"]
    places = ["--data-dir", str(tmp_path / "data"), "--results-dir", str(tmp_path / "results")]
    assert main([*sweep, *places, *NO_NETWORK, "--device", "cpu", *more]) == USER_ERROR
    shown = capsys.readouterr().err
    assert "error: no data of retrieval, lm (the reasons are above), so no run" in shown
    assert "retrieval: no official files of retrieval in" in shown
    assert "lm: no official files of lm in" in shown and "Get https://" in shown
    assert not list(tmp_path.iterdir())


def test_data_that_cannot_be_read_stops_a_sweep_before_its_first_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "cifar-10-python.tar.gz").write_bytes(b"no archive")
    sweep = ["--tasks", "image", "--mixers", "mean", "--preset", "quick", "--device", "cpu"]
    places = ["--data-dir", str(tmp_path / "data"), "--results-dir", str(tmp_path / "results")]
    assert main([*sweep, *places]) == USER_ERROR
    assert "error: no data of image" in capsys.readouterr().err
    assert not (tmp_path / "results").exists()
