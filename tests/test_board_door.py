"""The door of the open leaderboard: what CI runs on a pull request, and what it never runs."""

import os
import subprocess
import tomllib
from pathlib import Path

import pytest

from conftest import ROOT
from lra.common.strict_yaml import parse_yaml

WORKFLOW = parse_yaml((ROOT / ".github/workflows/submission.yml").read_text(), "submission.yml")
*_, DOOR = WORKFLOW["jobs"]["files"]["steps"]


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    command = ["git", "-C", str(folder), *identity, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_the_workflow_runs_the_code_of_the_base_branch_with_a_read_only_token() -> None:
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert [*WORKFLOW["on"]] == ["pull_request_target"]
    steps = WORKFLOW["jobs"]["files"]["steps"]
    runs = [step for step in steps if "run" in step]
    assert {step["working-directory"] for step in runs} == {"base"}
    checkouts = [step["with"] for step in steps if "checkout" in step.get("uses", "")]
    assert [one["persist-credentials"] for one in checkouts] == [False, False]
    assert not any("${{" in step["run"] for step in runs), "a name could be a command"


@pytest.mark.parametrize(
    ("files", "says"),
    [
        (["results/community/new/x"], "--check ../submitted/results/community/new --changed"),
        (["lra/board/files.py"], "has no folder"),
        (["results/community/old/x"], "old is there already"),
        (["results/community/$(touch canary)/x"], "has no folder"),
        (["results/community/new/x", "lra/x.py"], "--check ../submitted/results/community/new"),
    ],
)
def test_the_door(tmp_path: Path, files: list[str], says: str) -> None:
    base, submitted, tools = (tmp_path / name for name in ("base", "submitted", "tools"))
    for folder in (base, tools):
        folder.mkdir()
    git(base, "init", "-q")
    (base / "results/community/old").mkdir(parents=True)
    (base / "results/community/old/runs.parquet").touch()
    git(base, "add", "-A")
    git(base, "commit", "-qm", "base")
    subprocess.run(["git", "clone", "-q", str(base), str(submitted)], check=True)
    for name in files:
        (submitted / name).parent.mkdir(parents=True, exist_ok=True)
        (submitted / name).write_text("new\n")
    git(submitted, "add", "-A")
    git(submitted, "commit", "-qm", "submitted")
    (tools / "python").write_text('#!/bin/sh\necho "$@"\n')
    (tools / "python").chmod(0o755)
    known = {"BASE": git(base, "rev-parse", "HEAD"), "BASE_REPOSITORY": str(base)}
    known["PATH"] = f"{tools}:{os.environ['PATH']}"
    command = ["bash", "-eo", "pipefail", "-c", DOOR["run"]]
    ended = subprocess.run(
        command, cwd=base, env={**os.environ, **known}, capture_output=True, text=True, check=False
    )
    assert says in ended.stdout, ended.stderr
    assert (ended.returncode == 0) == ("--check" in says)
    if ended.returncode == 0:
        assert (tmp_path / "changed").read_bytes().split(b"\0")[:-1] == sorted(
            name.encode() for name in files
        )
    assert not [*tmp_path.rglob("canary")]


def test_code_of_contributions_is_outside_of_everything() -> None:
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    assert "results/community" in tools["ruff"]["extend-exclude"]
    assert "**/results/community" in tools["pyright"]["exclude"]
    assert tools["pytest"]["ini_options"]["testpaths"] == ["tests"]
    patterns = tools["setuptools"]["package-data"]["lra"]
    assert not any(Path("results/community/x/code/x.py").match(one) for one in patterns)
    assert not any(Path("results/community/x/weights/x").match(one) for one in patterns)
