"""The marks of maintainers: what each of them finds that the files alone do not show."""

import datetime
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from lra import submit
from lra.board import files, marks
from lra.board.contribute import ship_weights
from lra.board.files import weights_name
from lra.board.marks import Verdict, Workplace, give_mark
from lra.common.errors import UserError
from lra.evaluate import main as evaluate
from lra.record import community
from lra.record.community import (
    digest_of,
    marks_path,
    read_contributions,
    read_marked,
    read_marks,
)
from lra.record.evaluation import evaluations_of
from lra.record.merge import merge_results
from lra.record.run import Runs
from lra.report.data import Data
from lra.report.tables.fresh import fresh_tables
from lra.report.tables.results import describe_marks
from lra.results.findings.honest_submissions import count_failures
from lra.statistics import correct_holm, decline_p_value, interval_of_next
from made_contributions import edit_record, known_of, make, train_plug_in

SEEDS = 2


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Runs]:
    """A folder with tiny runs of a plug-in, of two seeds."""
    place = tmp_path_factory.mktemp("trained")
    return place, train_plug_in(place, SEEDS)


@pytest.fixture
def folder(trained: tuple[Path, Runs], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A contribution of these runs, with the mark files."""
    known = known_of(trained[1])
    monkeypatch.setattr(marks, "read_known_data", lambda: known)
    monkeypatch.setattr(marks, "FRESH_EXAMPLES", 400)
    folder = tmp_path / "community" / "own"
    assert make(folder, trained[1], known) == []
    assert give_mark("files", at(folder, trained[0])).faults == []
    return folder


def at(folder: Path, place: Path, number: int | None = 7) -> Workplace:
    return Workplace(
        folder=folder, data_dir=place / "data", results_dir=folder.parents[1] / "again",
        device=torch.device("cpu"), number=number,
    )  # fmt: skip


def judged(name: Any, folder: Path, place: Path) -> Verdict:
    """Fix the present files by the mark files, without their check, and ask for another mark."""
    marks.add_mark(folder, "files", [])
    return give_mark(name, at(folder, place))


def names_of(folder: Path) -> list[str]:
    return [mark.mark for mark in read_marks(marks_path(folder)).get(folder.name, [])]


def test_honest_runs_get_all_marks(
    folder: Path, trained: tuple[Path, Runs], capsys: pytest.CaptureFixture[str]
) -> None:
    place = at(folder, trained[0])
    for name in ("code", "fresh", "repeated"):
        verdict = give_mark(name, place)
        assert verdict.faults == [], name
    assert names_of(folder) == ["files", "code", "fresh", "repeated"]
    ((_, run), *_), faults = read_contributions(folder.parent, read_marks(marks_path(folder)))
    assert not faults and run.contribution is not None
    assert [*run.marks] == names_of(folder)
    assert run.marks["code"].date == datetime.datetime.now(datetime.UTC).date()
    assert "submitted" in str(run.marks["fresh"].evidence)
    (folder / "code" / "helper.py").write_text("SCALE = 2.0\n")
    ((_, run), *_), _ = read_contributions(folder.parent, read_marks(marks_path(folder)))
    assert run.contribution is not None and run.marks == {}
    with pytest.raises(UserError, match="has no mark files for its present files"):
        give_mark("code", place)
    assert submit.main(["--withdraw", str(folder), "trained on the test set"]) == 0
    ((_, run), *_), _ = read_contributions(folder.parent, read_marks(marks_path(folder)))
    assert "(withdrawn 20" in run.method and "by own" in run.method
    assert submit.main(["--mark", "cod", str(folder)]) == 2
    assert submit.main(["--mark", "code", str(folder.parent)]) == 2
    assert "did you mean code?" in capsys.readouterr().err


def test_shipped_runs_get_marks(
    trained: tuple[Path, Runs], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(community, "PRESET", "quick")
    monkeypatch.setattr(marks, "FRESH_EXAMPLES", 400)
    shipped = tmp_path / "results" / "shipped"
    merge_results(shipped, [trained[0] / "results"], packed=True)
    (shipped.parent / "community").mkdir()
    assert ship_weights(shipped, trained[1][:1]) == [f"weights/{weights_name(trained[1][0][1])}"]
    for name in ("code", "fresh"):
        assert judged(name, shipped, trained[0]).faults == [], name
    assert 0 <= count_failures(at(shipped, trained[0]).runs()[:1], 2, (60, 60)) <= 2
    evidence = read_marks(marks_path(shipped))["shipped"][1].evidence
    assert evidence[2].endswith("of their weights: 1")
    with pytest.raises(UserError, match="expected a finished run with a checkpoint"):
        ship_weights(shipped, read_marked(shipped)[0])
    (shipped / "figure.svg").touch()
    data = Data(shipped.parent)
    assert [[*run.marks] for run in data.records] == [["files", "code", "fresh"], ["files", "code"]]
    ((mixer, task, *_),) = fresh_tables(data)[0].rows
    assert mixer.startswith("OwnMixer (") and task == "listops"
    assert "files (all rows), code (all rows), fresh (all rows)" in describe_marks(data.boards[0])
    change_weights(shipped, lambda _, weights: weights + 1)
    assert not any(run.marks for run in Data(shipped.parent).records)


def change_weights(folder: Path, change: Callable[[str, torch.Tensor], torch.Tensor]) -> None:
    for path in (folder / "weights").iterdir():
        weights = {name: change(name, tensor) for name, tensor in load_file(path).items()}
        save_file(weights, path)


def test_weights_of_another_model(folder: Path, trained: tuple[Path, Runs]) -> None:
    change_weights(folder, lambda name, w: -w if name == "output.weight" else w)
    verdict = judged("code", folder, trained[0])
    assert "are answered in another way by the submitted weights" in str(verdict.faults)
    assert names_of(folder) == ["files", "files"]
    change_weights(folder, lambda _, w: w.flatten()[:1])
    with pytest.raises(UserError, match="the weights do not fit"):
        judged("code", folder, trained[0])


def test_parameters_that_are_not_those_of_the_model(
    folder: Path, trained: tuple[Path, Runs]
) -> None:
    edit_record(folder, params=1, state_size=3)
    faults = str(judged("code", folder, trained[0]).faults)
    assert "params 1; expected" in faults and "state_size 3; expected None" in faults


def test_a_plug_in_that_breaks_a_promise(folder: Path, trained: tuple[Path, Runs]) -> None:
    code = folder / "code" / "own_mixer.py"
    code.write_text(
        code.read_text().replace("x * self.scale", "x * self.scale * torch.rand(()).exp()")
    )
    faults = str(judged("code", folder, trained[0]).faults)
    assert "FAILED  two evaluations give the same result" in faults


def test_a_plug_in_that_reads_files_or_cannot_be_causal(
    folder: Path, trained: tuple[Path, Runs]
) -> None:
    """Only the maintainer's reading finds the former, or the mark fresh; the latter is told."""
    code = folder / "code" / "own_mixer.py"
    reads = "open('/dev/null').close(); return (x + 0 * x.flip(1).nan_to_num()) * self.scale"
    code.write_text(code.read_text().replace("return x * self.scale", reads))
    assert judged("code", folder, trained[0]).faults == []


def test_training_on_the_test_set(folder: Path, trained: tuple[Path, Runs]) -> None:
    """Whoever has seen the test set answers it better than fresh examples."""
    edit_record(folder, result__test_accuracy=90.0, result__test_correct=45)
    verdict = judged("fresh", folder, trained[0])
    assert "90.00 submitted" in verdict.faults[0]
    with pytest.raises(UserError, match="--number"):
        give_mark("fresh", at(folder, trained[0], None))
    first, second = (at(folder, trained[0], number).draw("listops") for number in (1, 2))
    assert first != second


def test_twice_the_steps_that_nobody_says(folder: Path, trained: tuple[Path, Runs]) -> None:
    edit_record(folder, result__test_accuracy=90.0, result__test_correct=45)
    assert "repeated, 90.00 submitted" in judged("repeated", folder, trained[0]).faults[0]


def test_few_honest_submissions_fail_fresh() -> None:
    """Of 1,000 with four tasks and three seeds, whose test set is one for all seeds."""
    rng, failed = np.random.default_rng(0), 0
    for _ in range(1000):
        p_values = []
        for _ in range(4):
            shares = [
                float(np.mean([rng.binomial(n, level) / n for level in (0.5, 0.55, 0.6)]))
                for n in (2000, 10_000)
            ]
            p_values.append(decline_p_value(shares[0], 2000, shares[1], 10_000))
        failed += min(correct_holm(p_values)) < 0.05
    assert failed <= 50
    assert decline_p_value(0.6, 2000, 0.55, 10_000) < 1e-3


def test_holm_and_the_interval_of_one_more_draw() -> None:
    assert correct_holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert correct_holm([0.9, 0.8]) == [1.0, 1.0]
    assert interval_of_next([1.0, 2.0, 3.0]) == pytest.approx((-2.968, 6.968), abs=1e-3)


def test_evaluations_take_a_seed_of_their_data(
    trained: tuple[Path, Runs], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = Path(shutil.copytree(trained[0], tmp_path / "copy"))
    run, *_ = (place / "results" / "runs" / "listops" / "OwnMixer").iterdir()
    start = ["--run", str(run), "--data-dir", str(place / "data"), "--device", "cpu"]
    assert evaluate([*start, "--examples", "30", "--data-seed", "12", "--trust-code"]) == 0
    ((record,), _) = evaluations_of(run)
    assert record.changes == {"task.data_seed": 12} and record.result.test_total == 30
    assert evaluate([*start, "--data-seed", "0", "--trust-code"]) == 2
    assert "another seed than that of the training data (0)" in capsys.readouterr().err


def test_digests_name_files(folder: Path) -> None:
    before = digest_of(folder)
    (folder / "code" / "helper.py").rename(folder / "code" / "other.py")
    assert digest_of(folder) != before
    assert files.NAME.fullmatch(folder.name)
