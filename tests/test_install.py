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


def test_the_suite_is_installed_beside_a_torch_of_ones_own() -> None:
    """`pip install -e .` takes the packages of requirements.txt without its versions."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    floors = {one.name: one.specifier for one in map(Requirement, project["dependencies"])}
    pins = dict(line.split("==") for line in (ROOT / "requirements.txt").read_text().split())
    assert floors.keys() == pins.keys()
    assert all(floors[name].contains(version) for name, version in pins.items())
    assert floors["torch"].contains("2.8.0+cu126")


def names(folder: Path, pattern: str) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob(pattern)}


USE = """
import lra
print(lra.__file__)
print(len(lra.records(with_shipped=True)) > 50)
run = lra.run("listops", "mean", preset="quick", device="cpu", quiet=True,
              task={"train": 64, "val": 16, "test": 16},
              train={"steps": 2, "warmup_steps": 1, "evaluate_every": 2})
print(run.record.status, run.record.git["commit"], run.folder)
"""


@pytest.mark.thorough
def test_what_is_installed_has_its_files_and_works_from_any_folder(tmp_path: Path) -> None:
    pytest.importorskip("setuptools", minversion="77")
    source, installed, working = (tmp_path / name for name in ("source", "site", "working"))
    working.mkdir()
    ignored = shutil.ignore_patterns("__pycache__", "bench", "report", "runs")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    for name in FILES:
        shutil.copy(ROOT / name, source)
    for name in ("lra/bench", "lra/report"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    (source / "results" / "runs").mkdir(exist_ok=True)
    (source / "results" / "runs" / "own.csv").touch()
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BUILD, str(tmp_path)], cwd=source, check=True,
        capture_output=True,
    )  # fmt: skip
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    for package in ("lra", "models", "tasks", "common"):
        for pattern in ("*.py", "*.js", "*.css", "*.html"):
            assert names(installed / package, pattern) == names(ROOT / package, pattern)
        assert (installed / package / "py.typed").is_file()
    assert names(installed / "configs", "*") == names(ROOT / "configs", "*")
    assert {path.name for path in (installed / "results").iterdir()} == {
        "published.csv", "published_perplexities.csv", "shipped", "sources.yaml", "speeds.csv",
    }  # fmt: skip
    (working / "use.py").write_text(USE)
    environment = {**os.environ, "PYTHONPATH": str(installed), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "use.py"], cwd=working, env=environment, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    file, shipped, run = done.stdout.splitlines()
    assert (file, shipped) == (str(installed / "lra" / "__init__.py"), "True")
    assert run.startswith(f"done None {working / 'results' / 'runs' / 'listops' / 'mean'}")
