"""`pip install .`: what is installed has all files that it needs, and runs from any folder."""

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

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
BUILD = "import sys, setuptools.build_meta as b; print(b.build_{}(sys.argv[1]))"


def test_the_version_is_one() -> None:
    assert f'\nversion: "{VERSION}"\n' in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {VERSION}\n" in (ROOT / "CHANGELOG.md").read_text()


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
import lra, models.helper, tasks, common
print(lra.__file__)
print(len(lra.records(with_shipped=True)) > 50, lra.list_tasks()[0], models.helper.scale)
run = lra.run("listops", "own.py:Own", preset="quick", device="cpu", quiet=True,
              task={"train": 64, "val": 16, "test": 16},
              train={"steps": 2, "warmup_steps": 1, "evaluate_every": 2})
print(run.record.status, run.record.git["commit"], run.folder)
"""
OWN = """
from torch import nn; from models.helper import scale

class Own(nn.Module):
    def __init__(self, context, *, power: int = 1):
        super().__init__()

    def forward(self, x, mask=None):
        return x * scale
"""


def build(kind: str, source: Path, out: Path) -> Path:
    """Build a wheel or a source archive; return its path."""
    command = [sys.executable, "-W", "ignore", "-c", BUILD.format(kind), str(out)]
    done = subprocess.run(command, cwd=source, check=True, capture_output=True, text=True)
    return out / done.stdout.splitlines()[-1]


@pytest.mark.thorough
def test_what_is_installed_is_lra_alone_and_works_beside_folders_of_its_names(
    tmp_path: Path,
) -> None:
    pytest.importorskip("setuptools", minversion="77")
    source, installed, project = (tmp_path / name for name in ("source", "site", "project"))
    ignored = shutil.ignore_patterns("__pycache__", ".git", ".venv", "data", "*.egg-info", "build")
    shutil.copytree(ROOT, source, symlinks=True, ignore=ignored)
    for folder in ("runs", "unfinished", "findings", "shipped/weights"):
        (source / "results" / folder).mkdir(exist_ok=True)
        (source / "results" / folder / "own.csv").touch()
    wheel = build("wheel", source, tmp_path)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
        contents = {*archive.namelist()}
    assert {name.split("/")[0] for name in contents} == {"lra", f"lra-{VERSION}.dist-info"}
    for pattern in ("*.py", "*.js", "*.css", "*.html"):
        for folder in ("lra", "models", "tasks"):
            place = installed / "lra" / ("" if folder == "lra" else folder)
            assert names(place, pattern) >= names(ROOT / folder, pattern), (folder, pattern)
    assert names(installed / "lra" / "configs", "*") == names(ROOT / "configs", "*")
    assert {path.name for path in (installed / "lra" / "results").iterdir()} == {
        "community", "known_data.csv", "published.csv", "published_perplexities.csv", "shipped",
        "sources.yaml", "speeds.csv",
    }  # fmt: skip
    assert not any("weights/" in name for name in contents)
    unpacked = tmp_path / "unpacked"
    shutil.unpack_archive(build("sdist", source, tmp_path), unpacked, filter="data")
    (inside,) = unpacked.iterdir()
    with zipfile.ZipFile(build("wheel", inside, unpacked)) as again:
        assert {*again.namelist()} == contents

    for name in ("models", "tasks", "common"):
        (project / name).mkdir(parents=True)
        (project / name / "helper.py").write_text("scale = 2.0")
    (project / "common" / "__init__.py").touch()
    (project / "own.py").write_text(OWN)
    (project / "use.py").write_text(USE)
    environment = {**os.environ, "PYTHONPATH": str(installed), "OMP_NUM_THREADS": "1"}

    def run(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command], cwd=project, env=environment, capture_output=True,
            text=True, check=True,
        )  # fmt: skip
        return done.stdout

    file, shipped, made = run("use.py").splitlines()
    assert (file, shipped) == (str(installed / "lra" / "__init__.py"), "True flip-flop 2.0")
    assert made.startswith(f"done None {project / 'results' / 'runs' / 'listops' / 'Own'}")
    assert "Own" in run("-m", "lra", "report", "--format", "csv")
