"""Finding a mixer or task: one of the suite by its name, or a class in a user's own file or module.

The classes of the suite are found by looking through their packages.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import inspect
import os
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

import models
import tasks
from common.errors import KnownError
from common.untrusted import read_regular
from lra.config.components import MixerComponent, TaskComponent, describe_error
from lra.runtime.errors import UnknownName, UserError, user_code
from lra.runtime.repository import PACKAGES
from models.base import Mixer
from tasks.base import Task

T = TypeVar("T", Mixer, Task)
AnyComponent = TypeVar("AnyComponent", MixerComponent, TaskComponent)

FORMS = "path/to/file.py:ClassName or package.module:ClassName"


class Registry(Generic[T]):
    """The concrete subclasses of a base class in a package that have a name.

    These are defined in the package's modules, or imported by the `__init__` of its folders.
    """

    def __init__(self, kind: str, package: ModuleType, base: type[T]) -> None:
        self.kind = kind
        self.package = package
        self.base = base

    @functools.cached_property
    def classes(self) -> dict[str, type[T]]:
        """All classes by name. A name that is used twice is a TypeError that names both modules."""
        found: dict[str, type[T]] = {}
        for entry in sorted(pkgutil.iter_modules(self.package.__path__), key=lambda e: e.name):
            if entry.name.startswith("_"):
                continue
            module = importlib.import_module(f"{self.package.__name__}.{entry.name}")
            for cls in vars(module).values():
                if not (inspect.isclass(cls) and issubclass(cls, self.base)):
                    continue
                is_own = f"{cls.__module__}.".startswith(f"{module.__name__}.")
                if inspect.isabstract(cls) or not is_own or not hasattr(cls, "name"):
                    continue
                if cls.name in found:
                    other = found[cls.name].__module__
                    raise TypeError(f"{self.kind} {cls.name!r} is in {other} and {cls.__module__}")
                found[cls.name] = cls  # pyright: ignore[reportArgumentType]
        return found

    def get(self, name: str, origin: str) -> type[T]:
        """Look up a name that the flag or file `origin` gave.

        Raises: UserError naming the nearest valid name and all of them.
        """
        if name not in self.classes:
            raise UnknownName(self.kind, name, self.classes, origin)
        return self.classes[name]


MIXERS: Registry[Mixer] = Registry("mixer", models, Mixer)
TASKS: Registry[Task] = Registry("task", tasks, Task)


def find_mixer(spec: str, flag: str) -> MixerComponent:
    """Find the mixer that a flag names. The code of a plug-in is run.

    Raises: UserError if it cannot be found or imported.
    """
    return _find(spec, flag, MIXERS, MixerComponent)


def find_task(spec: str, flag: str) -> TaskComponent:
    """Find the task that a flag names. The code of a plug-in is run.

    Raises: UserError if it cannot be found or imported.
    """
    return _find(spec, flag, TASKS, TaskComponent)


def _find(
    spec: str, flag: str, registry: Registry[Any], component: type[AnyComponent]
) -> AnyComponent:
    if ":" in spec:
        return _find_plug_in(spec, flag, registry, component)
    if spec.endswith(".py"):
        raise UserError(f"{flag} {spec}: add the name of the class, {spec}:ClassName")
    try:
        return component(spec=spec, cls=registry.get(spec, flag), flag=flag)
    except UserError as error:
        raise UserError(f"{error}; write a {component.kind} of your own as {FORMS}") from None


def _find_plug_in(
    spec: str, flag: str, registry: Registry[Any], component: type[AnyComponent]
) -> AnyComponent:
    origin = f"{flag} {spec}"
    module, cls = load_class(spec, origin, component.fits, component.expected)
    name, named = spec.rpartition(":")[2], str(module.__file__)
    try:
        if inspect.isabstract(cls):
            missing = ", ".join(sorted(cls.__abstractmethods__))
            raise UserError(f"{origin}: {name} is abstract; define {missing}")
        if name.casefold() in {key.casefold() for key in registry.classes}:  # as folders compare
            raise UserError(
                f"{origin}: the suite has a {component.kind} of that name; rename your class, or "
                f"use {name.casefold()} without a file for that of the suite"
            )
        file = inspect.getfile(cls)
        user_code.add(file)
        code = _digest_once(module, named, file)
    except (KnownError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise UserError(f"{origin}: it cannot be used: {describe_error(error, named)}") from error
    return component(spec=spec, cls=cls, flag=flag, code=code, file=file)


@functools.cache
def _digest_once(module: ModuleType, *files: str) -> str:
    """Hash the files of a module as they were when they ran."""
    return digest(files)


def digest(files: Iterable[str]) -> str:
    """Hash files of code: 16 hexadecimal digits."""
    contents = b"".join(read_regular(Path(file)) for file in dict.fromkeys(files))
    return hashlib.sha256(contents).hexdigest()[:16]


def load_class(
    spec: str, origin: str, fits: Callable[[type], bool], expected: str
) -> tuple[ModuleType, type]:
    """Run the file or import the module that a plug-in names, and look its class up.

    Args:
        fits: tells whether a class is of the kind that is looked for.
        expected: description of such a class, for error messages.
    Raises: UserError if it cannot be found or imported.
    """
    target, _, name = spec.rpartition(":")
    if name.isidentifier() and target.endswith(".py"):
        module = _run_file(Path(target), origin)
    elif name.isidentifier() and all(part.isidentifier() for part in target.split(".")):
        with _explain_import(Path.cwd(), origin, target.replace(".", "/"), target):
            module = importlib.import_module(target)
    else:
        raise UserError(f"{origin}: expected {FORMS}")
    user_code.add(str(module.__file__))
    if name not in vars(module):
        classes = {key: value for key, value in vars(module).items() if inspect.isclass(value)}
        own = [k for k, v in classes.items() if v.__module__ == module.__name__ and fits(v)]
        raise UnknownName("class", name, own, origin)
    cls = vars(module)[name]
    if not (inspect.isclass(cls) and fits(cls)):
        what = "another class" if inspect.isclass(cls) else f"of type {type(cls).__name__}"
        raise UserError(f"{origin}: {name} is {what}, expected {expected}")
    return module, cls


def _run_file(path: Path, origin: str) -> ModuleType:
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
    sys.modules[module.__name__] = module  # dataclasses and type hints look names up there
    try:
        with _explain_import(path.parent, origin, str(path)):
            # An import could use bytecode from before an edit.
            exec(compile(content, str(path), "exec", dont_inherit=True), module.__dict__)  # noqa: S102
    except BaseException:
        del sys.modules[module.__name__]
        raise
    return module


@contextlib.contextmanager
def _explain_import(folder: Path, origin: str, file: str, module: str = "") -> Iterator[None]:
    """Let code import from a folder, keep the working directory, and describe what it raises.

    Args:
        file: a part of the path of the code.
        module: the module that is imported, if it is no file.
    """
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    try:
        with contextlib.chdir("."):
            yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        missing = (error.name or "") if isinstance(error, ModuleNotFoundError) else ""
        if missing and f"{module}.".startswith(f"{missing}."):
            raise UserError(
                f"{origin}: the module {missing} is neither installed nor in {Path.cwd()}; to name "
                f"a file, write path/to/file.py:ClassName"
            ) from None
        text = f"{origin}: its import failed: {describe_error(error, file)}"
        package = missing.partition(".")[0]
        if package in PACKAGES:
            text += f"; {package} is a package of the suite: give a folder of this name another one"
        raise UserError(text) from None
