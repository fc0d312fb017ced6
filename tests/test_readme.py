"""What the README shows works as it stands there."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import models
from conftest import ROOT
from lra.registry import Registry, options_model
from models.base import Mixer

README = (ROOT / "README.md").read_text()


def test_a_mixer_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The contract tests run the example; here the registry finds it by itself."""
    (example,) = re.findall(r"```python\n(.*?)```", README, re.S)
    (tmp_path / "one_file.py").write_text(example)
    monkeypatch.setattr(models, "__path__", [*models.__path__, str(tmp_path)])
    importlib.invalidate_caches()
    cls = Registry("mixer", models, Mixer).get("mean", "test")
    assert options_model(cls).model_fields.keys() == {"bias"}


def test_commands_name_existing_files() -> None:
    for name in re.findall(r"(?:requirements[\w-]*\.txt|run_task\.py|report\.py)", README):
        assert (ROOT / name).is_file()


@pytest.mark.parametrize("marker", ["main job", "tests"])
def test_ci_can_find_the_two_commands(marker: str) -> None:
    (command,) = re.findall(rf"<!-- {marker} -->\n```\n(.*)\n```", README)
    assert command.startswith("python3 -m venv .venv && .venv/bin/pip install")
