"""A class of a notebook is a plug-in, with all that it reaches there."""

import importlib
import linecache
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import lra
from lra.api.definitions import FOLDER
from notebook import Notebook

SMALL: dict[str, Any] = {
    "preset": "quick",
    "task": {"train": 20, "val": 5, "test": 5, "max_length": 40},
    "model": {"dim": 8, "depth": 1},
}


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch, own_folder: None) -> Notebook:
    cells = Notebook(monkeypatch)
    cells.run("import math\nfrom torch import nn\nfrom torch.nn import functional as F\nWIDTH = 3")
    cells.run("unused = x = mask = by = object()")  # names of variables of the definitions
    cells.run("def shift(x, by=WIDTH):\n    return F.pad(x, (0, 0, by, 0))")
    cells.run(
        "def keep(cls):\n    return cls\n\n"
        "class Base(nn.Module):\n"
        "    def __init__(self, context, *, factor: float = 1.0):\n"
        "        super().__init__()\n        self.factor = factor\n\n"
        "@keep\nclass Shift(Base):\n    LIMIT = math.inf\n\n"
        "    def forward(self, x, mask=None):\n"
        "        x = x if mask is None else x * mask.unsqueeze(-1)\n"
        "        return self.factor * shift(x)[:, : x.shape[1]]\n"
    )
    return cells


def test_a_class_is_kept_with_what_it_reaches(notebook: Notebook) -> None:
    built = lra.build("listops", notebook.Shift, mixer={"factor": 2.0}, **SMALL)
    (file,) = Path("data", FOLDER).iterdir()
    text = file.read_text()
    for part in ("import math\n", "import torch.nn.functional as F\n", "WIDTH = 3\n", "def shift("):
        assert part in text, part
    assert "unused" not in text and text.index("class Base") < text.index("@keep\nclass Shift")
    assert built.config.mixer_name == "Shift"
    assert built.config.mixer_component.spec == f"{file.absolute()}:Shift"
    assert lra.build("listops", notebook.Shift, mixer={"factor": 2.0}, **SMALL).config.hash == (
        built.config.hash
    )
    notebook.run("def shift(x):\n    return x + 0 * WIDTH")
    edited = lra.build("listops", notebook.Shift, mixer={"factor": 2.0}, **SMALL)
    assert edited.config.hash != built.config.hash, "an edited helper makes another run"


def test_a_task_may_be_a_class(notebook: Notebook) -> None:
    notebook.run(
        "class Parity:\n"
        "    train, val, test = 20, 5, 5\n"
        "    def __init__(self, length: int = 8):\n        self.length = length\n"
        "    def examples(self, split, rng):\n"
        "        x = rng.integers(0, 2, ({'train': 20}.get(split, 5), self.length))\n"
        "        return x, x.sum(1) % 2\n"
    )
    found = lra.data(notebook.Parity, preset="quick")
    assert (found.info.max_length, len(found.dataset.splits["train"])) == (8, 20)


@pytest.mark.parametrize("is_imported", [False, True])
def test_lra_check_takes_a_class_whether_or_not_it_was_imported(
    notebook: Notebook,
    is_imported: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    importlib.import_module("lra.check.checks")
    if not is_imported:
        monkeypatch.delattr(lra, "check")
    with torch.no_grad():
        assert lra.check(notebook.Shift, dim=8, factor=2.0)
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith("mixer Shift: all ") and "0 parameters at 8 channels" in shown
    step = "next: lra.run('listops', Shift, preset='quick', mixer={'factor': 2.0})"
    assert shown.endswith(step)
    notebook.run("def shift(x):\n    return F.pad(x, (0, 0, 0, 1))[:, 1:]")
    assert not lra.check(notebook.Shift)
    failed = capsys.readouterr().out
    assert "FAILED  with model.causal=true it is causal" in failed
    assert not lra.check(notebook.Shift)
    assert capsys.readouterr().out == failed, "inputs are the same every time"


@pytest.mark.parametrize(
    ("given", "options", "part"),
    [
        ("Shift", {"dim": 0}, "lra.check: dim: got 0, expected greater than 0"),
        ("Shift", {"facter": 2.0}, "lra.check: unknown option of Shift 'facter'; did you mean fac"),
        ("WIDTH", {}, "lra.check: target: got 3"),
    ],
)
def test_mistakes_in_a_call_of_lra_check(
    notebook: Notebook, given: str, options: dict[str, Any], part: str
) -> None:
    with pytest.raises(lra.UserError, match=f"^{re.escape(part)}"):
        lra.check(getattr(notebook, given), **options)


def test_what_cannot_be_kept_is_refused(notebook: Notebook) -> None:
    notebook.run("import torch\nWIDTH = torch.ones(3)")
    with pytest.raises(lra.UserError, match=r"lra\.build: Shift: it uses WIDTH, a Tensor that"):
        lra.build("listops", notebook.Shift, **SMALL)
    notebook.run("WIDTH = 1")
    linecache.cache.clear()
    with pytest.raises(lra.UserError, match="the source of Shift cannot be read; write it into"):
        lra.build("listops", notebook.Shift, **SMALL)
