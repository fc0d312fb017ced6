"""`pip install .`: what is installed has all files that it needs, and runs from any folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from conftest import ROOT

FILES = ("pyproject.toml", "README.md", "LICENSE", "run_task.py", "report.py")
FOLDERS = ("lra", "models", "tasks", "common", "configs", "results")
BUILD = "import sys, setuptools.build_meta as b; print(b.build_wheel(sys.argv[1]))"

pytest.importorskip("setuptools", minversion="77")


def test_the_suite_is_installed_beside_a_torch_of_ones_own() -> None:
    """`pip install -e .` takes the packages of requirements.txt without its versions."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    floors = {one.name: one.specifier for one in map(Requirement, project["dependencies"])}
    pins = dict(line.split("==") for line in (ROOT / "requirements.txt").read_text().split())
    assert floors.keys() == pins.keys()
    assert all(floors[name].contains(version) for name, version in pins.items())
    assert floors["torch"].contains("2.8.0+cu126")
    quickstart = (ROOT / "docs" / "quickstart.md").read_text()
    assert "with uv: uv pip install -e ." in quickstart


def ignore_own_results(folder: str, names: list[str]) -> set[str]:
    own = {"runs", "bench", "report"} if Path(folder) == ROOT / "results" else set[str]()
    return own | {"__pycache__"}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an installed wheel, which was built from a copy of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in FILES:
        shutil.copy(ROOT / name, source)
    for name in FOLDERS:
        shutil.copytree(ROOT / name, source / name, ignore=ignore_own_results)
    (source / "results" / "runs").mkdir()
    (source / "results" / "runs" / "own.csv").touch()
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BUILD, str(folder)],
        cwd=source, check=True, capture_output=True, text=True,
    )  # fmt: skip
    (wheel,) = folder.glob("*.whl")
    site = folder / "site-packages"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


def python(installed: Path, folder: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(installed), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def names(folder: Path, pattern: str) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob(pattern)}


@pytest.mark.thorough
def test_what_the_code_reads_is_installed(installed: Path) -> None:
    for package in ("lra", "models", "tasks", "common"):
        for pattern in ("*.py", "*.js", "*.css", "*.html"):
            assert names(installed / package, pattern) == names(ROOT / package, pattern)
        assert (installed / package / "py.typed").is_file()
    assert names(installed / "configs", "*") == names(ROOT / "configs", "*")
    shipped = names(ROOT / "results" / "shipped", "*")
    assert names(installed / "results" / "shipped", "*") == shipped
    assert {path.name for path in (installed / "results").iterdir()} == {
        "published.csv", "published_perplexities.csv", "shipped", "sources.yaml",
    }  # fmt: skip


USE = """
import lra
from lra.report.published import published_rows
print(lra.__file__)
print(len(lra.records(with_shipped=True)) > 50, len(published_rows()) > 30)
run = lra.run("listops", "mean", preset="quick", device="cpu", quiet=True,
              task={"train": 64, "val": 16, "test": 16},
              train={"steps": 2, "warmup_steps": 1, "evaluate_every": 2})
print(run.record.status, run.record.git["commit"], run.folder)
"""


@pytest.mark.thorough
def test_a_package_models_beside_a_script_is_named(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "__init__.py").touch()
    script = "try: import lra\nexcept ImportError as error: print(error)\nelse: print('imported')"
    named = python(installed, tmp_path, "-c", script)
    assert named.startswith(f"Python imports models from {tmp_path / 'models'}, which hides")
    assert f"{installed / 'models'}. Give yours another name, or" in named
    assert python(installed, tmp_path, "-P", "-c", script) == "imported\n"


@pytest.mark.thorough
def test_it_works_from_any_folder(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "use.py").write_text(USE)
    git = ["git", "-C", str(installed.parent), "-c", "user.name=x", "-c", "user.email=x"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "another project"], check=True)
    file, shipped, run = python(installed, tmp_path, "use.py").splitlines()
    assert file == str(installed / "lra" / "__init__.py")
    assert shipped == "True True"
    assert run.startswith(f"done None {tmp_path / 'results' / 'runs' / 'listops' / 'mean'}")
    shown = python(
        installed, tmp_path, "-m", "lra", "run", "--task", "image", "--mixer", "s4",
        "--preset", "budget", "--show-config",
    )  # fmt: skip
    assert "# preset: budget" in shown
