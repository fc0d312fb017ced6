"""Imports point one way: scripts -> lra -> models, tasks."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import models
from conftest import ROOT
from lra.config.registry import MIXERS, TASKS

FORBIDDEN = {
    "models": {"lra", "tasks", "run_task", "report"},
    "tasks": {"lra", "models", "run_task", "report"},
    "lra": {"run_task", "report"},
}
FILES = [
    (package, path) for package in FORBIDDEN for path in sorted((ROOT / package).rglob("*.py"))
]


def imported_names(source: str) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            names.add((node.module or "").partition(".")[0])
    return names


@pytest.mark.parametrize(("package", "path"), FILES, ids=lambda v: getattr(v, "name", v))
def test_imports_point_one_way(package: str, path: Path) -> None:
    assert not imported_names(path.read_text()) & FORBIDDEN[package]


def test_packages_are_this_repositorys() -> None:
    assert Path(models.__file__ or "").parent.parent == ROOT


@pytest.mark.parametrize("heavy", ["pandas", "matplotlib", "tensorflow_datasets"])
def test_run_task_imports_light(heavy: str) -> None:
    code = f"import run_task, lra.train.run, lra.config.compose, sys; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_no_file_names_a_mixer_in_an_if_chain() -> None:
    names = MIXERS.classes.keys() | TASKS.classes.keys()
    for path in [*(ROOT / "lra").glob("*.py"), ROOT / "run_task.py", ROOT / "report.py"]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare):
                literals = {c.value for c in ast.walk(node) if isinstance(c, ast.Constant)}
                assert not literals & names, path
