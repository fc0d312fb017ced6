"""Running the code of a user's own file or module."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.machinery
import os
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from common.errors import describe
from common.untrusted import read_regular
from lra.runtime.errors import UserError
from lra.runtime.packages import PACKAGES


def digest(files: Iterable[str]) -> str:
    """Hash files of code: 16 hexadecimal digits."""
    contents = b"".join(read_regular(Path(file)) for file in dict.fromkeys(files))
    return hashlib.sha256(contents).hexdigest()[:16]


def file_of(target: str) -> Path | None:
    """Find the file that a path or a dotted name stands for, without running any code."""
    if target.endswith(".py"):
        return Path(target)
    places: list[str] | None = [*sys.path, str(Path.cwd())]
    origin = None
    for name in target.split("."):
        spec = importlib.machinery.PathFinder.find_spec(name, places)
        if spec is None:
            return None
        origin, places = spec.origin, list(spec.submodule_search_locations or [])
    return None if origin is None else Path(origin)


def load_file(path: Path, origin: str) -> ModuleType:
    """Run a file as a module. The same file with the same text runs once."""
    if not path.is_file():
        raise UserError(f"{origin}: there is no file {path} (looked for in {Path.cwd()})")
    path = path.resolve()
    content = read_regular(path)
    identity = hashlib.sha256(os.fsencode(path) + b"\0" + content).hexdigest()
    module = ModuleType(f"_mixer_plug_in_{identity[:16]}")
    if module.__name__ in sys.modules:
        return sys.modules[module.__name__]
    module.__file__ = str(path)
    _extend_search_path(path.parent)
    sys.modules[module.__name__] = module  # dataclasses and type hints look names up there
    try:
        # An import could use bytecode from before an edit.
        with contextlib.chdir("."):  # restores the working directory
            exec(compile(content, str(path), "exec", dont_inherit=True), module.__dict__)  # noqa: S102
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        del sys.modules[module.__name__]
        raise _describe_failed_import(error, origin, str(path)) from None
    return module


def load_module(name: str, origin: str) -> ModuleType:
    """Import a module that is installed, or in the current folder.

    Raises: UserError for a missing module, and for any error of its import.
    """
    _extend_search_path(Path.cwd())
    try:
        with contextlib.chdir("."):
            return importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{name}.".startswith(f"{missing}."):
            raise UserError(
                f"{origin}: the module {missing} is neither installed nor in {Path.cwd()}; to name "
                f"a file, write path/to/file.py:ClassName"
            ) from None
        raise _describe_failed_import(error, origin, name.replace(".", "/")) from None


def _extend_search_path(folder: Path) -> None:
    """Add a folder to the end of the search path of imports."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _describe_failed_import(error: BaseException, origin: str, file: str) -> UserError:
    text = f"{origin}: its import failed: {describe_error(error, file)}"
    name = error.name or "" if isinstance(error, ModuleNotFoundError) else ""
    if name.startswith(tuple(f"{package}." for package in PACKAGES)):
        package = name.partition(".")[0]
        text += f"; {package} is a package of the suite: give a folder of this name another one"
    return UserError(text)


def describe_error(error: BaseException, file: str) -> str:
    """Describe an exception and its line, in a file whose path contains `file` if possible."""
    text = describe(error)
    if isinstance(error, SyntaxError):
        return text  # names the place itself
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return text
    place = ([frame for frame in frames if file in frame.filename] or frames)[-1]
    return f"{text} ({place.filename}, line {place.lineno})"
