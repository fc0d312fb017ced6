"""Paths that users type: absolute from then on, and shown as they were typed."""

from __future__ import annotations

from pathlib import Path

import pytest

import lra
from conftest import tiny_settings
from lra.runtime.console import as_typed, make_absolute

MOVING = """
import os
import torch
from torch import nn

class Own(nn.Module):
    def __init__(self, context):
        super().__init__()
        os.chdir({folder!r})
        self.scale = nn.Parameter(torch.ones(context.dim))

    def forward(self, x, mask=None):
        return x * self.scale
"""
"""A mixer that changes the working directory."""


@pytest.mark.parametrize(
    ("typed", "text", "shown"),
    [
        ("results", "{0}/results/runs/a: no record", "results/runs/a: no record"),
        ("results", "there is no folder {0}/results", "there is no folder results"),
        ("results", "{0}/results-2 and {0}/results.", "{0}/results-2 and results."),
        ("results", "/data{0}/results", "/data{0}/results"),
        ("./a/../b", "{0}/a/../b/c", "a/../b/c"),
        ("../b", "--out: {0}/../b is a file", "--out: ../b is a file"),
        (".", "{0}/runs and ({0})", "runs and (.)"),
    ],
)
@pytest.mark.usefixtures("own_folder")
def test_paths_are_shown_as_typed(
    monkeypatch: pytest.MonkeyPatch, typed: str, text: str, shown: str
) -> None:
    monkeypatch.setattr("lra.runtime.console._typed", {})
    here = Path.cwd()
    assert make_absolute(typed) == here / typed
    assert as_typed(text.format(here)) == shown.format(here)


@pytest.mark.usefixtures("own_folder")
def test_absolute_paths_are_shown_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lra.runtime.console._typed", {})
    path = Path.cwd() / "results"
    assert as_typed(f"{make_absolute(str(path))}/a") == f"{path}/a"


@pytest.mark.usefixtures("own_folder")
def test_the_python_api_stays_where_it_was_called(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    Path("own.py").write_text(MOVING.format(folder=str(other)))
    settings: dict[str, dict[str, object]] = {}
    for text in tiny_settings():
        section, key, value = text.replace("=", ".").split(".", 2)
        settings.setdefault(section, {})[key] = int(value)
    built = lra.build("listops", "own.py:Own", preset="quick", **settings)  # pyright: ignore[reportArgumentType]
    assert built.dataset.folder.is_relative_to(tmp_path / "data")
    assert not list(other.iterdir())
