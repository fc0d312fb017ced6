"""A class of a notebook or script as a plug-in: a file with all definitions that it reaches."""

from __future__ import annotations
import __future__

import ast
import hashlib
import linecache
import symtable
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from lra.common.errors import UserError
from lra.common.files import write_atomically

FOLDER = "plug_ins"
"""Folder of such files in the data folder."""


def name_plug_in(given: str | type, data_dir: Path, origin: str) -> str:
    """Return the text that `--mixer` or `--task` takes for a name, or for a class.

    The definition of a class of `__main__` is written to a file, whose name has its digest: with
    an edited helper, a class is another plug-in.

    Args:
        given: a name, or a class.
        data_dir: the folder of caches, with `FOLDER`.
        origin: the Python function that was called with it.
    Raises: UserError for a class whose definition cannot be read, or that reaches a value that
        cannot be written.
    """
    if isinstance(given, str):
        return given
    if given.__module__ != "__main__":
        return f"{given.__module__}:{given.__qualname__}"
    text = _Definitions(sys.modules["__main__"], f"{origin}: {given.__name__}").write(given)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    path = data_dir / FOLDER / f"{given.__name__}-{digest}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text.encode())
    return f"{path}:{given.__name__}"


class _Definitions:
    """The definitions of a module that one of them reaches, each after those that it needs."""

    def __init__(self, module: ModuleType, origin: str) -> None:
        self.names = vars(module)
        self.origin = origin
        self.imports: set[str] = set()
        self.texts: dict[str, str] = {}
        if isinstance(self.names.get("annotations"), __future__._Feature):
            self.texts["annotations"] = "from __future__ import annotations"

    def write(self, value: type) -> str:
        """Write the definitions that a class reaches, its own last."""
        self._add(value.__name__, value)
        first = self.texts.pop("annotations", "")
        parts = [first, "\n".join(sorted(self.imports)), *self.texts.values()]
        return "\n\n\n".join(filter(None, parts)) + "\n"

    def _add(self, name: str, value: Any) -> None:
        if name in self.texts:
            return
        home, of_value = getattr(value, "__module__", None), getattr(value, "__name__", "")
        alias = "" if of_value == name else f" as {name}"
        if isinstance(value, ModuleType):
            self.imports.add(f"import {of_value}{alias}")
        elif isinstance(value, type | FunctionType) and home == "__main__":
            self.texts[name] = ""  # it may name itself
            source = self._read(value)
            for other in self._reached(source):
                self._add(other, self.names[other])
            del self.texts[name]
            self.texts[name] = source
        elif isinstance(home, str) and hasattr(sys.modules.get(home), of_value):
            self.imports.add(f"from {home} import {of_value}{alias}")
        else:
            self.texts[name] = f"{name} = {self._write_constant(name, value)}"

    def _reached(self, source: str) -> Iterator[str]:
        """List the names of the module that a definition uses, in their order."""
        tables = [symtable.symtable(source, self.origin, "exec")]
        for table in tables:
            tables += table.get_children()
        symbols = [symbol for table in tables for symbol in table.get_symbols()]
        used = {one.get_name() for one in symbols if one.is_global() and one.is_referenced()}
        return (name for name in self.names if name in used)

    def _read(self, value: type | FunctionType) -> str:
        """Return the source of a definition; that of a class is where its functions are."""
        members = [value] if isinstance(value, FunctionType) else vars(value).values()
        for code in (m.__code__ for m in members if isinstance(m, FunctionType)):
            source = "".join(linecache.getlines(code.co_filename))
            for node in ast.parse(source).body if source else ():
                is_definition = isinstance(node, ast.ClassDef | ast.FunctionDef)
                if is_definition and node.name == value.__name__:
                    first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
                    if first <= code.co_firstlineno <= (node.end_lineno or first):
                        return "\n".join(source.splitlines()[first - 1 : node.end_lineno])
        raise UserError(
            f"{self.origin}: the source of {value.__name__} cannot be read; write it into a file"
        )

    def _write_constant(self, name: str, value: Any) -> str:
        text = repr(value)
        try:
            if ast.literal_eval(text) == value:
                return text
        except (ValueError, SyntaxError, TypeError):
            pass
        raise UserError(
            f"{self.origin}: it uses {name}, a {type(value).__name__} that cannot be kept with a "
            f"run; use a number, text, list or function, or write the class into a file"
        )
