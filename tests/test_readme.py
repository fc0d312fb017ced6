"""What the README shows works as it stands there."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
import torch

import models
from conftest import ROOT
from lra.registry import Registry, options_model
from models.base import Mixer, MixerContext

README = (ROOT / "README.md").read_text()


def test_the_example_mixer_is_found_and_keeps_the_contract(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README, re.S)
    (tmp_path / "readme_example.py").write_text(example)
    monkeypatch.setattr(models, "__path__", [*models.__path__, str(tmp_path)])
    importlib.invalidate_caches()
    cls = Registry("mixer", models, Mixer).get("mean", "test")
    assert options_model(cls).model_fields.keys() == {"bias"}
    context = MixerContext(dim=4, max_length=9, layer=0, depth=1)
    x = torch.randn(2, 9, 4)
    mask = torch.ones(2, 9, dtype=torch.bool)
    mask[1, 5:] = False
    mixer = cls(context)
    torch.testing.assert_close(mixer(x, mask)[1, :5], mixer(x[1:, :5])[0])


def test_commands_name_existing_files() -> None:
    for name in re.findall(r"(?:requirements[\w-]*\.txt|run_task\.py|report\.py)", README):
        assert (ROOT / name).is_file()


@pytest.mark.parametrize("marker", ["main job", "tests"])
def test_ci_can_find_the_two_commands(marker: str) -> None:
    (command,) = re.findall(rf"<!-- {marker} -->\n```\n(.*)\n```", README)
    assert command.startswith("python3 -m venv .venv && .venv/bin/pip install")
