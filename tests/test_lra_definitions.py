"""A class of a notebook is a plug-in, with all that it reaches there."""

from __future__ import annotations

import linecache
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import lra
from lra.api.definitions import FOLDER

SMALL: dict[str, Any] = {
    "preset": "quick",
    "task": {"train": 20, "val": 5, "test": 5, "max_length": 40},
    "model": {"dim": 8, "depth": 1},
}


class Notebook:
    """Cells that run one after the other, as in Jupyter."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.module = ModuleType("__main__")
        self.count = 0
        monkeypatch.setitem(sys.modules, "__main__", self.module)

    def run(self, code: str) -> None:
        self.count += 1
        name = f"/tmp/ipykernel_1/{self.count}.py"
        linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
        exec(compile(code, name, "exec"), vars(self.module))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch, own_folder: None) -> Notebook:
    cells = Notebook(monkeypatch)
    cells.run("import math\nfrom torch import nn\nfrom torch.nn import functional as F\nWIDTH = 3")
    cells.run("unused = object()\ndef shift(x, by=WIDTH):\n    return F.pad(x, (0, 0, by, 0))")
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


def test_what_cannot_be_kept_is_refused(notebook: Notebook) -> None:
    notebook.run("import torch\nWIDTH = torch.ones(3)")
    with pytest.raises(lra.UserError, match=r"lra\.build: Shift: it uses WIDTH, a Tensor that"):
        lra.build("listops", notebook.Shift, **SMALL)
    notebook.run("WIDTH = 1")
    linecache.cache.clear()
    with pytest.raises(lra.UserError, match="the source of Shift cannot be read; write it into"):
        lra.build("listops", notebook.Shift, **SMALL)
