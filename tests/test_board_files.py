"""Attempts to cheat by a contribution, and hostile ones: the mark *files* finds what files show."""

import json
import os
import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from attack import Place
from conftest import ROOT
from lra import submit
from lra.api.recompose import request_of
from lra.board.contribute import choose_runs, contribute
from lra.board.files import Known, check_files, check_shipped, weights_name
from lra.board.settings import list_differences
from lra.common.errors import UserError
from lra.config.compose import compose
from lra.config.registry import digest
from lra.record.known_data import read_known_data
from lra.record.merge import merge_results, write_pack
from lra.record.packed import read_pack
from lra.record.run import Runs, read_runs
from lra.record.schema import SHIPPED_RESULTS
from lra.report.windows import LONGER
from made_contributions import (
    SAID,
    edit,
    edit_record,
    findings_of,
    known_of,
    make,
    shipped_runs,
    train_plug_in,
)


@pytest.fixture(scope="module")
def shipped() -> Runs:
    return shipped_runs()


@pytest.fixture(scope="module")
def honest(shipped: Runs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A contribution without findings, of three shipped runs."""
    folder = tmp_path_factory.mktemp("community") / "honest"
    assert make(folder, shipped) == []
    return folder


@pytest.fixture
def folder(honest: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(honest, tmp_path / "honest"))


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Runs]:
    """A tiny run of a plug-in that imports a file of its folder, and the folder."""
    place = tmp_path_factory.mktemp("own")
    return place, train_plug_in(place, 1)


def test_shipped_runs_pass(honest: Path, folder: Path) -> None:
    assert findings_of(folder) == ""
    assert findings_of(honest, changed=["results/community/honest/runs.parquet"]) == ""
    assert {path.name for path in honest.iterdir()} == {"runs.parquet", "submission.yaml"}
    assert "division: closed" in (honest / "submission.yaml").read_text()


def test_shipped_runs_are_checked_where_they_are(shipped: Runs, tmp_path: Path) -> None:
    folder, known = tmp_path / "shipped", read_known_data()
    merge_results(folder, [shipped[0][0].parents[3]], [run.name for _, run in shipped], packed=True)
    assert check_shipped(folder, known) == []
    assert check_files(folder, known) == [
        "shipped: expected a contribution, which has submission.yaml"
    ]
    put(folder, "submission.yaml")
    assert "and is not shipped" in findings_of(folder)
    put(folder, "weights/x.safetensors")
    edit_record(folder, best_step=1)
    found = check_shipped(folder, known)
    assert len(found) == 4 and "best_step 1" in found[0] and "weights of no run" in found[3]


def numbers(change: Callable[[list[str]], list[str]]) -> Callable[[bytes], bytes]:
    """Change the lines of predictions.csv beneath its first."""

    def changed(content: bytes) -> bytes:
        first, *lines = content.decode().splitlines()
        return "\n".join([first, *change(lines), ""]).encode()

    return changed


def right(lines: list[str]) -> list[str]:
    """Predict the label of each example."""
    return [",".join([(cells := line.split(","))[0], cells[0], *cells[2:]]) for line in lines]


CHEATS: Mapping[str, tuple[Callable[[Path], object], str]] = {
    "predictions edited": (
        lambda f: edit(f, "predictions.csv", numbers(right)), "2000 of 2000 right, its record says"
    ),
    "accuracy edited": (
        lambda f: edit_record(f, result__test_accuracy=99.0), "test_accuracy is 99.0, expected"
    ),
    "accuracy and count edited": (
        lambda f: edit_record(f, result__test_accuracy=90.0, result__test_correct=1800),
        "its record says 1800 of 2000",
    ),
    "labels in another order": (
        lambda f: edit(f, "predictions.csv", numbers(lambda lines: lines[::-1])),
        "labels or metadata of other test examples",
    ),
    "examples left out": (
        lambda f: edit(f, "predictions.csv", numbers(lambda lines: lines[1:])),
        "right, its record says",
    ),
    "other data": (lambda f: edit_record(f, data__fingerprint="0" * 64), "data of shipped runs on"),
    "other seed of the data": (
        lambda f: edit_record(f, changed=["task.data_seed"]), "('closed', []); expected ('open'"
    ),
    "another source of data": (lambda f: edit_record(f, data__source="official"), "e official"),
    "better baselines": (
        lambda f: edit_record(f, result__baselines={"majority class": 15.4, "root operator": 50.0}),
        "baselines {'majority class': 15.4, 'root operator': 50.0}",
    ),
    "another step tested": (lambda f: edit_record(f, best_step=1), "best_step 1; expected"),
    "validation edited": (lambda f: edit_record(f, result__val_accuracy=99.0), "accuracy 99.0"),
    "no validations": (lambda f: edit(f, "metrics.jsonl", lambda _: b""), "expected None"),
    "selected on test": (lambda f: edit_record(f, selected_on="test"), "selected on test"),
    "hash of other settings": (lambda f: edit_record(f, config_hash="0" * 16), "with the hash 000"),
    "twice the steps, settings edited": (
        lambda f: edit_record(f, steps=9000, total_steps=9000), "steps (9000, 9000)"
    ),
    "a run of another name": (lambda f: edit_record(f, mixer="tnn"), "under the name of another"),
    "a mixer without code": (
        lambda f: rename(f, "s4", "zz", mixer="zz"), "mixer zz without code"
    ),
    "a plug-in without code": (
        lambda f: edit_record(f, mixer_from="code/x.py:s4"), "mixer s4 without code"
    ),
    "a plug-in with the name of a mixer": (
        lambda f: edit_record(f, mixer_code="0" * 16, mixer_from="code/x.py:s4"),
        "a name of its own",
    ),
    "a plug-in outside": (
        lambda f: rename(f, "s4", "Zz", mixer="Zz", mixer_code="0" * 16, mixer_from="/x.py:Zz"),
        "expected code/FILE.py:CLASS",
    ),
    "more parameters": (lambda f: edit_record(f, params=12_000_000), "12,000,000 parameters, exp"),
    "an own preset": (lambda f: edit_record(f, preset_code="0" * 16), "those of the suite"),
    "fewer settings tried": (lambda f: tell(f, settings_tried=0), "settings_tried"),
    "another protocol": (lambda f: tell(f, protocol_version=99), "protocol_version 99"),
    "address without https": (lambda f: tell(f, code="http://example.org"), "yaml: code"),
    "a script for an address": (lambda f: tell(f, paper="javascript:alert(1)"), "paper"),
    "no license": (lambda f: tell(f, results_license="all rights reserved"), "results_license"),
    "weights of nothing": (lambda f: put(f, "weights/x.safetensors"), "weights of no run"),
    "code of nothing": (lambda f: put(f, "code/x.py"), "no run has a plug-in"),
}  # fmt: skip


def tell(folder: Path, **fields: object) -> None:
    """Say something else in submission.yaml."""
    path = folder / "submission.yaml"
    lines = [line for line in path.read_text().splitlines() if line.split(":")[0] not in fields]
    lines += [f"{name}: {json.dumps(value)}" for name, value in fields.items()]
    path.write_text("\n".join(lines))


def rename(folder: Path, old: str, new: str, **fields: object) -> None:
    """Give all runs another mixer, with their folders."""
    edit_record(folder, **fields)
    files = {p.replace(f"/{old}/", f"/{new}/"): c for p, c in read_pack(folder).items()}
    write_pack(folder, files)


def put(folder: Path, name: str, content: bytes = b"") -> None:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)


@pytest.mark.parametrize("name", CHEATS)
def test_attempts_to_cheat(folder: Path, name: str) -> None:
    change, found = CHEATS[name]
    change(folder)
    assert found in findings_of(folder)


def test_settings_that_are_not_those_of_the_preset(folder: Path) -> None:
    """The hash finds a setting that was edited alone; a hash that fits, an undeclared change."""
    (_, run), *_ = read_runs(folder)[0]
    settings = {**run.settings, "train.steps": 9000}
    edit_record(folder, settings=settings)
    assert "settings with the hash" in findings_of(folder)
    fits = compose(request_of(run.model_copy(update={"settings": settings}))).hash
    edit_record(folder, config_hash=fits, steps=9000, total_steps=9000)
    found = findings_of(folder)
    assert "without a change of it, train.steps is 9000; expected 4500" in found
    edit_record(folder, changed=["train.steps"])
    assert "expected ('open', ['listops: train.steps=9000'])" in findings_of(folder)


def test_seeds_are_not_chosen(shipped: Runs, tmp_path: Path) -> None:
    assert "seeds [1, 2]; expected [0, 1]" in make(tmp_path / "a", shipped[1:])[0]
    assert not (tmp_path / "a").exists()
    known = read_known_data()
    results, names = shipped[0][0].parents[3], [f"listops/s4/{run.run_id}" for _, run in shipped]
    with pytest.raises(UserError, match=r"2 runs have the settings of submitted .*--left-out"):
        choose_runs(results, names[:1], known)
    runs, left_out = choose_runs(results, names[:1], known, "a power cut")
    assert contribute(tmp_path / "b", runs, SAID, known, left_out) == []
    assert "a power cut" in (tmp_path / "b" / "submission.yaml").read_text()


def test_twelve_million_parameters_are_open(shipped: Runs, tmp_path: Path) -> None:
    runs = [(path, run.model_copy(update={"params": 12_000_000})) for path, run in shipped]
    assert make(tmp_path / "a", runs) == []
    text = (tmp_path / "a" / "submission.yaml").read_text()
    assert "division: open" in text and "12,000,000 parameters" in text


def test_a_pull_request_touches_its_folder_alone(folder: Path) -> None:
    changed = ["results/community/honest/runs.parquet", "lra/board/files.py"]
    assert "lra/board/files.py" in findings_of(folder, changed=changed)
    for path in ("results/community/honest", "results/community/honest-2/x", "a\nb"):
        assert "only files in results/community/honest/" in findings_of(folder, changed=[path])


def link(folder: Path) -> None:
    (folder / "code").mkdir()
    (folder / "code" / "x.py").symlink_to("/etc/passwd")


HOSTILE: Mapping[str, Callable[[Path], object]] = {
    "a link": link,
    "a link to a folder": lambda f: (f / "code").symlink_to("/etc"),
    "a pipe": lambda f: os.mkfifo(f / "weights"),
    "no pack": lambda f: (f / "runs.parquet").unlink(),
    "a pickle": lambda f: put(f, "weights/x.pt", b"\x80\x04."),
    "a script in a name": lambda f: put(f, "code/$(touch x).py"),
    "a formula": lambda f: put(f, "code/=cmd.py"),
    "a newline in a name": lambda f: put(f, "code/a\nb.py"),
    "hidden": lambda f: put(f, ".git"),
    "too large": lambda f: put(f, "submission.yaml", b"#" * 2**17),
    "many": lambda f: [put(f, f"code/x{n}.py") for n in range(300)],
    "a bomb of YAML": lambda f: put(f, "submission.yaml", b"a: &a [x]\nb: [*a, *a]\n"),
    "deep YAML": lambda f: put(f, "submission.yaml", b"[" * 10_000),
    "no mapping": lambda f: put(f, "submission.yaml", b"[1]"),
    "control characters": lambda f: tell(f, title="a\u001b[2Jb"),
    "no parquet": lambda f: put(f, "runs.parquet", b"PAR1"),
    "an empty pack": lambda f: edit(f, "", lambda _: b""),
    "deep JSON": lambda f: edit(f, "result.json", lambda _: b"[" * 100_000),
    "an option that hides a method": lambda f: rename(
        f, "s4", "Zz", mixer="Zz", mixer_code="0" * 16, settings={"mixer.hashed": 1}
    ),
    "a marked record": lambda f: edit_record(f, contribution={"name": "x"}),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_contributions(folder: Path, name: str) -> None:
    HOSTILE[name](folder)
    assert findings_of(folder)


def mutate(folder: Path, rng: random.Random) -> None:
    """Change a file at random: bytes, or a value of a record, or its end."""
    kind = rng.randrange(4)
    path = folder / rng.choice(["runs.parquet", "submission.yaml"])
    content = bytearray(path.read_bytes())
    if kind == 0:
        for _ in range(20):
            content[rng.randrange(len(content))] = rng.randrange(256)
        path.write_bytes(content)
    elif kind == 1:
        path.write_bytes(content[: rng.randrange(len(content))])
    else:
        record = json.loads(next(c for p, c in read_pack(folder).items() if p.endswith(".json")))
        name = rng.choice([*record])
        values: list[Any] = [None, -1, 2**70, "x" * 9999, [], {}, "../..", 1e308, [[[]]], "a\n"]
        edit_record(folder, **{name: rng.choice(values)})


def try_mutations(honest: Path, tmp_path: Path, seeds: range) -> None:
    known = read_known_data()
    for seed in seeds:
        folder = Path(shutil.copytree(honest, tmp_path / str(seed) / "honest"))
        mutate(folder, random.Random(seed))
        lines = check_files(folder, known)
        assert all("\n" not in line for line in lines), lines


def test_mutations(honest: Path, tmp_path: Path) -> None:
    try_mutations(honest, tmp_path, range(8))


@pytest.mark.thorough
def test_200_mutations(honest: Path, tmp_path: Path) -> None:
    try_mutations(honest, tmp_path, range(8, 208))


def test_a_plug_in_is_submitted_with_what_it_imports(
    own: tuple[Path, Runs], tmp_path: Path
) -> None:
    place, runs = own
    known = known_of(runs)
    assert make(tmp_path / "a", runs, known) == []
    assert {path.name for path in (tmp_path / "a" / "code").iterdir()} == {
        "own_mixer.py", "helper.py",
    }  # fmt: skip
    (content,) = (c for p, c in read_pack(tmp_path / "a").items() if p.endswith("result.json"))
    assert b"code/own_mixer.py:OwnMixer" in content and str(place).encode() not in content
    weights = tmp_path / "a" / "weights" / weights_name(runs[0][1])
    assert weights.is_file()
    cheat_with_code(tmp_path / "a", known)


def cheat_with_code(folder: Path, known: Known) -> None:
    (weights,) = (folder / "weights").iterdir()
    content = weights.read_bytes()
    weights.write_bytes(content[:-4])
    assert "weights/" in findings_of(folder, known)
    save_file({"x": torch.tensor([float("nan")])}, weights)
    assert "not finite" in findings_of(folder, known)
    weights.write_bytes(content)
    code = folder / "code" / "own_mixer.py"
    code.write_text(code.read_text() + "\nopen('/data/test', 'rb')\n")
    assert "code/own_mixer.py has the hash" in findings_of(folder, known)


def test_nothing_is_executed(place: Place, own: tuple[Path, Runs], tmp_path: Path) -> None:
    """Not even if the hash of the code fits; nor does the check need any right to write."""
    folder = place.folder / "own"
    assert make(folder, own[1], known_of(own[1])) == []
    code = folder / "code" / "own_mixer.py"
    code.write_text(f"open({str(place.canary)!r}, 'w')\n")
    edit_record(folder, mixer_code=digest([str(code)]))
    for path in [place.root, *place.root.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    place.attack("lra.submit", ["--check", folder.name], {1}, user=65534)


def test_the_code_of_a_task_is_not_executed(folder: Path, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    put(folder, "code/x.py", f"open({str(canary)!r}, 'w')\n".encode())
    edit_record(folder, task_from=f"{folder}/code/x.py:ListOps")
    assert "a task or a preset of the submitter's own" in findings_of(folder)
    assert not canary.exists()


def test_the_command(
    shipped: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    names = [str(path) for path, _ in shipped]
    start = [*names, "--results-dir", str(ROOT / "results" / "shipped"), "--to", str(tmp_path)]
    assert submit.main([*start, "--name", "x"]) == 2
    assert "lacks title, authors, paper" in capsys.readouterr().err
    (tmp_path / "x").mkdir()
    said = {**SAID, "authors": ["A. Author", "B. Author"]}
    del said["title"]
    (tmp_path / "x" / "submission.yaml").write_text("title: Of a file\n")
    flags = []
    for name, value in said.items():
        flags += [f"--{name.replace('_', '-')}", *(value if name == "authors" else [value])]
    assert submit.main([*start, "--name", "x", *map(str, flags)]) == 0
    shown = capsys.readouterr().out
    assert "closed division" in shown and "git push origin submit-x" in shown
    assert all(len(line) <= 80 for line in shown.splitlines() if str(tmp_path) not in line)
    assert "title: Of a file" in (tmp_path / "x" / "submission.yaml").read_text()
    assert submit.main(["--check", str(tmp_path / "x")]) == 0
    listing = tmp_path / "changed"
    listing.write_bytes(b"results/community/x/runs.parquet\0README.md\0")
    assert submit.main(["--check", str(tmp_path / "x"), "--changed", str(listing)]) == 1
    assert "'README.md'" in capsys.readouterr().out
    assert submit.main([*start, "--name", "x", *map(str, flags)]) == 2
    assert "remove it, or choose another --name" in capsys.readouterr().err
    assert submit.main(["--check", str(tmp_path / "nothing")]) == 1
    for number in range(30):
        put(tmp_path / "x", f"code/{number}")
    capsys.readouterr()
    assert submit.main(["--check", str(tmp_path / "x")]) == 1
    assert "... and 10 more" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        submit.main(["--name", "../x"])
    assert "expected up to 40 lower-case letters" in capsys.readouterr().err


def test_longer_sequences_are_in_the_closed_division() -> None:
    runs, known = read_runs(SHIPPED_RESULTS)[0], read_known_data()
    longer = [run for _, run in runs if {*LONGER} <= {*run.changed}]
    assert len(longer) > 10
    for run in longer:
        data = known[run.task, run.data.fingerprint]
        assert list_differences(run, data) == []
        other = run.model_copy(update={"changed": ["train.batch_size"]})
        assert list_differences(other, data) == ["flip-flop: train.batch_size=2"]
