"""A notebook whose cells run in this process."""

import linecache
import sys
from types import ModuleType
from typing import Any

import pytest


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
