"""`python -m lra`: all commands under one name, from any folder, and packages that hide ours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import lra
from conftest import ROOT, tiny_arguments
from lra import __main__ as command
from lra.record import schema
from lra.record.run import load_record
from lra.record.table import read_runs
from lra.report.data import Data
from lra.runtime import packages

OWN_FILES = {"report.py": "raise SystemExit('not ours')", "run_task.py": "raise SystemExit('no')"}


def start(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Start Python in another folder, with the suite installed as it is by `pip install -e`."""
    environment = {name: value for name, value in os.environ.items() if name != "GLIBC_TUNABLES"}
    environment |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "COLUMNS": "80", **variables}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


def test_all_commands_are_listed_in_a_terminal(tmp_path: Path) -> None:
    for arguments in ([], ["--help"], ["-h"]):
        listed = start(tmp_path, "-m", "lra", *arguments)
        assert (listed.returncode, listed.stderr) == (0, "")
        lines = listed.stdout.splitlines()
        assert all(len(line) <= 80 for line in lines)
        names = [line.split()[0] for line in lines if line.startswith("  ")]
        assert names == list(command.COMMANDS)


def test_every_command_of_the_suite_has_a_line() -> None:
    """A module is one if it can be run."""
    sources = [*(ROOT / "lra").rglob("*.py"), ROOT / "run_task.py", ROOT / "report.py"]
    starts = {
        str(path.relative_to(ROOT)) for path in sources
        if '\nif __name__ == "__main__":\n' in path.read_text()
    }  # fmt: skip
    listed: set[str] = set()
    for one in command.COMMANDS.values():
        path = one.module.replace(".", "/")
        places = [one.module, f"{path}/__main__.py", f"{path}.py"]
        listed |= {place for place in places if (ROOT / place).is_file()}
    assert starts - {"lra/__main__.py"} == listed


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("swep", "lra: error: unknown command 'swep'; did you mean sweep? (lra --help lists all"),
        ("frobnicate", "lra: error: unknown command 'frobnicate' (lra --help lists all commands)"),
        ("--seeds", "lra: error: unknown command '--seeds'"),
    ],
)
def test_an_unknown_command_is_named(
    name: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["lra", name])
    assert command.main() == 2
    assert capsys.readouterr().err.startswith(message)


def test_a_command_runs_as_it_does_alone(tmp_path: Path) -> None:
    """Beside files of the user's own that have the names of ours, too."""
    for name, text in OWN_FILES.items():
        (tmp_path / name).write_text(text)
    for name, alone in (("report", ROOT / "report.py"), ("record", "-mlra.record")):
        arguments = ["--no-such-flag"]
        expected = start(tmp_path, str(alone), *arguments)
        found = start(tmp_path, "-m", "lra", name, *arguments)
        assert (found.returncode, found.stdout, found.stderr) == (
            expected.returncode, expected.stdout, expected.stderr,
        )  # fmt: skip
        assert found.returncode == 2


@pytest.mark.thorough
def test_a_run_from_another_folder(tmp_path: Path) -> None:
    """It starts with the threads that `run_task.py` has, and results lie there."""
    arguments = tiny_arguments(Path(), "--threads", "1", mixer="mean")
    done = start(tmp_path, "-m", "lra", "run", *arguments)
    assert done.returncode == 0, done.stderr
    assert "next: python -m lra report" in done.stdout
    (path,) = tmp_path.glob("results/runs/listops/mean/*/result.json")
    record = load_record(path)
    assert record.status == "done"
    assert record.git["commit"]
    assert record.threads is not None
    assert record.threads.waiting == "short spin"


def test_shipped_results_are_found_from_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(schema, "SHIPPED_RESULTS", ROOT / "results" / "shipped")
    shipped = len(read_runs(ROOT / "results" / "shipped")[0])
    assert shipped > 50
    assert len(Data(Path("results").absolute()).records) == shipped
    assert len(lra.records("results", with_shipped=True)) == shipped
    (tmp_path / "other").mkdir()
    for own in (tmp_path / "other", Path("other")):
        assert len(Data(own).records) == len(lra.records(own, with_shipped=True)) == shipped
    assert lra.records(tmp_path / "other").empty
    with pytest.raises(lra.UserError, match="there is no folder"):
        Data(tmp_path / "missing")
    (tmp_path / "results" / "shipped").mkdir(parents=True)
    assert read_runs(tmp_path / "results", shipped=True) == ([], [])


HIDING = {
    "models/__init__.py": "", "models/net.py": "", "tasks.py": "",
}  # fmt: skip


@pytest.mark.parametrize("file", HIDING)
@pytest.mark.parametrize("program", ["lra", "lra.sweep", "lra.prepare"])
def test_a_command_names_a_module_that_hides_a_package(
    tmp_path: Path, file: str, program: str
) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(HIDING[file])
    hidden = start(tmp_path, "-m", program, "--help")
    if file == "models/net.py":  # without __init__.py an installed package comes first
        assert hidden.returncode == 0
        return
    name = file.partition("/")[0].removesuffix(".py")
    assert hidden.returncode == 2
    (line,) = hidden.stderr.splitlines()
    assert line.startswith(f"lra: error: Python imports {name} from {tmp_path / name}")
    assert str(ROOT / name) in line
    if file == "tasks.py":  # whatever is in the folder, it is not looked into
        assert start(tmp_path, "-P", "-m", program, "--help").returncode == 0


def test_import_lra_names_a_module_that_hides_a_package_and_what_helps(tmp_path: Path) -> None:
    own = tmp_path / "models"
    own.mkdir()
    (own / "__init__.py").touch()
    (tmp_path / "train.py").write_text("import lra\nprint(1)\n")
    for arguments in (["train.py"], ["-c", "import lra"]):
        ended = start(tmp_path, *arguments)
        assert ended.stdout == ""
        last = ended.stderr.splitlines()[-1]
        assert last.startswith(f"ImportError: Python imports models from {own}, which hides")
        assert str(ROOT / "models") in last and "another name, or if this program does not" in last
    assert start(tmp_path, "-P", "train.py").stdout == "1\n"
    (tmp_path / "empty").mkdir()
    paths = os.pathsep.join([str(tmp_path), str(ROOT)])  # where -P would not help
    ended = start(tmp_path / "empty", "-c", "import lra", PYTHONPATH=paths)
    assert ended.stderr.endswith("or install the suite into a virtual environment of its own\n")
    own.rename(tmp_path / "my_models")
    assert start(tmp_path, "train.py").stdout == "1\n"


def test_a_module_that_a_package_hides_is_explained(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()  # without __init__.py an installed package comes first
    (tmp_path / "models" / "net.py").touch()
    (tmp_path / "own.py").write_text("import models.net\n")
    ended = start(tmp_path, "-m", "lra.check", "own.py:Own")
    assert ended.returncode == 2
    assert "No module named 'models.net'" in ended.stderr
    assert "models is a package of the suite: give" in ended.stderr


def test_a_namespace_that_an_editable_install_mixes_up_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its finder comes after the user's folder, but finds ours within the user's package."""
    assert packages.describe_shadow() is None
    monkeypatch.setattr(sys.modules["models"], "__path__", [str(tmp_path / "models")])
    found = packages.describe_shadow()
    assert found is not None
    assert str(tmp_path / "models") in found
